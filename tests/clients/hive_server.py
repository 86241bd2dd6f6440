"""What the client programs of HiveServer2 share: how to connect, tables to look at, a statement that takes long."""

import os

# How a client says who it is, as hive.server2.authentication calls it: NOSASL, or NONE, which is SASL PLAIN.
AUTHENTICATION = os.environ.get("HIVE_AUTH", "NOSASL")
# The port of the same server for Thrift over HTTP, if it has one; the path is /cliservice.
HTTP_PORT = int(os.environ.get("HIVE_HTTP_PORT", "0"))

NUMBERS = "(SELECT p.pos FROM (SELECT 1 one) s LATERAL VIEW posexplode(split(space({}), ' ')) p AS pos, val)"

# One column of every type that a table can have, in the order of the rows below.
TYPES = (
    "b boolean, t tinyint, s smallint, i int, l bigint, f float, d double, n decimal(10,2), st string, vc varchar(10), "
    "ch char(5), dt date, ts timestamp, bi binary, a array<int>, m map<string,int>, r struct<x:int,y:string>"
)
VALUES = (
    "true, 1Y, 2S, 3, 4L, cast(1.5 as float), 2.5D, 12.30BD, 'text', cast('vc' as varchar(10)), cast('ch' as char(5)), "
    "date '2020-01-02', timestamp '2020-01-02 03:04:05.678', cast('bin' as binary), array(1, 2, null), map('k', 1), "
    "named_struct('x', 1, 'y', 'z')"
)


def pairs(left, right):
    """A statement that counts nearly all pairs of this many rows with that many."""
    a, b = NUMBERS.format(left - 1), NUMBERS.format(right - 1)
    return f"SELECT count(*) FROM {a} a CROSS JOIN {b} b WHERE a.pos * 3 <> b.pos + 7"


# It takes minutes, so that it is still running when it is cancelled.
LONG = pairs(100_000, 100_000)


def fresh(cursor, name, columns):
    cursor.execute(f"DROP TABLE IF EXISTS {name}")
    cursor.execute(f"CREATE TABLE {name} ({columns})")
