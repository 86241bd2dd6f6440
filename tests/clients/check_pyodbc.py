"""pyodbc and isql over psqlODBC, through unixODBC. usage: check_pyodbc.py HOST PORT USER [DATABASE]"""

import datetime
import decimal
import glob
import math
import subprocess
import threading
import time
import urllib.parse

import pyodbc

from checks import Program, equal, holds, raises

program = Program(f"pyodbc {pyodbc.version} over psqlODBC")
LONG = "SELECT count(*) FROM generate_series(1, 200000) AS a(x), generate_series(1, 200000) AS b(y) WHERE a.x <> b.y + 7"
DRIVER = [path for folder in ["/usr/lib/*/odbc", "/usr/lib64", "/usr/lib/odbc"] for path in glob.glob(f"{folder}/psqlodbcw.so")]


def words(**options):
    """A connection string; `UseServerSidePrepare` and `UseDeclareFetch` are the options that change how psqlODBC asks."""
    # psqlODBC takes "%" and "+" in a password for an encoding.
    password = urllib.parse.quote(program.password, safe="")
    values = {"DRIVER": DRIVER[0], "Servername": program.host, "Port": program.port, "UID": program.user, "Database": program.database,
              "SSLmode": "prefer", **({"PWD": password} if password else {}), **options}
    return ";".join(f"{name}={value}" for name, value in values.items())


def connect(autocommit=True, **options):
    connection = pyodbc.connect(words(**options), autocommit=autocommit, timeout=10)
    return connection


MODES = [{"UseServerSidePrepare": 1}, {"UseServerSidePrepare": 0}, {"UseDeclareFetch": 1, "Fetch": 50}, {"Protocol": "7.4-2"}, {"ByteaAsLongVarBinary": 1, "BoolsAsChar": 0}]


@program.check
def connecting():
    """connect with sslmode disable and prefer, in every mode of the driver; SQLGetInfo; a database that is not there"""
    for mode in MODES + [{"SSLmode": name} for name in program.ssl_modes]:
        with connect(**mode) as connection:
            equal(connection.execute("SELECT 1").fetchone()[0], 1)
            equal(connection.getinfo(pyodbc.SQL_DBMS_NAME), "PostgreSQL")
            holds(connection.getinfo(pyodbc.SQL_DBMS_VER) >= "14", "the version")
            equal(connection.getinfo(pyodbc.SQL_DATABASE_NAME), program.database)
            equal(connection.getinfo(pyodbc.SQL_USER_NAME), program.user)
    raises(pyodbc.Error, lambda: connect(Database="nosuchdatabase"))


