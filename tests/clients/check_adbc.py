"""The ADBC driver of PostgreSQL: results and writes as Arrow, over binary COPY. usage: check_adbc.py HOST PORT USER [DATABASE]"""

import datetime
import decimal
import math
import threading
import time

import adbc_driver_postgresql
import adbc_driver_postgresql.dbapi
import pyarrow
import pyarrow.compute

from checks import Program, equal, holds, raises

program = Program(f"adbc-driver-postgresql {adbc_driver_postgresql.__version__}")
COPY = adbc_driver_postgresql.StatementOptions.USE_COPY.value
LONG = "SELECT count(*) FROM generate_series(1, 200000) AS a(x), generate_series(1, 200000) AS b(y) WHERE a.x <> b.y + 7"


def connect(**options):
    return adbc_driver_postgresql.dbapi.connect(program.url("postgresql"), **options)


def fetch(cursor, query, parameters=None, copy=True):
    cursor.adbc_statement.set_options(**{COPY: "true" if copy else "false"})
    cursor.execute(query, parameters)
    return cursor.fetch_arrow_table()


@program.check
def connecting():
    """connect: the driver reads all types of pg_catalog; versions; autocommit"""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1 AS n, 'ü' AS t")
        equal(cursor.fetchone(), (1, "ü"))
        info = connection.adbc_get_info()
        equal(info["vendor_name"], "PostgreSQL")
    with connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        equal(cursor.fetchall(), [(1,)])


QUERY = """SELECT CAST(v = 1 AS boolean) AS b, CAST(v AS smallint) AS i2, CAST(v AS int) AS i4, CAST(v AS bigint) AS i8, CAST(v + 0.5 AS real) AS f4,
 CAST(v + 0.5 AS double precision) AS f8, 'text ' || v AS t, CAST('\\x00ff' AS bytea) AS y, CAST('1969-07-20' AS date) AS d, CAST('01:02:03.5' AS time) AS tm,
 CAST('1969-07-20 20:17:40.5' AS timestamp) AS ts, CAST('2024-01-15 12:00:00+09' AS timestamptz) AS tz, CAST(NULL AS int) AS nothing
 FROM generate_series(1, 3) AS g(v) ORDER BY v"""


@program.check
def types():
    """every scalar type as Arrow, by COPY and by rows"""
    utc = datetime.timezone.utc
    with connect() as connection, connection.cursor() as cursor:
        for copy in [True, False]:
            table = fetch(cursor, QUERY, copy=copy)
            equal([str(field.type) for field in table.schema],
                  ["bool", "int16", "int32", "int64", "float", "double", "string", "binary", "date32[day]", "time64[us]", "timestamp[us]", "timestamp[us, tz=UTC]", "int32"])
            equal(list(table.to_pylist()[0].values()), [True, 1, 1, 1, 1.5, 1.5, "text 1", b"\x00\xff", datetime.date(1969, 7, 20), datetime.time(1, 2, 3, 500000),
                  datetime.datetime(1969, 7, 20, 20, 17, 40, 500000), datetime.datetime(2024, 1, 15, 3, tzinfo=utc), None])
            equal(table.num_rows, 3)
            table = fetch(cursor, "SELECT CAST('NaN' AS double precision) AS a, CAST('-Infinity' AS double precision) AS b, CAST(1234567890123456.7891 AS numeric(20,4)) AS n", copy=copy)
            row = list(table.to_pylist()[0].values())
            holds(math.isnan(row[0]) and row[1] == -math.inf, f"float specials came as {row}")
            equal(decimal.Decimal(row[2]), decimal.Decimal("1234567890123456.7891"))
            table = fetch(cursor, "SELECT ARRAY[1, NULL, 3] AS a, ARRAY['x', 'y\"'] AS b", copy=copy)
            equal(table.to_pylist(), [{"a": [1, None, 3], "b": ["x", 'y"']}])
            equal(fetch(cursor, "SELECT x FROM generate_series(1, 3) AS g(x) WHERE false", copy=copy).num_rows, 0)


@program.check
def parameters():
    """parameters, and several rows of them as a record batch; prepared statements and their schemas"""
    with connect() as connection, connection.cursor() as cursor:
        for value in [1, 2.5, "it's ü", b"\x00", datetime.date(1969, 1, 1), datetime.datetime(2024, 1, 1, 1, 1), True]:
            kind = {int: "bigint", float: "double precision", str: "text", bytes: "bytea", datetime.date: "date", datetime.datetime: "timestamp", bool: "boolean"}[type(value)]
            cursor.execute(f"SELECT CAST($1 AS {kind})", (value,))
            equal(cursor.fetchone()[0], value)
        cursor.execute("DROP TABLE IF EXISTS adbc_parameters")
        cursor.execute("CREATE TABLE adbc_parameters (id bigint, name text)")
        cursor.executemany("INSERT INTO adbc_parameters VALUES ($1, $2)", [(1, "a"), (2, None), (3, "c")])
        connection.commit()
        cursor.execute("SELECT * FROM adbc_parameters ORDER BY id")
        equal(cursor.fetchall(), [(1, "a"), (2, None), (3, "c")])
        schema = cursor.adbc_prepare("SELECT id FROM adbc_parameters WHERE name = $1 AND id > $2")
        equal(len(schema), 2)
        equal([str(field.type) for field in cursor.adbc_execute_schema("SELECT id, name FROM adbc_parameters")], ["int64", "string"])
        cursor.execute("DROP TABLE adbc_parameters")
        connection.commit()


