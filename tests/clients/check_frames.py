"""connectorx and polars: frames read and written. usage: check_frames.py HOST PORT USER [DATABASE]"""

import datetime
import decimal

import connectorx
import polars
import psycopg

from checks import Program, equal, raises

program = Program(f"connectorx {connectorx.__version__}, polars {polars.__version__}")
URL = program.url("postgresql")


def fill():
    with psycopg.connect(URL, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS frame_things")
        connection.execute("CREATE TABLE frame_things (id int NOT NULL, big bigint, name text, price numeric(10,2), weight float8, ok bool, day date, at timestamp, zoned timestamptz)")
        connection.execute("""INSERT INTO frame_things SELECT g, g * 1000000000000, 'name ' || g, g * 1.25, g / 2.0, g % 2 = 0, date '2024-01-31' + g, timestamp '2024-02-29 12:30' + g * interval '1 hour',
            timestamptz '2024-02-29 12:30+00' FROM generate_series(1, 100) AS g(g)""")
        connection.execute("INSERT INTO frame_things (id) VALUES (101)")


FIRST = {"id": 1, "big": 1000000000000, "name": "name 1", "weight": 0.5, "ok": False, "day": datetime.date(2024, 2, 1), "at": datetime.datetime(2024, 2, 29, 13, 30)}


@program.check
def protocols():
    """connectorx: every type over each of its protocols (binary, csv, cursor, simple), NULLs"""
    fill()
    for protocol in ["binary", "csv", "cursor", "simple"]:
        frame = connectorx.read_sql(URL, "SELECT * FROM frame_things", protocol=protocol, return_type="polars").sort("id")
        equal(frame.shape, (101, 9), protocol)
        equal({name: frame.row(0, named=True)[name] for name in FIRST}, FIRST, protocol)
        equal(float(frame["price"][1]), 2.5, protocol)
        equal(frame.row(100)[1:], (None,) * 8, protocol)


@program.check
def partitions():
    """connectorx: a query in partitions by a column, and several queries"""
    fill()
    frame = connectorx.read_sql(URL, "SELECT id, name FROM frame_things", partition_on="id", partition_num=4, return_type="polars")
    equal(sorted(frame["id"].to_list()), list(range(1, 102)))
    frame = connectorx.read_sql(URL, ["SELECT id FROM frame_things WHERE id < 3", "SELECT id FROM frame_things WHERE id > 99"], return_type="arrow")
    equal(sorted(frame["id"].to_pylist()), [1, 2, 100, 101])
    raises(RuntimeError, lambda: connectorx.read_sql(URL, "SELECT * FROM frame_nosuch", return_type="polars"))


@program.check
def reading():
    """polars: read_database_uri over connectorx, read_database over psycopg with parameters, in batches"""
    fill()
    frame = polars.read_database_uri("SELECT id, weight FROM frame_things WHERE weight > 10 ORDER BY id LIMIT 5", URL)
    equal(frame["id"].to_list(), [21, 22, 23, 24, 25])
    with psycopg.connect(URL) as connection:
        frame = polars.read_database("SELECT id, price, at FROM frame_things WHERE id = ANY(%s) ORDER BY id", connection, execute_options={"params": [[1, 2]]})
        equal(frame.rows(), [(1, decimal.Decimal("1.25"), datetime.datetime(2024, 2, 29, 13, 30)), (2, decimal.Decimal("2.50"), datetime.datetime(2024, 2, 29, 14, 30))])
        batches = list(polars.read_database("SELECT id FROM frame_things", connection, iter_batches=True, batch_size=40))
        equal(sum(len(batch) for batch in batches), 101)


@program.check
def writing():
    """polars: write_database over ADBC, a table made, appended to and replaced"""
    frame = polars.DataFrame({"a": [1, 2], "b": ["x", None], "c": [datetime.date(2024, 2, 29), None], "d": [0.5, 1.5]})
    for mode, expected in [("replace", 2), ("append", 4), ("replace", 2)]:
        frame.write_database("frame_written", URL, engine="adbc", if_table_exists=mode)
        equal(polars.read_database_uri("SELECT count(*)::int AS n FROM frame_written", URL).item(), expected, mode)
    equal(polars.read_database_uri("SELECT * FROM frame_written ORDER BY a", URL, engine="adbc").rows(), frame.rows())


program.run()
