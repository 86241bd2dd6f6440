"""psycopg 3: what its users do every day. usage: check_psycopg.py HOST PORT USER [DATABASE]"""

import asyncio
import datetime
import decimal
import math
import os
import threading
import time

import psycopg
import psycopg_pool
from psycopg import errors, pq, sql
from psycopg.rows import dict_row

from checks import Program, equal, holds, raises

program = Program(f"psycopg {psycopg.__version__}")
UTC = datetime.timezone.utc
LONG = "SELECT count(*) FROM generate_series(1, 200000) AS a(x), generate_series(1, 200000) AS b(y) WHERE a.x <> b.y + 7"


def connect(**options):
    options.setdefault("autocommit", True)
    return psycopg.connect(
        host=program.host, port=program.port, user=program.user, dbname=program.database, connect_timeout=10, **options
    )


def fresh(connection, name, columns):
    connection.execute(f"DROP TABLE IF EXISTS {name}")
    connection.execute(f"CREATE TABLE {name} ({columns})")


@program.check
def connecting():
    """connect with sslmode disable, prefer and allow, with options, an application_name and a long password"""
    for mode in program.ssl_modes:
        with connect(sslmode=mode) as connection:
            if "require" in program.ssl_modes:
                equal(connection.pgconn.ssl_in_use, mode in ("prefer", "require"), mode)
            equal(connection.execute("SELECT 1").fetchone(), (1,))
            equal(connection.info.status, pq.ConnStatus.OK)
    with connect(gssencmode="prefer", application_name="the matrix", options="-c timezone=Asia/Tokyo") as connection:
        equal(connection.execute("SHOW application_name").fetchone(), ("the matrix",))
        equal(connection.execute("SHOW timezone").fetchone(), ("Asia/Tokyo",))
    error = raises(psycopg.OperationalError, lambda: psycopg.connect(
        host=program.host, port=program.port, user=program.user, dbname="no such database", connect_timeout=10))
    holds("no such database" in str(error), f"the database that does not exist is named: {error}")


@program.check
def statuses():
    """parameters of the session that the server reports, at start and when they change"""
    with connect() as connection:
        info = connection.info
        holds(info.server_version >= 140000, f"server_version {info.server_version}")
        equal(info.parameter_status("client_encoding"), "UTF8")
        equal(info.parameter_status("server_encoding"), "UTF8")
        equal(info.parameter_status("integer_datetimes"), "on")
        equal(info.parameter_status("standard_conforming_strings"), "on")
        equal(info.parameter_status("DateStyle"), "ISO, MDY")
        equal(info.parameter_status("IntervalStyle"), "postgres")
        equal(info.parameter_status("session_authorization"), program.user)
        holds(info.parameter_status("TimeZone"), "TimeZone is reported")
        holds(info.backend_pid > 0, "a backend has a number")
        equal(connection.execute("SELECT pg_backend_pid()").fetchone(), (info.backend_pid,))
        connection.execute("SET TimeZone TO 'Europe/Vienna'")
        equal(info.parameter_status("TimeZone"), "Europe/Vienna")
        equal(str(info.timezone), "Europe/Vienna")
        connection.execute("SET application_name = 'renamed'")
        equal(info.parameter_status("application_name"), "renamed")


@program.check
def places_of_parameters():
    """types of parameters in every place, as Describe tells them (parameter_types.tsv)"""
    with connect() as connection:
        fresh(connection, "parameter_places", "i int, b bigint, s smallint, n numeric(10,2), f float8, r real, x text, d date, ts timestamp, tz timestamptz, tm time, iv interval, y bytea, bo boolean, l int[]")
        oids = {row[0]: row[1] for row in connection.execute("SELECT typname, oid::int FROM pg_type WHERE typnamespace = 11").fetchall()}
        differences = []
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "parameter_types.tsv"), encoding="utf-8") as file:
            lines = [line.rstrip("\n") for line in file if not line.startswith("#")]
        for line in lines:
            names, statement = line.split("\t")
            prepared = connection.pgconn.prepare(b"", statement.encode())
            if prepared.status != pq.ExecStatus.COMMAND_OK:
                differences.append(f"{statement}: {prepared.error_message.decode().strip()}")
                continue
            described = connection.pgconn.describe_prepared(b"")
            found = [described.param_type(at) for at in range(described.nparams)]
            if found != [oids[name] for name in names.split(" ")]:
                differences.append(f"{statement}: {found}, not {names}")
        equal(differences, [])
        connection.execute("DROP TABLE parameter_places")


@program.check
def identity():
    """version(), current_user, current_database(), current_schema()"""
    with connect() as connection:
        row = connection.execute("SELECT version(), current_user, session_user, current_database(), current_schema()").fetchone()
        holds("PostgreSQL" in row[0], f"version() is {row[0]}")
        equal(row[1:4], (program.user, program.user, program.database))
        equal(row[4], connection.execute("SELECT current_schema").fetchone()[0])


VALUES = {
    "boolean": [True, False],
    "smallint": [-32768, 0, 32767],
    "integer": [-2147483648, -1, 2147483647],
    "bigint": [-9223372036854775808, 9223372036854775807],
    "real": [0.0, 1.5, -0.25, 16777216.0, math.inf, -math.inf],
    "double precision": [0.1, -1.7976931348623157e308, 5e-324, math.inf, -math.inf],
    "numeric(20,4)": [decimal.Decimal("1234567890123456.7891"), decimal.Decimal("-0.0001"), decimal.Decimal("0.0000")],
    "numeric(38,10)": [decimal.Decimal("1234567890123456789012345678.0123456789")],
    "text": ["", "it's \"quoted\" \\ back", "Grüße, 世界 🎉", "tab\tline\nreturn\r", "%s {} $1 :x ?", "x" * 100_000],
    "varchar(30)": ["abc", "dreißig"],
    "bytea": [b"", b"\x00\xff\\'\"", bytes(range(256))],
    "date": [
        datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), datetime.date(1582, 10, 14),
        datetime.date(1, 1, 1), datetime.date(9999, 12, 31),
    ],
    "time": [datetime.time(0, 0), datetime.time(23, 59, 59, 999999)],
    "timestamp": [
        datetime.datetime(2024, 2, 29, 23, 59, 59, 999999), datetime.datetime(1969, 12, 31, 23, 59, 59, 1),
        datetime.datetime(1900, 1, 1), datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ],
    "timestamptz": [
        datetime.datetime(2024, 2, 29, 12, 0, tzinfo=UTC), datetime.datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=UTC),
        datetime.datetime(2024, 7, 1, 0, 0, tzinfo=datetime.timezone(datetime.timedelta(hours=5, minutes=30))),
    ],
}


def both_ways(connection, kind, formats):
    for value in VALUES[kind] + [None]:
        for placeholder, binary in formats:
            got = connection.execute(f"SELECT CAST({placeholder} AS {kind})", [value], binary=binary).fetchone()[0]
            equal(got, value, f"{kind}, parameter as {placeholder}, result in {'binary' if binary else 'text'}")


