"""impyla: what its users do every day. usage: check_impyla.py HOST PORT USER [DATABASE]

$HIVE_AUTH says how the server on PORT asks who it is: NOSASL or NONE (SASL PLAIN); $HIVE_HTTP_PORT is its port for HTTP.
"""

import datetime
import decimal
import importlib.metadata
import time

from impala.dbapi import connect as connect_impyla
from impala.error import Error, HiveServer2Error, ProgrammingError

from checks import Program, equal, holds, raises
from hive_server import AUTHENTICATION, HTTP_PORT, LONG, NUMBERS, TYPES, VALUES, fresh

program = Program(f"impyla {importlib.metadata.version('impyla')}")
database = program.arguments.database or "default"


def connect(**options):
    if AUTHENTICATION == "NOSASL":
        options.setdefault("auth_mechanism", "NOSASL")
    else:
        options.setdefault("auth_mechanism", "PLAIN")
        options.setdefault("password", program.password or "none")
    options.setdefault("port", program.port)
    return connect_impyla(program.host, user=program.user, database=database, timeout=60, **options)


def connect_http(**options):
    return connect(
        port=HTTP_PORT, use_http_transport=True, http_path="cliservice", auth_mechanism="PLAIN", password=program.password or "none", **options
    )


@program.check
def connecting():
    """connect, select one row, close; over HTTP too if the server has it"""
    for open_one in [connect] + ([connect_http] if HTTP_PORT else []):
        connection = open_one()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1, 'a'")
            equal(cursor.fetchall(), [(1, "a")])
            cursor.execute("SELECT current_database()")
            equal(cursor.fetchone(), (database,))
        connection.close()


@program.check
def types():
    """every type, its name, precision and scale in the description, its value and NULL; over HTTP too"""
    with connect() as connection, connection.cursor() as cursor:
        fresh(cursor, "im_types", TYPES)
        cursor.execute(f"INSERT INTO im_types SELECT {VALUES}")
        cursor.execute("INSERT INTO im_types (i) VALUES (4)")
    for open_one in [connect] + ([connect_http] if HTTP_PORT else []):
        with open_one() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT * FROM im_types ORDER BY i")
            names = "b t s i l f d n st vc ch dt ts bi a m r".split()
            kinds = "BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL STRING VARCHAR CHAR DATE TIMESTAMP BINARY ARRAY MAP STRUCT"
            equal([column[0] for column in cursor.description], [f"im_types.{name}" for name in names])
            equal([column[1] for column in cursor.description], kinds.split())
            equal(cursor.description[7][4:6], (10, 2))
            # The client itself makes bytes of an array's text.
            equal(cursor.fetchone(), (
                True, 1, 2, 3, 4, 1.5, 2.5, decimal.Decimal("12.30"), "text", "vc", "ch   ", datetime.date(2020, 1, 2),
                datetime.datetime(2020, 1, 2, 3, 4, 5, 678000), b"bin", b"[1,2,null]", '{"k":1}', '{"x":1,"y":"z"}',
            ))
            equal(cursor.fetchone(), tuple(4 if name == "i" else None for name in names))
            equal(cursor.fetchone(), None)
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE im_types")


@program.check
def parameters():
    """parameters: question marks, numbers, names and formats; text with quotes and backslashes, NULL"""
    with connect() as connection, connection.cursor() as cursor:
        text = "it's \"quoted\" \\ back"
        cursor.execute("SELECT ?, ?", [text, 5])
        equal(cursor.fetchone(), (text, 5))
        cursor.execute("SELECT :2, :1", [text, 5])
        equal(cursor.fetchone(), (5, text))
        cursor.execute("SELECT %(x)s", {"x": text})
        equal(cursor.fetchone(), (text,))
        cursor.execute("SELECT %s, %s", (None, "ä€😀"))
        equal(cursor.fetchone(), (None, "ä€😀"))


@program.check
def errors():
    """errors: their class and text; and the connection goes on"""
    with connect() as connection, connection.cursor() as cursor:
        for text, message in [
            ("SELECT * FROM no_such_table", "Table not found 'no_such_table'"),
            ("SELECT no_such_column FROM (SELECT 1 x) t", "no_such_column"),
            ("SELECT no_such_function(1)", "Invalid function no_such_function"),
            ("SELEC 1", "ParseException"),
        ]:
            error = raises(HiveServer2Error, lambda: cursor.execute(text), text)
            holds(message in str(error), f"{text}: {error}")
        cursor.execute("SELECT 1")
        equal(cursor.fetchone(), (1,))
        raises(ProgrammingError, lambda: connection.cursor().fetchone())
    equal(issubclass(HiveServer2Error, Error), True)