@program.check
def isql():
    """isql: a batch of statements, columns, errors, help for tables and columns"""

    def run(text, *options, status=0):
        ran = subprocess.run(["isql", "-k", words(), "-b", *options], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        equal(ran.returncode, status, ran.stdout)
        return ran.stdout

    text = run("DROP TABLE IF EXISTS isql_table\nCREATE TABLE isql_table (id int, name text, price numeric(10,2), day date)\n"
               "INSERT INTO isql_table VALUES (1, 'one', 1.50, '1969-07-20'), (2, NULL, NULL, NULL)\n", "-v")
    holds("[ISQL]ERROR" not in text, text)
    equal(run("SELECT * FROM isql_table ORDER BY id\n", "-x0x7c", "-d|").strip().splitlines(), ["1|one|1.50|1969-07-20", "2|||"])
    holds("SQLRowCount returns 2" in run("SELECT * FROM isql_table\n", "-v"), "rows are counted")
    holds("isql_table" in run("help\n", "-d|"), "help lists the table")
    holds("price" in run("help isql_table\n", "-d|"), "help lists the columns")
    text = run("SELECT * FROM isql_nosuch\nSELECT 42\n", "-v", "-d|")
    holds("42P01" in text and "isql_nosuch" in text and "42" in text, text)
    run("DROP TABLE isql_table\n")


VALUES = [
    ("boolean", True), ("smallint", -32768), ("integer", 2147483647), ("bigint", -9223372036854775808), ("real", 1.5), ("double precision", 0.1),
    ("double precision", -1e300), ("numeric(20,4)", decimal.Decimal("1234567890123456.7891")), ("numeric(20,4)", decimal.Decimal("-0.0001")),
    ("text", ""), ("text", "it's \"quoted\" \\ ? {x}"), ("text", "Grüße, 世界 🎉"), ("text", "x" * 5000), ("varchar(30)", "dreißig"), ("bytea", b"\x00\xff'\\"),
    ("date", datetime.date(2024, 2, 29)), ("date", datetime.date(1969, 12, 31)), ("date", datetime.date(1, 1, 1)), ("time", datetime.time(23, 59, 59)),
    ("timestamp", datetime.datetime(2024, 2, 29, 23, 59, 59, 999000)), ("timestamp", datetime.datetime(1969, 12, 31, 23, 59, 59)),
]


@program.check
def types():
    """every scalar type as a parameter and as a result, in every mode of the driver, and NULL"""
    for mode in MODES:
        with connect(MaxLongVarcharSize=1000000, **mode) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for kind, value in VALUES:
                got = connection.execute(f"SELECT CAST(? AS {kind})", value).fetchone()[0]
                if kind == "boolean":
                    got = got in (True, "1", "t")
                equal(got, value, f"{kind}, {mode}")
                equal(connection.execute(f"SELECT CAST(? AS {kind})", None).fetchone()[0], None, f"{kind}, {mode}")
            got = connection.execute("SELECT CAST('2024-01-15 12:00:00+09' AS timestamptz)").fetchone()[0]
            equal(got, datetime.datetime(2024, 1, 15, 3))
            got = connection.execute("SELECT CAST('NaN' AS double precision), CAST('Infinity' AS double precision)").fetchone()
            holds(math.isnan(got[0]) and math.isinf(got[1]), f"NaN and infinity came as {got}")


@program.check
def rows():
    """a table of every type: parameters, executemany with and without fast_executemany, description, row counts, fetchmany"""
    with connect() as connection:
        cursor = connection.cursor()
        cursor.execute("DROP TABLE IF EXISTS odbc_rows")
        cursor.execute("CREATE TABLE odbc_rows (id int, name text, price numeric(10,2), day date, at timestamp)")
        data = [(n, f"name {n}" if n % 3 else None, decimal.Decimal(n) / 4, datetime.date(1969, 1, 1) + datetime.timedelta(days=n), datetime.datetime(2024, 1, 1, 0, 0, n % 60)) for n in range(100)]
        for fast in [False, True]:
            cursor.execute("DELETE FROM odbc_rows")
            cursor.fast_executemany = fast
            cursor.executemany("INSERT INTO odbc_rows VALUES (?, ?, ?, ?, ?)", data)
            got = [tuple(row) for row in cursor.execute("SELECT * FROM odbc_rows ORDER BY id").fetchall()]
            equal(got, data, f"fast_executemany {fast}")
        equal([(column[0], column[1]) for column in cursor.description], [("id", int), ("name", str), ("price", decimal.Decimal), ("day", datetime.date), ("at", datetime.datetime)])
        equal((cursor.description[2][4], cursor.description[2][5]), (10, 2))
        equal(cursor.execute("UPDATE odbc_rows SET name = 'x' WHERE id < ?", 10).rowcount, 10)
        equal(cursor.execute("DELETE FROM odbc_rows WHERE id >= ?", 90).rowcount, 10)
        cursor.execute("SELECT id FROM odbc_rows ORDER BY id")
        equal([len(cursor.fetchmany(40)) for _ in range(3)], [40, 40, 10])
        cursor.execute("SELECT 1; SELECT 'two'")
        equal(cursor.fetchone()[0], 1)
        holds(cursor.nextset(), "a second result")
        equal(cursor.fetchone()[0], "two")
        cursor.execute("DROP TABLE odbc_rows")


@program.check
def cursors():
    """UseDeclareFetch: the driver's own cursors, and one that is left early"""
    with connect(autocommit=False, UseDeclareFetch=1, Fetch=100) as connection:
        equal(sum(row[0] for row in connection.execute("SELECT x FROM generate_series(1, 5000) AS g(x)")), 12502500)
        cursor = connection.execute("SELECT x FROM generate_series(1, 5000) AS g(x) ORDER BY x")
        equal(cursor.fetchone()[0], 1)
        cursor.close()
        connection.rollback()
        equal(connection.execute("SELECT x FROM generate_series(1, ?) AS g(x) ORDER BY x", 3).fetchall()[-1][0], 3)
        connection.commit()


@program.check
def transactions():
    """commit, rollback, an error within a transaction in every mode of rolling back, isolation"""
    with connect(autocommit=False) as connection, connect() as other:
        connection.execute("DROP TABLE IF EXISTS odbc_transaction")
        connection.execute("CREATE TABLE odbc_transaction (id int)")
        connection.commit()
        connection.execute("INSERT INTO odbc_transaction VALUES (1)")
        equal(other.execute("SELECT count(*) FROM odbc_transaction").fetchone()[0], 0)
        connection.commit()
        equal(other.execute("SELECT count(*) FROM odbc_transaction").fetchone()[0], 1)
        connection.execute("DELETE FROM odbc_transaction")
        connection.rollback()
        equal(connection.execute("SELECT count(*) FROM odbc_transaction").fetchone()[0], 1)
        connection.rollback()
    # Protocol=7.4-N: after an error 0 leaves it alone, 1 rolls the transaction back, 2 the statement, by a savepoint.
    for rolls_back, count in [(1, 0), (2, 1)]:
        with connect(autocommit=False, Protocol=f"7.4-{rolls_back}") as connection:
            connection.execute("DELETE FROM odbc_transaction")
            connection.commit()
            connection.execute("INSERT INTO odbc_transaction VALUES (5)")
            equal(raises(pyodbc.Error, lambda: connection.execute("SELECT * FROM odbc_nosuch")).args[0], "42P01")
            equal(connection.execute("SELECT count(*) FROM odbc_transaction").fetchone()[0], count, f"rolling back in the way {rolls_back}")
            connection.commit()
    with connect() as connection:
        connection.execute("DROP TABLE odbc_transaction")


@program.check
def failures():
    """errors with their SQLSTATE, after which the connection goes on"""
    for mode in MODES[:2]:
        with connect(**mode) as connection:
            for statement, state in [("SELEC 1", "42601"), ("SELECT * FROM odbc_nosuch", "42P01"), ("SELECT nosuch FROM generate_series(1, 2) AS g(x)", "42703"),
                                     ("SELECT 1/0", "22012"), ("SELECT CAST('x' AS int)", "22P02")]:
                equal(raises(pyodbc.Error, lambda: connection.execute(statement), statement).args[0], state, statement)
                equal(connection.execute("SELECT 1").fetchone()[0], 1)
            equal(raises(pyodbc.Error, lambda: connection.execute("SELECT 1 / CAST(? AS int)", 0)).args[0], "22012")


@program.check
def catalog():
    """SQLTables, SQLColumns, SQLGetTypeInfo, SQLPrimaryKeys, SQLStatistics, SQLForeignKeys, SQLProcedures, SQLSpecialColumns"""
    with connect() as connection:
        cursor = connection.cursor()
        cursor.execute("DROP VIEW IF EXISTS odbc_view")
        cursor.execute("DROP TABLE IF EXISTS odbc_catalog")
        cursor.execute("CREATE TABLE odbc_catalog (id bigint NOT NULL, price numeric(12,2), name text, day date, at timestamp, zoned timestamptz, raw bytea, f double precision, r real, small smallint, n int)")
        cursor.execute("CREATE VIEW odbc_view AS SELECT id FROM odbc_catalog")
        schema = cursor.execute("SELECT current_schema()").fetchone()[0]
        equal([tuple(row)[:4] for row in cursor.tables(table="odbc_%")], [(program.database, schema, "odbc_catalog", "TABLE"), (program.database, schema, "odbc_view", "VIEW")])
        equal([row.table_name for row in cursor.tables(schema=schema, tableType="VIEW", table="odbc_%")], ["odbc_view"])
        holds(len(cursor.tables().fetchall()) >= 2, "all tables")
        holds(schema in [row.table_schem for row in cursor.tables(catalog="", schema="%", table="")], "the schemas")
        rows = cursor.columns(table="odbc_catalog").fetchall()
        equal([(row.column_name, row.data_type, row.type_name, row.nullable) for row in rows], [
            ("id", -5, "int8", 0), ("price", 2, "numeric", 1), ("name", -10, "text", 1), ("day", 91, "date", 1), ("at", 93, "timestamp", 1), ("zoned", 93, "timestamptz", 1),
            ("raw", -4, "bytea", 1), ("f", 6, "float8", 1), ("r", 7, "float4", 1), ("small", 5, "int2", 1), ("n", 4, "int4", 1)])
        equal([(row.column_size, row.decimal_digits) for row in rows if row.column_name == "price"], [(12, 2)])
        equal([row.column_name for row in cursor.columns(schema=schema, table="odbc_catalog", column="pr%")], ["price"])
        holds("int4" in [row.type_name for row in cursor.getTypeInfo()], "SQLGetTypeInfo")
        equal(cursor.primaryKeys("odbc_catalog").fetchall(), [])
        equal(cursor.foreignKeys("odbc_catalog").fetchall(), [])
        equal([row for row in cursor.statistics("odbc_catalog").fetchall() if row[6] != 0], [])
        cursor.rowIdColumns("odbc_catalog").fetchall()
        cursor.rowVerColumns("odbc_catalog").fetchall()
        cursor.procedures(procedure="lower").fetchall()
        cursor.procedureColumns(procedure="lower").fetchall()
        cursor.execute("DROP VIEW odbc_view")
        cursor.execute("DROP TABLE odbc_catalog")


@program.check
def cancelling():
    """Cursor.cancel() and statement_timeout"""
    with connect() as connection:
        cursor = connection.cursor()
        timer = threading.Timer(1, cursor.cancel)
        timer.start()
        started = time.monotonic()
        equal(raises(pyodbc.Error, lambda: cursor.execute(LONG)).args[0], "57014")
        timer.join()
        connection.execute("SET statement_timeout = 300")
        equal(raises(pyodbc.Error, lambda: connection.execute(LONG)).args[0], "57014")
        connection.execute("SET statement_timeout = 0")
        holds(time.monotonic() - started < 20, "both end soon")
        equal(connection.execute("SELECT 1").fetchone()[0], 1)


@program.check
def large_results():
    """200 000 rows by the driver's cursors, a million counted, 1 000 parameters"""
    with connect(autocommit=False, UseDeclareFetch=1, Fetch=10000) as connection:
        equal(sum(1 for _ in connection.execute("SELECT x, 'row ' || x FROM generate_series(1, 200000) AS g(x)")), 200_000)
    with connect() as connection:
        equal(sum(1 for _ in connection.execute("SELECT x FROM generate_series(1, 1000000) AS g(x)")), 1_000_000)
        query = "SELECT count(*) FROM generate_series(1, 100) AS g(x) WHERE x IN (" + ", ".join("?" * 1000) + ")"
        equal(connection.execute(query, list(range(1, 1001))).fetchone()[0], 100)


program.run()