@program.check
def ingesting():
    """adbc_ingest: a table made, appended to and replaced from Arrow, by binary COPY"""
    data = pyarrow.table({
        "id": pyarrow.array(range(1000), pyarrow.int64()), "small": pyarrow.array([1] * 1000, pyarrow.int16()), "n": pyarrow.array([None] * 1000, pyarrow.int32()),
        "name": pyarrow.array([f"name {n}" if n % 3 else None for n in range(1000)]), "f": pyarrow.array([n / 4 for n in range(1000)]),
        "ok": pyarrow.array([n % 2 == 0 for n in range(1000)]), "day": pyarrow.array([datetime.date(1969, 1, 1)] * 1000, pyarrow.date32()),
        "at": pyarrow.array([datetime.datetime(1969, 1, 1, 1)] * 1000, pyarrow.timestamp("us")), "raw": pyarrow.array([b"\x00"] * 1000, pyarrow.binary()),
        "zoned": pyarrow.array([datetime.datetime(2024, 1, 1)] * 1000, pyarrow.timestamp("us", "UTC")),
    })
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS adbc_ingested")
        equal(cursor.adbc_ingest("adbc_ingested", data, mode="create"), 1000)
        equal(cursor.adbc_ingest("adbc_ingested", data.slice(0, 10), mode="append"), 10)
        connection.commit()
        cursor.execute("SELECT count(*), count(name), CAST(sum(id) AS bigint) FROM adbc_ingested")
        equal(cursor.fetchone(), (1010, 672, 499545))
        back = fetch(cursor, "SELECT * FROM adbc_ingested WHERE id >= 10 ORDER BY id")
        equal(back.to_pylist(), data.slice(10).to_pylist())
        equal(cursor.adbc_ingest("adbc_ingested", data.slice(0, 5), mode="replace"), 5)
        equal(cursor.adbc_ingest("adbc_ingested", data.slice(0, 5), mode="create_append"), 5)
        raises(connection.ProgrammingError, lambda: cursor.adbc_ingest("adbc_ingested", data, mode="create"))
        connection.rollback()
        cursor.execute("DROP TABLE IF EXISTS adbc_ingested")
        connection.commit()


@program.check
def catalog():
    """adbc_get_objects, adbc_get_table_schema, adbc_get_table_types"""
    with connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS adbc_catalog")
        cursor.execute("CREATE TABLE adbc_catalog (id bigint, name text, day date, ok boolean)")
        equal([(field.name, str(field.type)) for field in connection.adbc_get_table_schema("adbc_catalog")], [("id", "int64"), ("name", "string"), ("day", "date32[day]"), ("ok", "bool")])
        holds("table" in connection.adbc_get_table_types(), f"types: {connection.adbc_get_table_types()}")
        objects = connection.adbc_get_objects(depth="all", catalog_filter=program.database, table_name_filter="adbc_catalog").read_all().to_pylist()
        tables = [table for found in objects for schema in found["catalog_db_schemas"] for table in schema["db_schema_tables"] or []]
        equal([(table["table_name"], [column["column_name"] for column in table["table_columns"]], table["table_constraints"]) for table in tables],
              [("adbc_catalog", ["id", "name", "day", "ok"], [])])
        objects = connection.adbc_get_objects(depth="db_schemas").read_all().to_pylist()
        holds(any(schema["db_schema_name"] == "information_schema" or schema["db_schema_name"] for found in objects for schema in found["catalog_db_schemas"] or []), "schemas")
        holds(program.database in [found["catalog_name"] for found in connection.adbc_get_objects(depth="catalogs").read_all().to_pylist()], "catalogs")
        cursor.execute("DROP TABLE adbc_catalog")


@program.check
def transactions_and_errors():
    """commit, rollback, SQLSTATEs, cancel"""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS adbc_transaction")
        cursor.execute("CREATE TABLE adbc_transaction (id int)")
        connection.commit()
        cursor.execute("INSERT INTO adbc_transaction VALUES (1)")
        connection.rollback()
        cursor.execute("SELECT count(*) FROM adbc_transaction")
        equal(cursor.fetchone(), (0,))
        for statement, state in [("SELECT * FROM adbc_nosuch", "42P01"), ("SELEC", "42601")]:
            equal(raises(connection.Error, lambda: cursor.execute(statement)).sqlstate, state)
            connection.rollback()

        def division():
            cursor.execute("SELECT 1 / x FROM generate_series(0, 2) AS g(x)")
            cursor.fetchall()

        raises(connection.Error, division)
        connection.rollback()
        threading.Timer(0.7, cursor.adbc_cancel).start()
        started = time.monotonic()

        def long():
            cursor.execute(LONG)
            cursor.fetchall()

        raises(connection.Error, long)
        holds(time.monotonic() - started < 10, "a cancelled statement ends soon")
        connection.rollback()
        cursor.execute("DROP TABLE adbc_transaction")
        connection.commit()


@program.check
def large_results():
    """a million rows as Arrow, by COPY and by rows"""
    with connect() as connection, connection.cursor() as cursor:
        for copy in [True, False]:
            started = time.monotonic()
            table = fetch(cursor, "SELECT CAST(x AS bigint) AS x, CAST(x AS double precision) AS f, 'row ' || x AS t FROM generate_series(1, 1000000) AS g(x)", copy=copy)
            equal(table.num_rows, 1_000_000)
            equal(pyarrow.compute.sum(table["x"]).as_py(), 500000500000)
            print(f"        {table.nbytes / (time.monotonic() - started) / 1e6:.0f} MB/s of Arrow {'by COPY' if copy else 'by rows'}", flush=True)


program.run()