@program.check
def types_in_text():
    """every scalar type as a parameter and as a result, in text"""
    with connect() as connection:
        for kind in VALUES:
            both_ways(connection, kind, [("%t", False)])


@program.check
def types_in_binary():
    """every scalar type as a parameter and as a result, in binary, and mixed with text"""
    with connect() as connection:
        for kind in VALUES:
            both_ways(connection, kind, [("%b", True), ("%t", True), ("%b", False), ("%s", True)])


@program.check
def not_a_number():
    """NaN as real, double precision, in text and binary"""
    with connect() as connection:
        for kind in ["real", "double precision"]:
            for placeholder, binary in [("%t", False), ("%b", True)]:
                got = connection.execute(f"SELECT CAST({placeholder} AS {kind})", [math.nan], binary=binary).fetchone()[0]
                holds(math.isnan(got), f"{kind}: NaN came back as {got}")


@program.check
def intervals():
    """intervals as results and parameters"""
    with connect() as connection:
        for binary in [False, True]:
            got = connection.execute("SELECT INTERVAL '3 days 04:05:06.5', INTERVAL '-1 day'", binary=binary).fetchone()
            equal(got, (datetime.timedelta(days=3, hours=4, minutes=5, seconds=6.5), datetime.timedelta(days=-1)))
            got = connection.execute(
                "SELECT CAST(%s AS timestamp) + CAST(%s AS interval)",
                [datetime.datetime(2024, 1, 31), datetime.timedelta(days=1, hours=2)], binary=binary,
            ).fetchone()
            equal(got, (datetime.datetime(2024, 2, 1, 2),))


@program.check
def columns_of_every_type():
    """a table with a column of every type: written by parameters, read in text and binary, described by type numbers"""
    kinds = list(VALUES)
    with connect() as connection:
        fresh(connection, "psycopg_types", ", ".join(["id int"] + [f"c{n} {kind}" for n, kind in enumerate(kinds)]))
        rows = [[n] + [VALUES[kind][n % len(VALUES[kind])] for kind in kinds] for n in range(6)] + [[6] + [None] * len(kinds)]
        for row in rows:
            connection.execute(f"INSERT INTO psycopg_types VALUES ({', '.join(['%s'] * len(row))})", row)
        for binary in [False, True]:
            cursor = connection.execute("SELECT * FROM psycopg_types ORDER BY id", binary=binary)
            equal([column.type_code for column in cursor.description],
                  [23, 16, 21, 23, 20, 700, 701, 1700, 1700, 25, 1043, 17, 1082, 1083, 1114, 1184])
            for got, expected in zip(cursor.fetchall(), rows, strict=True):
                for name, one, other in zip(["int"] + kinds, got, expected):
                    equal(one, other, f"row {expected[0]}, {name}, {'binary' if binary else 'text'}")
        cursor = connection.execute("SELECT c6, c9 FROM psycopg_types WHERE false")
        equal([(column.precision, column.scale) for column in cursor.description], [(20, 4), (None, None)])
        equal(cursor.fetchall(), [])
        for kind, number in [("date", 10), ("text", 8), ("bytea", 10), ("numeric(20,4)", 6), ("timestamptz", 13), ("bigint", 3)]:
            place = kinds.index(kind)
            found = connection.execute(f"SELECT id FROM psycopg_types WHERE c{place} = %s ORDER BY id", [rows[0][place + 1]]).fetchall()
            holds((0,) in found, f"a row is found by its {kind}")
        connection.execute("DROP TABLE psycopg_types")


@program.check
def arrays():
    """arrays as parameters (= ANY) and as results, in text and binary"""
    with connect() as connection:
        for binary in [False, True]:
            for kind, value in [
                ("int[]", [1, None, -3]), ("bigint[]", [2**40]), ("text[]", ["a", None, 'q"uo,te', "", "NULL", "back\\slash {}"]),
                ("double precision[]", [0.5, -1.0]), ("boolean[]", [True, False]), ("date[]", [datetime.date(1969, 1, 1)]), ("int[]", []),
            ]:
                got = connection.execute(f"SELECT CAST(%s AS {kind})", [value], binary=binary).fetchone()[0]
                equal(got, value, f"{kind} in {'binary' if binary else 'text'}")
            query = "SELECT x FROM generate_series(1, 9) AS g(x) WHERE x = ANY(%s) ORDER BY x"
            equal(connection.execute(query, [[7, 3, 99]], binary=binary).fetchall(), [(3,), (7,)])
            equal(connection.execute("SELECT ARRAY[ARRAY[1, 2], ARRAY[3, 4]]", binary=binary).fetchone()[0], [[1, 2], [3, 4]])


@program.check
def untyped_parameters():
    """parameters whose type only the statement tells: comparisons, arithmetic, LIMIT and OFFSET, IN, BETWEEN, LIKE, INSERT"""
    with connect() as connection:
        fresh(connection, "psycopg_untyped", "id int, name text, day date, price numeric(10,2)")
        connection.execute("INSERT INTO psycopg_untyped VALUES (%s, %s, %s, %s), (%s, %s, %s, %s)",
                           ["1", "one", "2024-01-01", "1.50", "2", "two", "2024-01-02", "2.50"])
        run = lambda query, *values: connection.execute(query, values).fetchall()
        equal(run("SELECT id FROM psycopg_untyped WHERE day = %s", "2024-01-02"), [(2,)])
        equal(run("SELECT id FROM psycopg_untyped WHERE price > %s AND id < %s", "2", "3"), [(2,)])
        equal(run("SELECT id FROM psycopg_untyped WHERE id IN (%s, %s) ORDER BY id LIMIT %s OFFSET %s", 1, 2, 1, 1), [(2,)])
        equal(run("SELECT id FROM psycopg_untyped WHERE day BETWEEN %s AND %s AND name LIKE %s", "2024-01-01", "2024-12-31", "t%"), [(2,)])
        equal(run("SELECT id + %s FROM psycopg_untyped WHERE name = %s", 10, "one"), [(11,)])
        equal(run("SELECT coalesce(%s, name) FROM psycopg_untyped WHERE id = 1", None), [("one",)])
        equal(run("SELECT CASE WHEN id = %s THEN %s ELSE %s END FROM psycopg_untyped ORDER BY id", 1, "first", "other"), [("first",), ("other",)])
        equal(run("SELECT %s || name FROM psycopg_untyped WHERE id = 1", "number "), [("number one",)])
        equal(run("SELECT %s", "alone"), [("alone",)])
        equal(run("SELECT CAST(%s AS text) IS NULL", None), [(True,)])
        equal(run("SELECT count(*) FROM psycopg_untyped WHERE price * %s > %s", decimal.Decimal("2.0"), 4), [(1,)])
        equal(run("SELECT id FROM psycopg_untyped WHERE day > CAST(%s AS date) - %s", "2024-01-03", 2), [(2,)])
        connection.execute("DROP TABLE psycopg_untyped")


