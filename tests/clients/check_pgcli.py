"""pgcli, a shell that completes from what it has read of the catalog. usage: check_pgcli.py HOST PORT USER [DATABASE]"""

import os
import subprocess
import sys
import tempfile
import time

import pexpect
import pgcli

from checks import Program, equal, holds

program = Program(f"pgcli {pgcli.__version__}")
HOME = tempfile.mkdtemp(prefix="clients-pgcli-")
ENVIRONMENT = {**os.environ, "HOME": HOME, "XDG_CONFIG_HOME": HOME, "TERM": "xterm", "LC_ALL": "C.UTF-8", "PAGER": "cat", "EDITOR": "true"}
COMMAND = [os.path.join(os.path.dirname(sys.executable), "pgcli"), "-h", program.host, "-p", str(program.port), "-u", program.user, "-d", program.database]
LONG = "SELECT count(*) FROM generate_series(1, 200000) AS a(x), generate_series(1, 200000) AS b(y) WHERE a.x <> b.y + 7"


def psql(text):
    ran = subprocess.run(["psql", "--no-psqlrc", "-q", "-h", program.host, "-p", str(program.port), "-U", program.user, "-d", program.database, "-At", "-v", "ON_ERROR_STOP=1"],
                         input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    holds(ran.returncode == 0, ran.stdout)
    return ran.stdout


@program.check
def completing():
    """the queries that pgcli's completer asks: schemas, tables, views, columns, functions, types, databases, foreign keys"""
    from pgcli.completion_refresher import CompletionRefresher
    from pgcli.pgexecute import PGExecute
    from prompt_toolkit.document import Document

    psql("DROP VIEW IF EXISTS pgcli_view; DROP TABLE IF EXISTS pgcli_table; CREATE TABLE pgcli_table (id int, price numeric(10,2));"
         " CREATE VIEW pgcli_view AS SELECT id FROM pgcli_table;")
    execute = PGExecute(program.database, program.user, program.password, program.host, program.port)
    schema = execute.search_path()[-1] if "public" not in execute.search_path() else "public"
    holds(schema in execute.schemata(), f"schemata: {execute.schemata()}")
    holds((schema, "pgcli_table") in list(execute.tables()), "tables")
    holds((schema, "pgcli_view") in list(execute.views()), "views")
    columns = [tuple(row)[:4] for row in execute.table_columns() if row[1] == "pgcli_table"]
    equal(columns, [(schema, "pgcli_table", "id", "integer"), (schema, "pgcli_table", "price", "numeric")])
    equal([tuple(row)[2] for row in execute.view_columns() if row[1] == "pgcli_view"], ["id"])
    equal([row for row in execute.foreignkeys() if "pgcli_table" in row], [])
    holds(program.database in execute.databases(), "databases")
    list(execute.functions())
    list(execute.datatypes())
    list(execute.casing())
    finished = []
    CompletionRefresher().refresh(execute, None, finished.append, settings={})
    deadline = time.monotonic() + 30
    while not finished and time.monotonic() < deadline:
        time.sleep(0.05)
    holds(finished, "the completer is filled")
    text = "SELECT * FROM pgcli_t"
    words = [completion.text for completion in finished[0].get_completions(Document(text, len(text)), None)]
    holds("pgcli_table" in words, f"completions of {text}: {words[:10]}")
    text = "SELECT * FROM pgcli_table WHERE pri"
    words = [completion.text for completion in finished[0].get_completions(Document(text, len(text)), None)]
    holds("price" in words, f"completions of {text}: {words[:10]}")


@program.check
def terminal():
    """in a terminal: statements, several in a line, errors, Ctrl-C, transactions, \\d, \\dt, \\l, \\timing"""
    # The prompt asks the terminal where its cursor stands, which is answered here as a terminal does.
    child = pexpect.spawn(COMMAND[0], COMMAND[1:] + ["--no-password", "--prompt", "READY> ", "--less-chatty"], env=ENVIRONMENT, encoding="utf-8", timeout=40, dimensions=(50, 200))

    def expect(pattern):
        while True:
            try:
                if child.expect([pattern, r"\x1b\[6n"]) == 0:
                    return
            except pexpect.TIMEOUT:
                holds(False, f"no {pattern!r} in {child.before[-800:]!r}")
            child.send("\x1b[1;1R")

    def says(line, *patterns):
        child.send(line + "\r")
        for pattern in patterns:
            expect(pattern)

    expect("READY>")
    says("SELECT 20 + 22 AS answer, 'ü' || 'x' AS t;", r"\| 42 ", "SELECT 1")
    says("SELECT 1 AS a; SELECT 'sec' || 'ond' AS b;", "second")
    says("SELECT * FROM pgcli_nosuch;", 'relation "pgcli_nosuch" does not exist')
    says("\\d pgcli_table", "price", r"numeric\(10,2\)")
    says("\\dt pgcli_*", "pgcli_table")
    says("\\dv pgcli_*", "pgcli_view")
    says("\\l", "Encoding")
    says("\\dn", "Owner")
    says("\\du", program.user)
    says("BEGIN;", "BEGIN")
    says("INSERT INTO pgcli_table VALUES (1, 2.5);", "INSERT 0 1")
    says("ROLLBACK;", "ROLLBACK")
    says("SELECT count(*) + 100 AS n FROM pgcli_table;", r"\| 100 ")
    # Before there is a prompt, Ctrl-C would only empty the line that is to be sent.
    expect("READY>")
    child.send(LONG + ";\r")
    running = "SELECT count(*) FROM sys.statements WHERE state = 'running' AND text LIKE 'SELECT count(*) FROM generate_series(1, 200000)%';"
    deadline = time.monotonic() + 40
    while psql(running) != "1\n":
        holds(time.monotonic() < deadline, "the statement does not begin")
        if child.expect([r"\x1b\[6n", pexpect.TIMEOUT], timeout=0.1) == 0:
            child.send("\x1b[1;1R")
    child.sendintr()
    expect("(?i)cancel")
    # What is typed before the next prompt is thrown away with the line that Ctrl-C ended.
    expect("READY>")
    says("SELECT 'go' || 'ing' AS again;", "going")
    child.send("\\q\r")
    child.expect(pexpect.EOF)
    psql("DROP VIEW pgcli_view; DROP TABLE pgcli_table;")


program.run()
