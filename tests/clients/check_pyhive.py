"""PyHive: what its users do every day. usage: check_pyhive.py HOST PORT USER [DATABASE]"""

import datetime
import decimal
import importlib.metadata
import threading
import time

from pyhive import hive
from pyhive.exc import DatabaseError, Error, OperationalError, ProgrammingError
from TCLIService.ttypes import TOperationState

from checks import Program, equal, holds, raises
from hive_server import AUTHENTICATION, LONG, NUMBERS, TYPES, VALUES, fresh

program = Program(f"PyHive {importlib.metadata.version('PyHive')}")
database = program.arguments.database or "default"


def connect(**options):
    options.setdefault("database", database)
    if AUTHENTICATION == "LDAP":
        options["password"] = program.password
    return hive.connect(program.host, port=program.port, username=program.user, auth=AUTHENTICATION, **options)


@program.check
def connecting():
    """connect, select one row, close; a database that is not there; settings of the session"""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        equal(cursor.fetchall(), [(1,)])
        cursor.execute("SELECT current_database()")
        equal(cursor.fetchone(), (database,))
    error = raises(OperationalError, lambda: connect(database="no_such_database"))
    holds("Database does not exist: no_such_database" in str(error), f"the database is named: {error}")
    with connect(configuration={"my.own.setting": "5"}) as connection, connection.cursor() as cursor:
        cursor.execute("SET my.own.setting")
        equal(cursor.fetchall(), [("my.own.setting=5",)])


@program.check
def types():
    """every type, its name in the description, its value and NULL"""
    with connect() as connection, connection.cursor() as cursor:
        fresh(cursor, "py_types", TYPES)
        cursor.execute(f"INSERT INTO py_types SELECT {VALUES}")
        cursor.execute("INSERT INTO py_types (i) VALUES (4)")
        cursor.execute("SELECT * FROM py_types ORDER BY i")
        names = "b t s i l f d n st vc ch dt ts bi a m r".split()
        kinds = "BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL STRING VARCHAR CHAR DATE TIMESTAMP BINARY ARRAY MAP STRUCT"
        equal([column[0] for column in cursor.description], [f"py_types.{name}" for name in names])
        equal([column[1] for column in cursor.description], [f"{kind}_TYPE" for kind in kinds.split()])
        equal([column[2:] for column in cursor.description], [(None, None, None, None, True)] * len(names))
        equal(cursor.fetchone(), (
            True, 1, 2, 3, 4, 1.5, 2.5, decimal.Decimal("12.30"), "text", "vc", "ch   ", "2020-01-02",
            datetime.datetime(2020, 1, 2, 3, 4, 5, 678000), b"bin", "[1,2,null]", '{"k":1}', '{"x":1,"y":"z"}',
        ))
        equal(cursor.fetchone(), tuple(4 if name == "i" else None for name in names))
        equal(cursor.fetchone(), None)
        cursor.execute("DROP TABLE py_types")


@program.check
def names():
    """columns without a name are _c0, _c1; aliases stay; a column of a table is t.c only after a star"""
    with connect() as connection, connection.cursor() as cursor:
        fresh(cursor, "py_names", "id int, name string")
        for text, expected in [
            ("SELECT 1, 2 AS x, 'a' b, 1 + 1", ["_c0", "x", "b", "_c3"]),
            ("SELECT id, upper(name) FROM py_names", ["id", "_c1"]),
            ("SELECT * FROM py_names", ["py_names.id", "py_names.name"]),
            ("SELECT e.* FROM py_names e", ["e.id", "e.name"]),
            ("SELECT ID, Name AS NaMe FROM py_names", ["id", "name"]),
            ("SELECT count(*), max(id) m FROM py_names", ["_c0", "m"]),
        ]:
            cursor.execute(text)
            equal([column[0] for column in cursor.description], expected, text)
        cursor.execute("DROP TABLE py_names")


@program.check
def parameters():
    """parameters by position and by name: text with quotes, numbers, NULL, lists, dates"""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT %s, %s, %s, %s", ("it's \"quoted\"", 5, 2.5, None))
        equal(cursor.fetchone(), ("it's \"quoted\"", 5, decimal.Decimal("2.5"), None))
        cursor.execute("SELECT %(a)s + %(b)s, %(c)s", {"a": 1, "b": 2, "c": "ä€😀"})
        equal(cursor.fetchone(), (3, "ä€😀"))
        cursor.execute("SELECT 2 IN %s, 'z' IN %s", ([1, 2, 3], ("x", "y")))
        equal(cursor.fetchone(), (True, False))
        cursor.execute("SELECT %s", (datetime.date(2020, 1, 2),))
        equal(cursor.fetchone(), ("2020-01-02",))
        cursor.execute("SELECT 'a%b', 'line\\nbreak', 'back\\\\slash'")
        equal(cursor.fetchone(), ("a%b", "line\nbreak", "back\\slash"))