@program.check
def prepared():
    """prepared statements: by request, by themselves after five runs, more than are kept, with changing types"""
    with connect(prepare_threshold=2) as connection:
        connection.prepared_max = 3
        for round in range(4):
            for width in range(6):
                query = "SELECT " + " + ".join(["CAST(%s AS bigint)"] * (width + 1))
                equal(connection.execute(query, list(range(width + 1))).fetchone()[0], sum(range(width + 1)))
        equal(connection.execute("SELECT %s + 1", [1], prepare=True).fetchone(), (2,))
        equal(connection.execute("SELECT %s + 1", [2**40], prepare=True).fetchone(), (2**40 + 1,))
        equal(connection.execute("SELECT %s + 1", [decimal.Decimal("0.5")], prepare=True).fetchone(), (decimal.Decimal("1.5"),))
        names = connection.execute("SELECT name, statement FROM pg_prepared_statements").fetchall()
        holds(0 < len(names) <= 3, f"pg_prepared_statements lists what is kept: {names}")
        connection.execute("DEALLOCATE ALL")
        equal(connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone(), (0,))


@program.check
def prepared_by_hand():
    """PQprepare, PQdescribePrepared, PQexecPrepared, PQdescribePortal; PREPARE and EXECUTE as statements"""
    with connect() as connection:
        low = connection.pgconn
        result = low.prepare(b"one", b"SELECT CAST($1 + 1 AS int) AS n, $2 || 'x' AS t", [23, 0])
        equal(result.status, pq.ExecStatus.COMMAND_OK, result.error_message)
        described = low.describe_prepared(b"one")
        equal(described.status, pq.ExecStatus.COMMAND_OK, described.error_message)
        equal([described.param_type(n) for n in range(described.nparams)], [23, 25])
        equal([(described.fname(n), described.ftype(n)) for n in range(described.nfields)], [(b"n", 23), (b"t", 25)])
        result = low.exec_prepared(b"one", [b"41", b"a"])
        equal([result.get_value(0, 0), result.get_value(0, 1)], [b"42", b"ax"], result.error_message)
        result = low.exec_prepared(b"one", [b"\0\0\0\x29", None], param_formats=[1, 0], result_format=1)
        equal([result.get_value(0, 0), result.get_value(0, 1)], [b"\0\0\0\x2a", None], result.error_message)
        result = low.exec_prepared(b"nosuch", [])
        equal(result.error_field(pq.DiagnosticField.SQLSTATE), b"26000")
        result = low.prepare(b"one", b"SELECT 1")
        equal(result.error_field(pq.DiagnosticField.SQLSTATE), b"42P05")
        connection.execute("PREPARE two (int, text) AS SELECT $1 * 2, upper($2)")
        equal(connection.execute("EXECUTE two (21, 'x')").fetchone(), (42, "X"))
        connection.execute("DEALLOCATE two")
        equal(raises(errors.Error, lambda: connection.execute("EXECUTE two (1, 'x')")).sqlstate, "26000")


@program.check
def tags():
    """what a statement says it has done: tags and row counts"""
    with connect() as connection:
        fresh(connection, "psycopg_tags", "id int, name text")
        for statement, tag, rows in [
            ("INSERT INTO psycopg_tags VALUES (1, 'a'), (2, 'b'), (3, 'c')", "INSERT 0 3", 3),
            ("UPDATE psycopg_tags SET name = 'z' WHERE id > 1", "UPDATE 2", 2),
            ("DELETE FROM psycopg_tags WHERE id = 3", "DELETE 1", 1),
            ("SELECT * FROM psycopg_tags", "SELECT 2", 2),
            ("INSERT INTO psycopg_tags SELECT id + 10, name FROM psycopg_tags", "INSERT 0 2", 2),
            ("CREATE TABLE psycopg_tags2 AS SELECT * FROM psycopg_tags", "SELECT 4", 4),
            ("CREATE VIEW psycopg_tags3 AS SELECT id FROM psycopg_tags", "CREATE VIEW", -1),
            ("DROP VIEW psycopg_tags3", "DROP VIEW", -1),
            ("TRUNCATE psycopg_tags2", "TRUNCATE TABLE", -1),
            ("DROP TABLE psycopg_tags2", "DROP TABLE", -1),
            ("SET extra_float_digits = 1", "SET", -1),
            ("SHOW extra_float_digits", "SHOW", 1),
            ("BEGIN", "BEGIN", -1),
            ("SAVEPOINT s", "SAVEPOINT", -1),
            ("ROLLBACK TO SAVEPOINT s", "ROLLBACK", -1),
            ("RELEASE SAVEPOINT s", "RELEASE", -1),
            ("COMMIT", "COMMIT", -1),
            ("START TRANSACTION", "START TRANSACTION", -1),
            ("ROLLBACK", "ROLLBACK", -1),
            ("EXPLAIN SELECT 1", "EXPLAIN", None),
            ("VALUES (1), (2)", "SELECT 2", 2),
            ("WITH w AS (SELECT 1 AS x) SELECT x FROM w", "SELECT 1", 1),
        ]:
            cursor = connection.execute(statement)
            equal(cursor.statusmessage, tag, statement)
            if rows is not None:
                equal(cursor.rowcount, rows, statement)
        connection.execute("DROP TABLE psycopg_tags")
        equal(connection.execute("").statusmessage, None)
        equal(connection.pgconn.exec_(b" ; ").status, pq.ExecStatus.EMPTY_QUERY)
        equal(connection.pgconn.exec_params(b"", None).status, pq.ExecStatus.EMPTY_QUERY)


@program.check
def many_statements():
    """several statements in one simple query: all results, one transaction, stop at the first error"""
    with connect() as connection:
        cursor = connection.execute("SELECT 1 AS a; SELECT 'two' AS b, 3 AS c; ; SELECT 4 WHERE false")
        equal(cursor.fetchall(), [(1,)])
        holds(cursor.nextset(), "a second result")
        equal(cursor.fetchall(), [("two", 3)])
        equal([column.name for column in cursor.description], ["b", "c"])
        holds(cursor.nextset(), "a third result")
        equal(cursor.fetchall(), [])
        equal(cursor.nextset(), None)
        fresh(connection, "psycopg_many", "id int")
        error = raises(errors.Error, lambda: connection.execute("INSERT INTO psycopg_many VALUES (1); SELECT 1 / 0; INSERT INTO psycopg_many VALUES (2)"))
        equal(error.sqlstate, "22012")
        equal(connection.execute("SELECT count(*) FROM psycopg_many").fetchone(), (0,))
        raises(errors.Error, lambda: connection.execute(
            "BEGIN; INSERT INTO psycopg_many VALUES (3); COMMIT; INSERT INTO psycopg_many VALUES (4); SELECT 1 / 0"))
        equal(connection.execute("SELECT id FROM psycopg_many").fetchall(), [(3,)])
        error = raises(errors.Error, lambda: connection.execute("SELECT 1; SELECT 2", prepare=True))
        equal(error.sqlstate, "42601")
        connection.execute("DROP TABLE psycopg_many")


