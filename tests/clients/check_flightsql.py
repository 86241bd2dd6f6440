"""The ADBC driver of Arrow Flight SQL. usage: check_flightsql.py HOST PORT USER [DATABASE], with the port of Flight SQL

PostgreSQL does not speak it, so that this program has no server to be compared with: what is expected is what Flight SQL says.
"""

import datetime
import decimal
import math
import threading
import time

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi
import pyarrow
import pyarrow.compute

from checks import Program, equal, holds, raises

program = Program(f"adbc-driver-flightsql {adbc_driver_flightsql.__version__}")
LONG = "SELECT count(*) FROM generate_series(1, 200000) AS a(x), generate_series(1, 200000) AS b(y) WHERE a.x <> b.y + 7"


def connect(autocommit=True, **options):
    options = {"username": program.user, "password": program.password, **options}
    return adbc_driver_flightsql.dbapi.connect(f"grpc://{program.host}:{program.port}", db_kwargs=options, autocommit=autocommit)


@program.check
def connecting():
    """connect with a name and a password; what the server says of itself"""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1 AS n, 'ü' AS t")
        table = cursor.fetch_arrow_table()
        equal(table.column_names, ["n", "t"])
        equal(table["t"].to_pylist(), ["ü"])
        info = connection.adbc_get_info()
        holds(info.get("vendor_name") and info.get("vendor_version"), f"name and version: {info}")


@program.check
def types():
    """every scalar type as Arrow"""
    query = """SELECT CAST(v = 1 AS boolean) AS b, CAST(v AS smallint) AS i2, CAST(v AS int) AS i4, CAST(v AS bigint) AS i8, CAST(v + 0.5 AS real) AS f4,
 CAST(v + 0.5 AS double precision) AS f8, CAST(1234567890123456.7891 AS numeric(20,4)) AS p, 'text ' || v AS t, CAST('\\x00ff' AS bytea) AS y, CAST('1969-07-20' AS date) AS d,
 CAST('01:02:03.5' AS time) AS tm, CAST('1969-07-20 20:17:40.5' AS timestamp) AS ts, CAST('2024-01-15 12:00:00+09' AS timestamptz) AS tz, CAST(NULL AS int) AS nothing
 FROM generate_series(1, 3) AS g(v) ORDER BY v"""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute(query)
        table = cursor.fetch_arrow_table()
        got = list(table.to_pylist()[0].values())
        moment = got.pop(12)
        equal(got, [True, 1, 1, 1, 1.5, 1.5, decimal.Decimal("1234567890123456.7891"), "text 1", b"\x00\xff", datetime.date(1969, 7, 20), datetime.time(1, 2, 3, 500000),
              datetime.datetime(1969, 7, 20, 20, 17, 40, 500000), None])
        equal(moment.astimezone(datetime.timezone.utc), datetime.datetime(2024, 1, 15, 3, tzinfo=datetime.timezone.utc))
        equal(table.num_rows, 3)
        cursor.execute("SELECT CAST('NaN' AS double precision) AS a, CAST('-Infinity' AS double precision) AS b")
        row = cursor.fetchone()
        holds(math.isnan(row[0]) and row[1] == -math.inf, f"float specials came as {row}")
        cursor.execute("SELECT x FROM generate_series(1, 3) AS g(x) WHERE false")
        equal(cursor.fetch_arrow_table().num_rows, 0)


@program.check
def statements():
    """CREATE, INSERT, UPDATE, DROP; prepared statements with parameters"""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS flight_rows")
        cursor.execute("CREATE TABLE flight_rows (id bigint, name text)")
        cursor.execute("INSERT INTO flight_rows VALUES (1, 'a'), (2, 'b')")
        cursor.executemany("INSERT INTO flight_rows VALUES ($1, $2)", [(3, "c"), (4, None)])
        cursor.execute("SELECT id, name FROM flight_rows WHERE id > $1 ORDER BY id", (2,))
        equal(cursor.fetchall(), [(3, "c"), (4, None)])
        cursor.execute("UPDATE flight_rows SET name = $1 WHERE id = $2", ("it's ü", 1))
        cursor.execute("SELECT name FROM flight_rows WHERE id = 1")
        equal(cursor.fetchone(), ("it's ü",))
        schema = cursor.adbc_prepare("SELECT id FROM flight_rows WHERE name = $1 AND id > $2")
        holds(schema is None or len(schema) == 2, f"the parameters of a prepared statement: {schema}")
        cursor.execute("DROP TABLE flight_rows")


