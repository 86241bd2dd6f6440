"""JupySQL, the magics of notebooks for SQL, in IPython without a notebook. usage: check_jupysql.py HOST PORT USER [DATABASE]"""

import datetime
import decimal
import importlib.metadata
import os
import tempfile

# Neither a profile in the home folder nor a telemetry file is to be made.
os.environ.setdefault("IPYTHONDIR", tempfile.mkdtemp(prefix="clients-"))
os.environ["PLOOMBER_STATS_ENABLED"] = "false"
os.environ["HOME"] = os.environ["IPYTHONDIR"]

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from checks import Program, equal, holds, raises

program = Program(f"JupySQL {importlib.metadata.version('jupysql')} over psycopg")
shell = InteractiveShell.instance(colors="nocolor")


def cell(text):
    """The value of a cell; fails as the cell does."""
    with capture_output():
        ran = shell.run_cell(text, store_history=False)
    ran.raise_error()
    return ran.result


@program.check
def connecting():
    """%load_ext sql, connections, statements on a line and in a cell"""
    cell("%load_ext sql\n%config SqlMagic.displaycon = False\n%config SqlMagic.feedback = 0\n%config SqlMagic.displaylimit = 0")
    cell(f"%sql {program.url('postgresql+psycopg')} --alias warehouse")
    equal([tuple(row) for row in cell("%sql SELECT 1 AS one, 'ü' AS two")], [(1, "ü")])
    cell("%%sql\nDROP TABLE IF EXISTS jupysql_sales;\nCREATE TABLE jupysql_sales (id int, region text, amount numeric(10,2), day date);")
    cell("%%sql\nINSERT INTO jupysql_sales VALUES (1, 'north', 1.50, DATE '1969-07-20'), (2, 'south', 2.25, DATE '2024-02-29'), (3, 'north', 4.00, NULL)")
    rows = cell("%%sql\nSELECT region, CAST(count(*) AS int) AS n, sum(amount) AS total, min(day) AS day\nFROM jupysql_sales GROUP BY region ORDER BY region")
    equal([tuple(row) for row in rows], [("north", 2, decimal.Decimal("5.50"), datetime.date(1969, 7, 20)), ("south", 1, decimal.Decimal("2.25"), datetime.date(2024, 2, 29))])


@program.check
def variables():
    """variables in statements, results as variables, as DataFrames and as further queries"""
    cell("wanted = 'north'")
    equal([tuple(row) for row in cell("%sql SELECT id FROM jupysql_sales WHERE region = '{{wanted}}' ORDER BY id")], [(1,), (3,)])
    cell("%sql result << SELECT id, amount FROM jupysql_sales ORDER BY id")
    equal([tuple(row) for row in shell.user_ns["result"]], [(1, decimal.Decimal("1.50")), (2, decimal.Decimal("2.25")), (3, decimal.Decimal("4.00"))])
    frame = shell.user_ns["result"].DataFrame()
    equal([list(frame.columns), frame["id"].tolist()], [["id", "amount"], [1, 2, 3]])
    cell("%sql --save northern --no-execute SELECT * FROM jupysql_sales WHERE region = 'north'")
    equal([tuple(row) for row in cell("%sql --with northern SELECT CAST(count(*) AS int) FROM northern")], [(2,)])


@program.check
def frames():
    """pandas: a table written by to_sql, read by read_sql, and by --persist"""
    import pandas
    import sqlalchemy

    engine = sqlalchemy.create_engine(program.url("postgresql+psycopg"))
    frame = pandas.DataFrame({"n": range(500), "half": [n / 2 for n in range(500)], "name": [f"name {n}" if n % 3 else None for n in range(500)],
                              "at": pandas.date_range("1969-12-31 12:00", periods=500, freq="h")})
    for chunks in [None, 100]:
        frame.to_sql("jupysql_frame", engine, if_exists="replace", index=False, method="multi" if chunks else None, chunksize=chunks)
        back = pandas.read_sql("SELECT n, half, name, at FROM jupysql_frame ORDER BY n", engine)
        equal([back["n"].tolist(), back["half"].tolist(), back["at"].tolist()], [frame["n"].tolist(), frame["half"].tolist(), frame["at"].tolist()])
        equal([name if isinstance(name, str) else None for name in back["name"]], [f"name {n}" if n % 3 else None for n in range(500)])
    equal(len(pandas.read_sql_table("jupysql_frame", engine, columns=["n"])), 500)
    shell.user_ns["jupysql_kept"] = frame
    cell("%sql --persist-replace jupysql_kept --no-index")
    equal([tuple(row) for row in cell("%sql SELECT CAST(count(*) AS int), CAST(sum(n) AS int) FROM jupysql_kept")], [(500, 124750)])
    engine.dispose()


@program.check
def exploring():
    """%sqlcmd: tables, columns and a profile of a table"""
    holds("jupysql_sales" in str(cell("%sqlcmd tables")), "the tables")
    text = str(cell("%sqlcmd columns --table jupysql_sales"))
    holds(all(name in text for name in ["id", "region", "amount", "day", "INTEGER", "NUMERIC", "DATE"]), text)
    text = str(cell("%sqlcmd profile --table jupysql_sales"))
    holds("north" in text and "count" in text, text)


@program.check
def failing():
    """errors are shown and the session goes on; a rollback; the end"""
    for statement in ["SELECT nosuch FROM jupysql_sales", "SELECT * FROM jupysql_nosuch", "SELEC 1"]:
        raises(Exception, lambda: cell(f"%sql {statement}"), statement)
        equal([tuple(row) for row in cell("%sql SELECT 7 AS seven")], [(7,)])
    cell("%%sql\nDROP TABLE jupysql_sales;\nDROP TABLE jupysql_frame;\nDROP TABLE jupysql_kept")
    cell("%sql --close warehouse")


program.run()