@program.check
def batches():
    """executemany: inserts of parameters, returning results, an error in the middle"""
    with connect() as connection:
        fresh(connection, "psycopg_batch", "id int, name text")
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO psycopg_batch VALUES (%s, %s)", [(n, f"name {n}") for n in range(200)])
            equal(cursor.rowcount, 200)
            cursor.executemany("SELECT name FROM psycopg_batch WHERE id = %s", [(5,), (7,)], returning=True)
            equal(cursor.fetchall(), [("name 5",)])
            cursor.nextset()
            equal(cursor.fetchall(), [("name 7",)])
        with connection.cursor() as cursor:
            error = raises(errors.Error, lambda: cursor.executemany("INSERT INTO psycopg_batch SELECT 1000 / %s, 'x'", [(1,), (0,), (2,)]))
            equal(error.sqlstate, "22012")
        holds(connection.info.transaction_status == pq.TransactionStatus.IDLE, "no transaction stays open")
        connection.execute("DROP TABLE psycopg_batch")


@program.check
def returned_rows():
    """RETURNING: one row, parameters on both sides, executemany with results, rows in their order"""
    with connect() as connection:
        fresh(connection, "psycopg_returned", "id int, name text DEFAULT 'none', made timestamptz DEFAULT now()")
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO psycopg_returned (id) VALUES (%s) RETURNING id, name, made", (1,))
            row = cursor.fetchone()
            equal(row[:2], (1, "none"))
            equal((cursor.rowcount, cursor.statusmessage), (1, "INSERT 0 1"))
            equal([column.name for column in cursor.description], ["id", "name", "made"])
            equal(cursor.execute("SELECT made FROM psycopg_returned").fetchone()[0], row[2])
            cursor.executemany("INSERT INTO psycopg_returned (id) VALUES (%s) RETURNING id * 10", [(7,), (5,), (6,)], returning=True)
            found = [cursor.fetchone()[0]]
            while cursor.nextset():
                found.append(cursor.fetchone()[0])
            equal(found, [70, 50, 60])
            changed = cursor.execute("UPDATE psycopg_returned SET name = %s WHERE id > %s RETURNING id + %s, name", ("x", 6, 1)).fetchall()
            equal((changed, cursor.statusmessage), ([(8, "x")], "UPDATE 1"))
            gone = cursor.execute("DELETE FROM psycopg_returned WHERE id >= %s RETURNING *", (6,)).fetchall()
            equal((sorted(row[0] for row in gone), cursor.statusmessage), ([6, 7], "DELETE 2"))
        connection.execute("DROP TABLE psycopg_returned")


@program.check
def pipelines():
    """pipeline mode: many statements before the first answer, errors that end what is behind them, sync points"""
    with connect() as connection:
        fresh(connection, "psycopg_pipeline", "id int")
        with connection.pipeline() as pipeline:
            cursors = [connection.execute("SELECT %s * 2", [n]) for n in range(100)]
            inserted = connection.execute("INSERT INTO psycopg_pipeline VALUES (1)")
            pipeline.sync()
            counted = connection.execute("SELECT count(*) FROM psycopg_pipeline")
        equal([cursor.fetchone()[0] for cursor in cursors], [n * 2 for n in range(100)])
        equal(inserted.rowcount, 1)
        equal(counted.fetchone(), (1,))
        with connection.pipeline() as pipeline:
            connection.execute("INSERT INTO psycopg_pipeline VALUES (2)")
            connection.execute("SELECT 1 / CAST(%s AS int)", [0])
            connection.execute("SELECT 1")
            error = raises(errors.Error, pipeline.sync)
            equal(error.sqlstate, "22012")
            again = connection.execute("SELECT 5")
            equal(again.fetchone(), (5,))
        # What stood before the error in the same implicit transaction is gone with it.
        equal(connection.execute("SELECT id FROM psycopg_pipeline ORDER BY id").fetchall(), [(1,)])
        with connection.pipeline(), connection.transaction():
            connection.execute("INSERT INTO psycopg_pipeline VALUES (3)")
            connection.execute("INSERT INTO psycopg_pipeline VALUES (4)")
        equal(connection.execute("SELECT count(*) FROM psycopg_pipeline").fetchone(), (3,))
        connection.execute("DROP TABLE psycopg_pipeline")


@program.check
def transactions():
    """transactions: commit, rollback, savepoints, an error leaves it failed (25P02), statuses"""
    with connect(autocommit=False) as connection, connect() as other:
        status = lambda: connection.info.transaction_status
        fresh(connection, "psycopg_transaction", "id int")
        equal(status(), pq.TransactionStatus.INTRANS)
        connection.commit()
        equal(status(), pq.TransactionStatus.IDLE)
        count = lambda where: where.execute("SELECT count(*) FROM psycopg_transaction").fetchone()[0]
        connection.execute("INSERT INTO psycopg_transaction VALUES (1)")
        equal((count(connection), count(other)), (1, 0), "only the transaction sees its row")
        connection.commit()
        equal(count(other), 1, "others see what is committed")
        connection.execute("DELETE FROM psycopg_transaction")
        connection.rollback()
        equal(count(connection), 1, "a rollback brings rows back")
        error = raises(errors.Error, lambda: connection.execute("SELECT * FROM psycopg_nosuch"))
        equal(error.sqlstate, "42P01")
        equal(status(), pq.TransactionStatus.INERROR)
        equal(raises(errors.Error, lambda: connection.execute("SELECT 1")).sqlstate, "25P02")
        connection.rollback()
        with connection.transaction():
            connection.execute("INSERT INTO psycopg_transaction VALUES (2)")
            try:
                with connection.transaction():
                    connection.execute("INSERT INTO psycopg_transaction VALUES (3)")
                    connection.execute("SELECT 1 / 0")
            except errors.DivisionByZero:
                pass
            with connection.transaction():
                connection.execute("INSERT INTO psycopg_transaction VALUES (4)")
        equal(other.execute("SELECT id FROM psycopg_transaction ORDER BY id").fetchall(), [(1,), (2,), (4,)])
        # COMMIT of a failed transaction is a rollback, and says so.
        connection.execute("INSERT INTO psycopg_transaction VALUES (5)")
        raises(errors.Error, lambda: connection.execute("nonsense"))
        equal(connection.pgconn.exec_(b"COMMIT").command_status, b"ROLLBACK")
        equal(count(other), 3)
        connection.execute("DROP TABLE psycopg_transaction")
        connection.commit()