@program.check
def errors():
    """errors with SQLSTATE and code: no such table, column, function; syntax; and the connection goes on"""
    with connect() as connection, connection.cursor() as cursor:
        for text, state, code, message in [
            ("SELECT * FROM no_such_table", "42S02", 10001, "Table not found 'no_such_table'"),
            ("SELECT no_such_column FROM (SELECT 1 x) t", "42000", 10004, "no_such_column"),
            ("SELECT no_such_function(1)", "42000", 10011, "Invalid function no_such_function"),
            ("SELEC 1", "42000", 40000, "ParseException"),
            ("USE no_such_database", "42000", 10072, "Database does not exist: no_such_database"),
        ]:
            error = raises(OperationalError, lambda: cursor.execute(text), text)
            status = error.args[0].status
            equal((status.statusCode, status.sqlState, status.errorCode), (3, state, code), text)
            holds(message in status.errorMessage, f"{text}: {status.errorMessage}")
        cursor.execute("SELECT 1")
        equal(cursor.fetchone(), (1,))
    equal(issubclass(OperationalError, DatabaseError) and issubclass(DatabaseError, Error), True)


@program.check
def running_errors():
    """an error of a statement that was compiled, of one that waits and of one that does not"""
    with connect() as connection, connection.cursor() as cursor:
        # Whether a server finds it while it compiles or while it runs is its own matter.
        text = "SELECT assert_true(p.pos < 5) FROM (SELECT 1 one) s LATERAL VIEW posexplode(split(space(9), ' ')) p AS pos, val"

        def ask(**options):
            cursor.execute(text, **options)
            while cursor.poll().operationState in (TOperationState.INITIALIZED_STATE, TOperationState.RUNNING_STATE, TOperationState.PENDING_STATE):
                pass
            cursor.fetchall()

        raises(OperationalError, ask)
        raises(OperationalError, lambda: ask(async_=True))
        cursor.execute("SELECT 1")
        equal(cursor.fetchall(), [(1,)])


@program.check
def fetching():
    """fetchone, fetchmany, fetchall, iteration, arraysize; ten thousand rows in pages of 1000; no rows; no result"""
    with connect() as connection, connection.cursor() as cursor:
        many = f"SELECT pos, concat('row ', pos) FROM {NUMBERS.format(9999)} n ORDER BY pos"
        cursor.execute(many)
        equal(cursor.fetchone(), (0, "row 0"))
        equal(cursor.fetchmany(2), [(1, "row 1"), (2, "row 2")])
        rest = cursor.fetchall()
        equal((len(rest), rest[-1], cursor.rownumber), (9997, (9999, "row 9999"), 10000))
        cursor.execute(many)
        equal(sum(row[0] for row in cursor), 49995000)
        with connection.cursor(arraysize=7) as small:
            small.execute(many)
            equal(len(small.fetchmany(20)), 20)
            equal(len(small.fetchall()), 9980)
        cursor.execute("SELECT 1 WHERE 1 = 0")
        equal((cursor.fetchone(), cursor.fetchall(), len(cursor.description)), (None, [], 1))
        cursor.execute("CREATE TABLE IF NOT EXISTS py_none (i int)")
        equal(cursor.description, None)
        raises(ProgrammingError, cursor.fetchone)
        cursor.execute("DROP TABLE py_none")


@program.check
def nulls():
    """NULLs in every place of a page: first, last, the eighth, all and none of them"""
    with connect() as connection, connection.cursor() as cursor:
        for count, rest in [(1, 0), (1, 1), (8, 7), (9, 0), (16, 7), (17, 0)]:
            null = f"IF(pos % 8 = {rest}, NULL, "
            cursor.execute(
                f"SELECT pos, {null}pos), {null}concat('', pos)), {null}pos > 3), {null}cast(pos AS double))"
                f" FROM {NUMBERS.format(count - 1)} n ORDER BY pos"
            )
            expected = [(n,) + ((None,) * 4 if n % 8 == rest else (n, str(n), n > 3, float(n))) for n in range(count)]
            equal(cursor.fetchall(), expected, f"{count} rows, NULL at {rest}")