@program.check
def catalog():
    """get_databases, get_tables, get_table_schema, get_functions, table_exists, database_exists, ping"""
    with connect() as connection, connection.cursor() as cursor:
        fresh(cursor, "im_catalog", "id int, name string, price decimal(10,2)")
        cursor.get_databases()
        equal([column[0] for column in cursor.description], ["TABLE_SCHEM", "TABLE_CATALOG"])
        holds((database, "") in cursor.fetchall(), "the database is among them")
        cursor.get_tables(database)
        equal([column[0] for column in cursor.description][:5], ["TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE", "REMARKS"])
        equal([row[:4] for row in cursor.fetchall() if row[2] == "im_catalog"], [("", database, "im_catalog", "TABLE")])
        cursor.get_table_schema("im_catalog", database)
        equal(len(cursor.description), 23)
        # It asks for columns like .*, which is no pattern of columns in Hive: there are none.
        equal(cursor.fetchall(), [])
        equal((cursor.table_exists("im_catalog"), cursor.table_exists("no_such_table")), (True, False))
        equal((cursor.database_exists(database), cursor.database_exists("no_such_database")), (True, False))
        equal(cursor.ping(), True)
        cursor.get_functions()
        equal([column[0] for column in cursor.description], ["FUNCTION_CAT", "FUNCTION_SCHEM", "FUNCTION_NAME", "REMARKS", "FUNCTION_TYPE", "SPECIFIC_NAME"])
        cursor.execute("DROP TABLE im_catalog")


@program.check
def fetching():
    """fetchone, fetchmany, fetchall, iteration; thirty thousand rows; arraysize; no rows; columnar batches"""
    many = f"SELECT pos, IF(pos % 3 = 0, NULL, concat('row ', pos)) t FROM {NUMBERS.format(29_999)} n ORDER BY pos"
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute(many)
        equal(cursor.fetchone(), (0, None))
        equal(cursor.fetchmany(2), [(1, "row 1"), (2, "row 2")])
        rest = cursor.fetchall()
        equal((len(rest), rest[-1]), (29_997, (29_999, "row 29999")))
        cursor.execute(many)
        equal(sum(row[0] for row in cursor), 449_985_000)
        cursor.execute("SELECT 1 WHERE 1 = 0")
        equal(cursor.fetchall(), [])
        cursor.execute(many)
        batch = cursor.fetchcbatch()
        equal((len(batch) > 0, len(batch.columns)), (True, 2))


@program.check
def in_background():
    """execute_async: states, log, rows; what only Impala has is refused and the connection goes on"""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute_async(f"SELECT count(*) FROM {NUMBERS.format(999)} n")
        while cursor.is_executing():
            time.sleep(0.05)
        equal((cursor.status(), cursor.execution_failed()), ("FINISHED_STATE", False))
        holds(isinstance(cursor.get_log(), str), "the log is text")
        raises(Exception, cursor.get_profile)
        raises(Exception, cursor.get_summary)
        equal(cursor.fetchall(), [(1000,)])


@program.check
def cancelling():
    """cancel_operation of a statement that runs; the session goes on"""
    with connect() as connection:
        cursor = connection.cursor()
        cursor.execute_async(LONG)
        equal(cursor.is_executing(), True)
        started = time.monotonic()
        cursor.cancel_operation()
        holds(time.monotonic() - started < 60, "cancelled within a minute")
        cursor.execute("SELECT 1")
        equal(cursor.fetchall(), [(1,)])


@program.check
def writing():
    """tables made, filled and dropped; executemany; a statement without rows has no description"""
    with connect() as connection, connection.cursor() as cursor:
        fresh(cursor, "im_writes", "i int, s string")
        equal(cursor.description, None)
        cursor.executemany("INSERT INTO im_writes VALUES (?, ?)", [[1, "a"], [2, None]])
        cursor.execute("SELECT * FROM im_writes ORDER BY i")
        equal(cursor.fetchall(), [(1, "a"), (2, None)])
        cursor.execute("INSERT OVERWRITE TABLE im_writes SELECT i * 10, s FROM im_writes WHERE i = 1")
        cursor.execute("SELECT * FROM im_writes")
        equal(cursor.fetchall(), [(10, "a")])
        cursor.execute("DROP TABLE im_writes")


@program.check
def settings():
    """settings with a statement, set_configuration by SET, several cursors are several sessions"""
    with connect() as connection:
        with connection.cursor(configuration={"my.own.setting": "5"}) as cursor:
            cursor.execute("SET my.own.setting")
            equal(cursor.fetchall(), [("my.own.setting=5",)])
        with connection.cursor() as first, connection.cursor() as second:
            first.execute("SET my.own.setting=6")
            second.execute("SET my.own.setting")
            equal(second.fetchall(), [("my.own.setting is undefined",)])
            first.execute("SET my.own.setting")
            equal(first.fetchall(), [("my.own.setting=6",)])


program.run()