@program.check
def kinds_of_transactions():
    """isolation levels, READ ONLY (25006), DEFERRABLE, and warnings of COMMIT and BEGIN out of place"""
    with connect(autocommit=False) as connection:
        for level in psycopg.IsolationLevel:
            connection.isolation_level = level
            connection.execute("SELECT 1")
            connection.commit()
        connection.isolation_level = None
        fresh(connection, "psycopg_read_only", "id int")
        connection.commit()
        connection.read_only = True
        equal(connection.execute("SHOW transaction_read_only").fetchone(), ("on",))
        equal(raises(errors.Error, lambda: connection.execute("INSERT INTO psycopg_read_only VALUES (1)")).sqlstate, "25006")
        connection.rollback()
        connection.read_only = False
        connection.deferrable = True
        connection.execute("DROP TABLE psycopg_read_only")
        connection.commit()
        connection.autocommit = True
        notices = []
        connection.add_notice_handler(lambda notice: notices.append((notice.severity_nonlocalized, notice.sqlstate)))
        connection.execute("COMMIT")
        connection.execute("BEGIN; BEGIN; ROLLBACK")
        equal(notices, [("WARNING", "25P01"), ("WARNING", "25001")])
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")
        equal(connection.execute("SHOW transaction_isolation").fetchone(), ("read committed",))


@program.check
def failures():
    """errors with their SQLSTATE, position, hint and class, after each of which the session goes on"""
    with connect() as connection:
        fresh(connection, "psycopg_errors", "id int, amount numeric(5,2), day date")
        for statement, state, position in [
            ("SELEC 1", "42601", "1"),
            ("SELECT * FROM psycopg_nosuch", "42P01", "15"),
            ("SELECT id, nosuch FROM psycopg_errors", "42703", "12"),
            ("SELECT nosuch(1)", "42883", "8"),
            ("SELECT 1 / 0", "22012", None),
            ("SELECT CAST('x' AS int)", "22P02", None),
            ("SELECT CAST('2024-02-30' AS date)", "22008", None),
            ("SELECT CAST(40000 AS smallint)", "22003", None),
            ("INSERT INTO psycopg_errors (amount) VALUES (123456)", "22003", None),
            ("CREATE TABLE psycopg_errors (id int)", "42P07", None),
            ("DROP TABLE psycopg_nosuch", "42P01", None),
            ("SELECT id FROM psycopg_errors GROUP BY day", "42803", None),
            ("SELECT * FROM psycopg_errors a, psycopg_errors b WHERE id = 1", "42702", None),
            ("SELECT (SELECT x FROM generate_series(1, 2) AS g(x))", "21000", None),
            ("SELECT 'open", "42601", None),
            ("SET nosuchparameter = 1", "42704", None),
            ("INSERT INTO psycopg_errors VALUES (1, 2, '2024-01-01', 4)", "42601", None),
        ]:
            error = raises(errors.Error, lambda: connection.execute(statement), statement)
            equal(error.sqlstate, state, f"{statement}: {error}")
            if position:
                equal(error.diag.statement_position, position, statement)
            equal(error.diag.severity_nonlocalized, "ERROR", statement)
            holds(error.diag.message_primary, f"{statement}: a message")
            equal(connection.execute("SELECT 1").fetchone(), (1,))
        error = raises(errors.UndefinedFunction, lambda: connection.execute("SELECT psycopg_nosuch(1)"))
        holds(error.diag.message_hint, "a hint for a function that is not there")
        error = raises(errors.UndefinedColumn, lambda: connection.execute("SELECT amoun FROM psycopg_errors"))
        holds("amount" in (error.diag.message_hint or ""), f"a hint names the column that is meant: {error.diag.message_hint}")
        error = raises(errors.UndefinedTable, lambda: connection.execute("SELECT 'ü世', %s FROM nosuch", ["x"]))
        equal(error.diag.statement_position, "22", "positions count characters, not bytes")
        error = raises(errors.InvalidTextRepresentation, lambda: connection.execute("SELECT CAST(CAST(%s AS text) AS int)", ["x"], prepare=True))
        notices = []
        connection.add_notice_handler(lambda notice: notices.append((notice.severity_nonlocalized, notice.sqlstate)))
        connection.execute("DROP TABLE IF EXISTS psycopg_nosuch")
        equal(notices, [("NOTICE", "00000")])
        connection.execute("DROP TABLE psycopg_errors")


@program.check
def server_side_cursors():
    """server-side cursors: iteration in pieces, FETCH, MOVE, scroll, binary, WITH HOLD, names that need quotes"""
    with connect(autocommit=False) as connection:
        query = "SELECT x, x * x FROM generate_series(1, 1000) AS g(x) ORDER BY x"
        with connection.cursor(name='a "named" one') as cursor:
            cursor.itersize = 300
            cursor.execute(query)
            equal([column.name for column in cursor.description][0], "x")
            equal(sum(row[0] for row in cursor), 500500)
        with connection.cursor(name="pieces", binary=True) as cursor:
            cursor.execute(query + " LIMIT %s", [10])
            equal(cursor.fetchone(), (1, 1))
            equal(cursor.fetchmany(3), [(2, 4), (3, 9), (4, 16)])
            cursor.scroll(2)
            equal(cursor.fetchall(), [(n, n * n) for n in range(7, 11)])
            equal(cursor.fetchone(), None)
        connection.commit()
        with connection.cursor(name="kept", withhold=True) as cursor:
            cursor.execute("SELECT x FROM generate_series(1, 5) AS g(x) ORDER BY x")
            equal(cursor.fetchone(), (1,))
            connection.commit()
            equal(cursor.fetchall(), [(2,), (3,), (4,), (5,)])
        connection.rollback()
        with connection.cursor(name="back", scrollable=True) as cursor:
            cursor.execute(query)
            equal(cursor.fetchmany(2), [(1, 1), (2, 4)])
            cursor.scroll(-2)
            equal(cursor.fetchone(), (1, 1))
            cursor.scroll(998, mode="absolute")
            equal(cursor.fetchall(), [(999, 998001), (1000, 1000000)])
            cursor.scroll(-2)
            equal(cursor.fetchone(), (1000, 1000000))
            result = connection.execute("FETCH BACKWARD 2 FROM back")
            equal(result.fetchall(), [(999, 998001), (998, 996004)])
        connection.rollback()
        run = connection.execute
        run("DECLARE c NO SCROLL CURSOR FOR SELECT x FROM generate_series(1, 10) AS g(x) ORDER BY x")
        equal(run("FETCH NEXT FROM c").fetchall(), [(1,)])
        equal(run("FETCH 2 IN c").fetchall(), [(2,), (3,)])
        equal(run("MOVE FORWARD 3 IN c").statusmessage, "MOVE 3")
        equal(run("FETCH FORWARD 2 FROM c").fetchall(), [(7,), (8,)])
        equal(run("SELECT name FROM pg_cursors").fetchall(), [("c",)])
        equal(run("FETCH ALL FROM c").statusmessage, "FETCH 2")
        equal(run("CLOSE c").statusmessage, "CLOSE CURSOR")
        equal(raises(errors.Error, lambda: run("FETCH c")).sqlstate, "34000")
        connection.rollback()
        connection.autocommit = True
        equal(raises(errors.Error, lambda: run("DECLARE c CURSOR FOR SELECT 1")).sqlstate, "25P01")