@program.check
def catalog():
    """catalogs, schemas, tables, columns and kinds of tables"""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS flight_catalog")
        cursor.execute("CREATE TABLE flight_catalog (id bigint, name text, day date)")
        objects = connection.adbc_get_objects(depth="all", table_name_filter="flight_catalog").read_all().to_pylist()
        tables = [table for found in objects for schema in found["catalog_db_schemas"] or [] for table in schema["db_schema_tables"] or []]
        equal([(table["table_name"], [column["column_name"] for column in table["table_columns"]]) for table in tables], [("flight_catalog", ["id", "name", "day"])])
        holds(connection.adbc_get_objects(depth="catalogs").read_all().num_rows > 0, "catalogs")
        holds(any(found["catalog_db_schemas"] for found in connection.adbc_get_objects(depth="db_schemas").read_all().to_pylist()), "schemas")
        holds(len(connection.adbc_get_table_types()) > 0, "kinds of tables")
        equal([(field.name, str(field.type)) for field in connection.adbc_get_table_schema("flight_catalog")], [("id", "int64"), ("name", "string"), ("day", "date32[day]")])
        cursor.execute("DROP TABLE flight_catalog")


@program.check
def ingesting():
    """adbc_ingest: a table made from Arrow and appended to"""
    data = pyarrow.table({"id": pyarrow.array(range(1000), pyarrow.int64()), "name": [f"name {n}" for n in range(1000)], "f": [n / 4 for n in range(1000)]})
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS flight_ingested")
        cursor.adbc_ingest("flight_ingested", data, mode="create")
        cursor.adbc_ingest("flight_ingested", data.slice(0, 10), mode="append")
        cursor.execute("SELECT count(*), CAST(sum(id) AS bigint) FROM flight_ingested")
        equal(cursor.fetchone(), (1010, 499545))
        cursor.execute("DROP TABLE flight_ingested")


@program.check
def transactions_and_errors():
    """errors with their SQLSTATE or status, cancel, commit and rollback"""
    with connect() as connection, connection.cursor() as cursor:

        def run(statement):
            cursor.execute(statement)
            return cursor.fetchall()

        for statement, text in [("SELECT * FROM flight_nosuch", "flight_nosuch"), ("SELEC 1", "SELEC"), ("SELECT 1 / 0", "zero"), ("SELECT CAST('x' AS int)", "x")]:
            error = raises(connection.Error, lambda: run(statement), statement)
            holds(text in str(error), f"{statement}: {error}")
            equal(run("SELECT CAST(1 AS bigint)"), [(1,)])
        threading.Timer(0.7, cursor.adbc_cancel).start()
        started = time.monotonic()
        raises(connection.Error, lambda: run(LONG))
        holds(time.monotonic() - started < 10, "a cancelled statement ends soon")
        equal(run("SELECT CAST(1 AS bigint)"), [(1,)])
        cursor.execute("DROP TABLE IF EXISTS flight_transaction")
        cursor.execute("CREATE TABLE flight_transaction (id bigint)")
    with connect(autocommit=False) as connection, connection.cursor() as cursor:
        for end, count in [(connection.rollback, 0), (connection.commit, 1)]:
            cursor.execute("INSERT INTO flight_transaction VALUES (1)")
            end()
            cursor.execute("SELECT count(*) FROM flight_transaction")
            equal(cursor.fetchone(), (count,))
            connection.rollback()
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE flight_transaction")


@program.check
def large_results():
    """a million rows, whose speed is printed; batches as they come"""
    with connect() as connection, connection.cursor() as cursor:
        started = time.monotonic()
        cursor.execute("SELECT CAST(x AS bigint) AS x, CAST(x AS double precision) AS f, 'row ' || x AS t FROM generate_series(1, 1000000) AS g(x)")
        rows, size, total = 0, 0, 0
        for batch in cursor.fetch_record_batch():
            rows, size, total = rows + batch.num_rows, size + batch.nbytes, total + pyarrow.compute.sum(batch["x"]).as_py()
        equal((rows, total), (1_000_000, 500000500000))
        print(f"        {size / (time.monotonic() - started) / 1e6:.0f} MB/s of Arrow", flush=True)


program.run()