@program.check
def writing():
    """CREATE, INSERT of VALUES and of a query, INSERT OVERWRITE, CREATE TABLE AS, DROP; SHOW TABLES, DESCRIBE"""
    with connect() as connection, connection.cursor() as cursor:
        fresh(cursor, "py_writes", "i int, s string")
        cursor.execute("INSERT INTO py_writes VALUES (1, 'a'), (2, NULL)")
        cursor.execute("INSERT INTO TABLE py_writes SELECT i + 10, upper(s) FROM py_writes")
        cursor.execute("SELECT * FROM py_writes ORDER BY i")
        equal(cursor.fetchall(), [(1, "a"), (2, None), (11, "A"), (12, None)])
        cursor.execute("INSERT OVERWRITE TABLE py_writes SELECT i, s FROM py_writes WHERE i > 10")
        cursor.execute("SELECT count(*), min(i) FROM py_writes")
        equal(cursor.fetchall(), [(2, 11)])
        cursor.execute("DROP TABLE IF EXISTS py_copy")
        cursor.execute("CREATE TABLE py_copy AS SELECT i, i * 2 AS twice FROM py_writes")
        cursor.execute("DESCRIBE py_copy")
        equal([column[0] for column in cursor.description], ["col_name", "data_type", "comment"])
        equal([row[:2] for row in cursor.fetchall()], [("i", "int"), ("twice", "int")])
        cursor.execute("SHOW TABLES LIKE 'py%'")
        equal([column[0] for column in cursor.description], ["tab_name"])
        equal(cursor.fetchall(), [("py_copy",), ("py_writes",)])
        cursor.execute("DROP TABLE py_copy")
        cursor.execute("DROP TABLE py_writes")
        cursor.execute("SHOW TABLES LIKE 'py%'")
        equal(cursor.fetchall(), [])


@program.check
def in_background():
    """a statement that runs in the background: its states, its log, its rows"""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {NUMBERS.format(999)} n", async_=True)
        states, logs = [], []
        while True:
            status = cursor.poll()
            states.append(status.operationState)
            logs += cursor.fetch_logs()
            if status.operationState not in (TOperationState.INITIALIZED_STATE, TOperationState.RUNNING_STATE, TOperationState.PENDING_STATE):
                break
        equal(states[-1], TOperationState.FINISHED_STATE)
        equal((status.hasResultSet, status.status.statusCode), (True, 0))
        holds(all(isinstance(line, str) for line in logs), "the log is lines of text")
        equal(cursor.fetchall(), [(1000,)])


@program.check
def cancelling():
    """cancel of a statement that runs, of one that another thread waits for; the session goes on"""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute(LONG, async_=True)
        equal(cursor.poll().operationState in (TOperationState.RUNNING_STATE, TOperationState.PENDING_STATE), True)
        started = time.monotonic()
        cursor.cancel()
        state = cursor.poll().operationState
        while state in (TOperationState.RUNNING_STATE, TOperationState.PENDING_STATE) and time.monotonic() - started < 60:
            state = cursor.poll().operationState
        equal(state, TOperationState.CANCELED_STATE)
        error = raises(OperationalError, cursor.fetchall)
        holds("CANCELED" in error.args[0].status.errorMessage, str(error))
        cursor.execute("SELECT 1")
        equal(cursor.fetchall(), [(1,)])


@program.check
def many_cursors():
    """several cursors of one connection in turn, several connections at once, closing twice"""
    with connect() as connection:
        first, second = connection.cursor(), connection.cursor()
        first.execute(f"SELECT pos FROM {NUMBERS.format(2999)} n ORDER BY pos")
        equal(first.fetchone(), (0,))
        second.execute("SELECT 'other'")
        equal(second.fetchall(), [("other",)])
        equal(first.fetchall()[-1], (2999,))
        first.close()
        first.close()
    results = []

    def ask(number):
        with connect() as own, own.cursor() as cursor:
            cursor.execute("SELECT %s", (number,))
            results.append(cursor.fetchone()[0])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(sorted(results), list(range(8)))


@program.check
def settings():
    """SET of a name, of an unknown one, of a variable that a statement uses; commit, rollback"""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET hivevar:who=world")
        cursor.execute("SELECT 'hello ${hivevar:who}', '${nothing}'")
        equal(cursor.fetchall(), [("hello world", "${nothing}")])
        cursor.execute("SET no.such.name")
        equal(cursor.fetchall(), [("no.such.name is undefined",)])
        equal(cursor.description[0][0], "set")
        connection.commit()
        raises(Exception, connection.rollback)


program.run()