@program.check
def streams():
    """stream(): rows one by one while the statement runs, and an early end"""
    with connect() as connection:
        with connection.cursor() as cursor:
            total = 0
            for row in cursor.stream("SELECT x FROM generate_series(1, 20000) AS g(x)", binary=True):
                total += row[0]
            equal(total, 200010000)
        with connection.cursor() as cursor:
            for row in cursor.stream("SELECT x FROM generate_series(1, 50000) AS g(x)"):
                if row[0] == 10:
                    break
        equal(connection.execute("SELECT 1").fetchone(), (1,))


@program.check
def copying():
    """COPY in and out: text, CSV and binary, from rows and blocks, of a query, NULL and odd characters"""
    rows = [
        (1, "plain", decimal.Decimal("1.50"), datetime.date(1969, 7, 20), True),
        (2, "tab\tnew\nline\\ \"quoted\", 'single'", decimal.Decimal("-0.01"), datetime.date(2024, 2, 29), False),
        (3, "", None, None, None),
        (4, None, decimal.Decimal("99999999.99"), datetime.date(1, 1, 1), True),
        (5, "世界 🎉 \\N NULL \\.", decimal.Decimal("0.00"), datetime.date(9999, 12, 31), None),
    ]
    kinds = ["int4", "text", "numeric", "date", "bool"]
    with connect() as connection, connection.cursor() as cursor:
        fresh(connection, "psycopg_copy", "id int, name text, price numeric(10,2), day date, ok boolean")
        for options in ["", "(FORMAT csv)", "(FORMAT binary)"]:
            connection.execute("TRUNCATE psycopg_copy")
            if "csv" in options:
                with cursor.copy("COPY psycopg_copy FROM STDIN (FORMAT csv, HEADER, NULL 'nothing')") as copy:
                    copy.write('id,name,price,day,ok\n1,plain,1.50,1969-07-20,t\n')
                    copy.write('2,"tab\tnew\nline\\ ""quoted"", \'single\'",-0.01,2024-02-29,f\n3,"",noth')
                    copy.write('ing,nothing,nothing\n4,nothing,99999999.99,0001-01-01,t\n')
                    copy.write('5,世界 🎉 \\N NULL \\.,0.00,9999-12-31,nothing\n')
            else:
                with cursor.copy(f"COPY psycopg_copy (id, name, price, day, ok) FROM STDIN {options}") as copy:
                    if "binary" in options:
                        copy.set_types(kinds)
                    for row in rows:
                        copy.write_row(row)
            equal(cursor.rowcount, 5, options)
            equal(cursor.statusmessage, "COPY 5", options)
            equal(connection.execute("SELECT * FROM psycopg_copy ORDER BY id").fetchall(), rows, f"rows written by COPY {options}")
        for options in ["", "(FORMAT binary)"]:
            with cursor.copy(f"COPY psycopg_copy TO STDOUT {options}") as copy:
                copy.set_types(kinds)
                equal(sorted(copy.rows()), rows, f"rows read by COPY {options}")
        with cursor.copy("COPY (SELECT id, name FROM psycopg_copy WHERE id < 5 ORDER BY id) TO STDOUT WITH (FORMAT csv, HEADER true)") as copy:
            text = b"".join(bytes(block) for block in copy).decode()
        equal(text, 'id,name\n1,plain\n2,"tab\tnew\nline\\ ""quoted"", \'single\'"\n3,""\n4,\n')
        with cursor.copy("COPY psycopg_copy (id) TO STDOUT (FORMAT text)") as copy:
            equal(sorted(bytes(block) for block in copy), [b"1\n", b"2\n", b"3\n", b"4\n", b"5\n"])
        connection.execute("DROP TABLE psycopg_copy")


@program.check
def copies_that_fail():
    """COPY that fails: a wrong value (22P02), too many columns (22P04), a client that gives up (57014), no table (42P01)"""
    with connect() as connection, connection.cursor() as cursor:
        fresh(connection, "psycopg_copy_bad", "id int, name text")

        def copy(*blocks):
            with cursor.copy("COPY psycopg_copy_bad FROM STDIN") as copy:
                for block in blocks:
                    if isinstance(block, Exception):
                        raise block
                    copy.write(block)

        error = raises(errors.Error, lambda: copy("1\ta\n", "x\tb\n"))
        equal(error.sqlstate, "22P02")
        holds("line 2" in (error.diag.context or ""), f"the line that is wrong is named: {error.diag.context}")
        equal(raises(errors.Error, lambda: copy("1\ta\tmore\n")).sqlstate, "22P04")
        equal(raises(errors.Error, lambda: copy("1\n")).sqlstate, "22P04")
        raises(KeyError, lambda: copy("1\ta\n", KeyError("the client gives up")))
        equal(raises(errors.Error, lambda: cursor.copy("COPY psycopg_nosuch FROM STDIN").__enter__()).sqlstate, "42P01")
        equal(raises(errors.Error, lambda: cursor.copy("COPY psycopg_nosuch TO STDOUT").__enter__()).sqlstate, "42P01")
        equal(connection.execute("SELECT count(*) FROM psycopg_copy_bad").fetchone(), (0,))
        equal(connection.info.transaction_status, pq.TransactionStatus.IDLE)
        connection.execute("DROP TABLE psycopg_copy_bad")


@program.check
def copying_much():
    """COPY of 200 000 rows in and out"""
    with connect() as connection, connection.cursor() as cursor:
        fresh(connection, "psycopg_copy_much", "id bigint, name text")
        with cursor.copy("COPY psycopg_copy_much FROM STDIN") as copy:
            for start in range(0, 200_000, 1000):
                copy.write("".join(f"{n}\tname of {n}\n" for n in range(start, start + 1000)))
        equal(cursor.rowcount, 200_000)
        equal(connection.execute("SELECT count(*), CAST(sum(id) AS bigint) FROM psycopg_copy_much").fetchone(), (200_000, 19999900000))
        size = 0
        with cursor.copy("COPY psycopg_copy_much TO STDOUT (FORMAT csv)") as copy:
            for block in copy:
                size += len(block)
        equal(size, sum(len(f"{n},name of {n}\n") for n in range(200_000)))
        connection.execute("DROP TABLE psycopg_copy_much")


def cancelled(connection, cancel):
    timer = threading.Timer(0.5, cancel)
    timer.start()
    started = time.monotonic()
    error = raises(errors.Error, lambda: connection.execute(LONG), "a statement that is cancelled")
    timer.join()
    equal(error.sqlstate, "57014", str(error))
    holds(time.monotonic() - started < 10, "a cancelled statement ends within 10 s")


@program.check
def cancelling():
    """cancel() and cancel_safe() end a statement with 57014, also in a transaction and in COPY; the session goes on"""
    with connect() as connection:
        cancelled(connection, connection.cancel)
        equal(connection.execute("SELECT 1").fetchone(), (1,))
        cancelled(connection, lambda: connection.cancel_safe(timeout=10))
        equal(connection.execute("SELECT 1").fetchone(), (1,))
        connection.execute("BEGIN")
        cancelled(connection, connection.cancel)
        equal(connection.info.transaction_status, pq.TransactionStatus.INERROR)
        connection.execute("ROLLBACK")
        # A request that comes when nothing runs changes nothing.
        connection.cancel()
        time.sleep(0.2)
        equal(connection.execute("SELECT 1").fetchone(), (1,))


@program.check
def time_limits():
    """statement_timeout ends a statement with 57014; SET LOCAL, RESET; limits that are off"""
    with connect() as connection:
        connection.execute("SET statement_timeout = '300ms'")
        equal(connection.execute("SHOW statement_timeout").fetchone(), ("300ms",))
        started = time.monotonic()
        error = raises(errors.QueryCanceled, lambda: connection.execute(LONG))
        holds("timeout" in str(error), f"the error says why: {error}")
        holds(time.monotonic() - started < 10, "ends within 10 s")
        connection.execute("SET statement_timeout = 0")
        equal(connection.execute("SHOW statement_timeout").fetchone(), ("0",))
        connection.execute("BEGIN; SET LOCAL statement_timeout = 5000")
        equal(connection.execute("SHOW statement_timeout").fetchone(), ("5s",))
        connection.execute("COMMIT")
        equal(connection.execute("SHOW statement_timeout").fetchone(), ("0",))


@program.check
def settings():
    """SET, SHOW, RESET, set_config and current_setting of usual parameters; what a rollback undoes; DISCARD ALL"""
    with connect() as connection:
        run = lambda statement: connection.execute(statement)
        show = lambda name: run(f"SHOW {name}").fetchone()[0]
        for name, value, shown in [
            ("client_encoding", "'UTF8'", "UTF8"), ("client_min_messages", "warning", "warning"), ("datestyle", "'ISO, DMY'", "ISO, DMY"),
            ("intervalstyle", "postgres", "postgres"), ("extra_float_digits", "3", "3"), ("bytea_output", "'hex'", "hex"),
            ("standard_conforming_strings", "on", "on"), ("lock_timeout", "0", "0"), ("idle_in_transaction_session_timeout", "0", "0"),
            ("search_path", "public", "public"), ("application_name", "'x'", "x"), ("timezone", "'UTC'", "UTC"),
            ("default_transaction_read_only", "off", "off"), ("work_mem", "'8MB'", "8MB"), ("row_security", "off", "off"),
            ("default_transaction_isolation", "'read committed'", "read committed"), ("jit", "off", "off"),
            ("synchronous_commit", "off", "off"), ("escape_string_warning", "off", "off"),
        ]:
            equal(run(f"SET {name} TO {value}").statusmessage, "SET")
            equal(show(name), shown, name)
        for name in ["server_version", "server_version_num", "max_identifier_length", "server_encoding", "is_superuser", "lc_collate",
                     "lc_ctype", "in_hot_standby", "transaction_isolation", "max_connections", "block_size"]:
            holds(show(name) != "", f"SHOW {name}")
        equal(run("SET TIME ZONE 'Asia/Tokyo'").statusmessage, "SET")
        equal(show("TIME ZONE"), "Asia/Tokyo")
        equal(run("SELECT set_config('application_name', 'by function', false), current_setting('application_name')").fetchone()[0], "by function")
        equal(run("SELECT current_setting('nosuch.parameter', true)").fetchone(), (None,))
        run("SET application_name = 'kept'")
        run("BEGIN; SET application_name = 'undone'; ROLLBACK")
        equal(show("application_name"), "kept")
        run("RESET application_name")
        equal(show("application_name"), "")
        equal(run("RESET ALL").statusmessage, "RESET")
        equal(run("DISCARD ALL").statusmessage, "DISCARD ALL")
        names = [column.name for column in run("SHOW ALL").description]
        equal(names, ["name", "setting", "description"])
        equal(run("SELECT setting FROM pg_settings WHERE name = 'server_encoding'").fetchone(), ("UTF8",))


@program.check
def zones():
    """timestamps with time zone follow the session's zone, in text and binary"""
    with connect() as connection:
        for zone, hours in [("UTC", 0), ("Asia/Tokyo", 9), ("America/New_York", -5), ("Europe/Vienna", 1)]:
            connection.execute(sql.SQL("SET TimeZone TO {}").format(sql.Literal(zone)))
            for binary in [False, True]:
                got = connection.execute("SELECT CAST('2024-01-15 12:00:00+00' AS timestamptz)", binary=binary).fetchone()[0]
                equal(got, datetime.datetime(2024, 1, 15, 12, tzinfo=UTC))
                equal(got.utcoffset(), datetime.timedelta(hours=hours), f"{zone}, {'binary' if binary else 'text'}")
            equal(connection.execute("SELECT CAST(CAST('2024-01-15 12:00:00' AS timestamptz) AT TIME ZONE 'UTC' AS timestamp)").fetchone()[0],
                  datetime.datetime(2024, 1, 15, 12) - datetime.timedelta(hours=hours))


@program.check
def many_parameters():
    """10 000 and 65 535 parameters in one statement; one more is an error of the client"""
    with connect() as connection:
        fresh(connection, "psycopg_parameters", "a int, b int")
        values = list(range(10_000))
        cursor = connection.execute("INSERT INTO psycopg_parameters VALUES " + ", ".join(["(%s, %s)"] * 5000), values)
        equal(cursor.rowcount, 5000)
        equal(connection.execute("SELECT CAST(sum(a) + sum(b) AS bigint) FROM psycopg_parameters").fetchone(), (sum(values),))
        query = "SELECT count(*) FROM psycopg_parameters WHERE a IN (" + ", ".join(["%s"] * 65_535) + ")"
        equal(connection.execute(query, list(range(65_535))).fetchone(), (5000,))
        raises(psycopg.Error, lambda: connection.execute("SELECT " + ", ".join(["%s"] * 65_536), list(range(65_536))))
        equal(connection.execute("SELECT 1").fetchone(), (1,))
        connection.execute("DROP TABLE psycopg_parameters")


@program.check
def large_results():
    """a million rows in text and in binary, a megabyte in one value, 500 columns"""
    with connect() as connection:
        for binary in [False, True]:
            cursor = connection.execute("SELECT x, 'row ' || x AS name FROM generate_series(1, 1000000) AS g(x)", binary=binary)
            equal(cursor.rowcount, 1_000_000)
            equal(sum(row[0] for row in cursor.fetchall()), 500000500000)
        equal(len(connection.execute("SELECT repeat('ab', 1000000)").fetchone()[0]), 2_000_000)
        equal(len(connection.execute("SELECT %s", ["é" * 1_000_000]).fetchone()[0]), 1_000_000)
        equal(connection.execute("SELECT " + ", ".join(f"{n} AS c{n}" for n in range(500))).fetchone(), tuple(range(500)))


@program.check
def several_connections():
    """a pool of connections used by threads; closing while a statement runs"""
    with psycopg_pool.ConnectionPool(
        f"host={program.host} port={program.port} user={program.user} dbname={program.database}", min_size=2, max_size=4, timeout=20,
        check=psycopg_pool.ConnectionPool.check_connection,
    ) as pool:
        results = []

        def work(number):
            with pool.connection() as connection:
                results.append(connection.execute("SELECT %s * 10", [number]).fetchone()[0])

        threads = [threading.Thread(target=work, args=[number]) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        equal(sorted(results), [number * 10 for number in range(20)])


@program.check
def asynchronous():
    """asynchronous connections: statements at the same time, cancel of a task"""

    async def main():
        async def one(number):
            connection = await psycopg.AsyncConnection.connect(
                host=program.host, port=program.port, user=program.user, dbname=program.database, autocommit=True, row_factory=dict_row)
            async with connection:
                cursor = await connection.execute("SELECT %s AS n, %s AS t", [number, "ä"])
                return await cursor.fetchone()

        equal(await asyncio.gather(*[one(number) for number in range(5)]), [{"n": number, "t": "ä"} for number in range(5)])
        connection = await psycopg.AsyncConnection.connect(
            host=program.host, port=program.port, user=program.user, dbname=program.database, autocommit=True)
        async with connection:
            try:
                await asyncio.wait_for(connection.execute(LONG), 0.5)
                holds(False, "a statement over its time ends")
            except asyncio.TimeoutError:
                pass
            cursor = await connection.execute("SELECT 1")
            equal(await cursor.fetchone(), (1,))

    asyncio.run(main())


@program.check
def catalogs_and_documents():
    """JSON of rows and in aggregates; columns as drizzle-kit asks for them"""
    with connect() as connection:
        query = """SELECT json_agg(x ORDER BY x), jsonb_agg(x ORDER BY x DESC), json_agg(t ORDER BY x), json_agg(row_to_json(t) ORDER BY x), json_object_agg(y, x ORDER BY x), jsonb_object_agg(y, x ORDER BY x), json_agg(x) FILTER (WHERE x > 5) AS none FROM (SELECT 1 AS x, 'a' AS y UNION ALL SELECT 2, 'b') t"""
        pairs = [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]
        equal(connection.execute(query).fetchone(), ([1, 2], [2, 1], pairs, pairs, {"a": 1, "b": 2}, {"a": 1, "b": 2}, None))
        fresh(connection, "psycopg_documents", "id int NOT NULL, price numeric(12, 2), paid boolean NOT NULL DEFAULT false")
        query = """SELECT a.attrelid::regclass::text AS table_name, a.attname AS column_name, CASE WHEN NOT a.attisdropped THEN CASE WHEN a.attnotnull THEN 'NO' ELSE 'YES' END ELSE NULL END AS is_nullable, a.attndims AS array_dimensions, CASE WHEN a.atttypid = ANY ('{int,int8,int2}'::regtype[]) AND EXISTS ( SELECT FROM pg_attrdef ad WHERE ad.adrelid = a.attrelid AND ad.adnum = a.attnum AND pg_get_expr(ad.adbin, ad.adrelid) = 'nextval(''' || pg_get_serial_sequence(a.attrelid::regclass::text, a.attname)::regclass || '''::regclass)' ) THEN CASE a.atttypid WHEN 'int'::regtype THEN 'serial' WHEN 'int8'::regtype THEN 'bigserial' WHEN 'int2'::regtype THEN 'smallserial' END ELSE format_type(a.atttypid, a.atttypmod) END AS data_type, pg_get_serial_sequence('"public"."psycopg_documents"', a.attname)::regclass AS seq_name, c.column_default, c.data_type AS additional_dt, c.udt_name AS enum_name, c.is_generated, c.generation_expression, c.is_identity, c.identity_generation, c.identity_start, c.identity_increment, c.identity_maximum, c.identity_minimum, c.identity_cycle, enum_ns.nspname AS type_schema FROM pg_attribute a JOIN pg_class cls ON cls.oid = a.attrelid JOIN pg_namespace ns ON ns.oid = cls.relnamespace LEFT JOIN information_schema.columns c ON c.column_name = a.attname AND c.table_schema = ns.nspname AND c.table_name = cls.relname LEFT JOIN pg_type enum_t ON enum_t.oid = a.atttypid LEFT JOIN pg_namespace enum_ns ON enum_ns.oid = enum_t.typnamespace WHERE a.attnum > 0 AND NOT a.attisdropped AND cls.relkind IN ('r', 'v', 'm') AND ns.nspname = 'public' AND cls.relname = 'psycopg_documents' ORDER BY a.attnum"""
        left = (None, "NO", None, None, None, None, None, "NO", "pg_catalog")
        expected = [
            ("psycopg_documents", "id", "NO", 0, "integer", None, None, "integer", "int4", "NEVER", *left),
            ("psycopg_documents", "price", "YES", 0, "numeric(12,2)", None, None, "numeric", "numeric", "NEVER", *left),
            ("psycopg_documents", "paid", "NO", 0, "boolean", None, "false", "boolean", "bool", "NEVER", *left),
        ]
        equal(connection.execute(query).fetchall(), expected)
        connection.execute("DROP TABLE psycopg_documents")


@program.check
def what_a_warehouse_has_not():
    """primary keys, indexes and sequences: none are listed for a plain table"""
    with connect() as connection:
        fresh(connection, "psycopg_plain", "id int")
        for query in [
            "SELECT count(*) FROM pg_indexes WHERE tablename = 'psycopg_plain'",
            "SELECT count(*) FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid WHERE r.relname = 'psycopg_plain'",
            "SELECT count(*) FROM pg_trigger t JOIN pg_class r ON r.oid = t.tgrelid WHERE r.relname = 'psycopg_plain'",
            "SELECT count(*) FROM pg_sequences WHERE sequencename LIKE 'psycopg%'",
            "SELECT count(*) FROM information_schema.table_constraints WHERE table_name = 'psycopg_plain'",
        ]:
            equal(connection.execute(query).fetchone(), (0,), query)
        connection.execute("DROP TABLE psycopg_plain")


program.run()
