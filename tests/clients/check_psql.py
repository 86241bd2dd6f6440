"""psql: as a script, in a pipe and in a terminal. usage: check_psql.py HOST PORT USER [DATABASE]"""

import os
import re
import signal
import subprocess
import time

import pexpect

from checks import Program, equal, holds, scratch

VERSION = subprocess.run(["psql", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
program = Program(f"psql {VERSION}")
LONG = "SELECT count(*) FROM generate_series(1, 200000) AS a(x), generate_series(1, 200000) AS b(y) WHERE a.x <> b.y + 7"
ENVIRONMENT = {
    **os.environ, "PGHOST": program.host, "PGPORT": str(program.port), "PGUSER": program.user, "PGDATABASE": program.database,
    "PSQLRC": "/dev/null", "PSQL_HISTORY": "/dev/null", "PAGER": "cat", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "PGCONNECT_TIMEOUT": "10",
}


def psql(text, *options, status=0, **environment):
    """What psql prints for these lines, of errors too; fails unless it ends with this status."""
    ran = subprocess.run(["psql", "--no-psqlrc", *options], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True, env={**ENVIRONMENT, **environment})
    holds(ran.returncode == status, f"psql ended with status {ran.returncode}, not {status}, and printed\n{ran.stdout}")
    return ran.stdout


def plain(text, *options, **others):
    return psql(text, "--quiet", "--no-align", "--tuples-only", *options, **others)


@program.check
def connecting():
    """connect with sslmode disable, prefer and allow; \\conninfo; a database that is not there"""
    for mode in program.ssl_modes:
        equal(plain("SELECT 1", PGSSLMODE=mode), "1\n")
    holds(f'as user "{program.user}"' in psql("\\conninfo"), "\\conninfo tells the user")
    text = psql("SELECT 1", "-d", "no such database", status=2)
    holds("no such database" in text, f"the database is named: {text}")
    holds(plain("\\echo :SERVER_VERSION_NUM").strip() >= "140000", "psql knows the version of the server")


@program.check
def printing():
    """aligned, unaligned, CSV, expanded and HTML output, column alignment by type, NULL"""
    text = psql("\\pset null -\nSELECT 1 AS n, 'ä\"b' AS t, NULL AS nothing, CAST(1.50 AS numeric(10,2)) AS price, true AS ok, DATE '1969-07-20' AS day;")
    equal(text, 'Null display is "-".\n n |  t  | nothing | price | ok |    day     \n---+-----+---------+-------+----+------------\n'
                ' 1 | ä"b | -       |  1.50 | t  | 1969-07-20\n(1 row)\n\n')
    equal(psql("SELECT 1 AS a, 'x,y' AS b UNION ALL SELECT 2, 'z' ORDER BY 1", "--csv"), 'a,b\n1,"x,y"\n2,z\n')
    equal(psql("SELECT 1 AS a, 'x' AS b \\gx"), "-[ RECORD 1 ]\na | 1\nb | x\n\n")
    equal(psql("SELECT 1 AS one WHERE false;"), " one \n-----\n(0 rows)\n\n")


@program.check
def values():
    """every scalar type as text"""
    equal(plain(
        "SELECT true, CAST(-32768 AS smallint), 2147483647, 9223372036854775807, CAST(1.5 AS real), CAST(0.1 AS double precision),"
        " CAST('-0.0100' AS numeric(10,4)), 'it''s', CAST('\\x00ff' AS bytea);\n"
        "SELECT DATE '0001-01-01', DATE '1969-12-31', TIME '23:59:59.999999', TIMESTAMP '1900-01-01 00:00:00.5', TIMESTAMP '2024-02-29 12:00:00';\n"
        "SET TimeZone = 'Asia/Tokyo'; SELECT TIMESTAMPTZ '2024-01-15 12:00:00+00', TIMESTAMPTZ '1969-12-31 23:00:00-05';\n"
        "SET TimeZone = 'Asia/Kolkata'; SELECT TIMESTAMPTZ '2024-01-15 12:00:00.123+00';\n"
        "SELECT CAST('NaN' AS double precision), CAST('Infinity' AS real), CAST('-Infinity' AS double precision), CAST(1e300 AS double precision), CAST(1e-7 AS double precision);\n"
        "SELECT INTERVAL '1 year 2 months 3 days 04:05:06.5', INTERVAL '-1 day', INTERVAL '90 minutes';\n"
        "SELECT ARRAY[1, 2, NULL], ARRAY['a', 'b c', 'd\"e', NULL, ''], ARRAY[ARRAY[1, 2], ARRAY[3, 4]];\n"
    ),
        "t|-32768|2147483647|9223372036854775807|1.5|0.1|-0.0100|it's|\\x00ff\n"
        "0001-01-01|1969-12-31|23:59:59.999999|1900-01-01 00:00:00.5|2024-02-29 12:00:00\n"
        "2024-01-15 21:00:00+09|1970-01-01 13:00:00+09\n"
        "2024-01-15 17:30:00.123+05:30\n"
        "NaN|Infinity|-Infinity|1e+300|1e-07\n"
        "1 year 2 mons 3 days 04:05:06.5|-1 days|01:30:00\n"
        '{1,2,NULL}|{a,"b c","d\\"e",NULL,""}|{{1,2},{3,4}}\n')


@program.check
def failing():
    """errors: the line and the caret, verbose with SQLSTATE and hint, \\errverbose, ON_ERROR_STOP and the status of psql"""
    text = psql("SELECT 1,\n  nosuch FROM generate_series(1, 2) AS g(x);")
    equal(text.splitlines()[0], 'ERROR:  column "nosuch" does not exist')
    equal(text.splitlines()[1:3], ["LINE 2:   nosuch FROM generate_series(1, 2) AS g(x);", "          ^"])
    text = psql("\\set VERBOSITY verbose\nSELECT * FROM psql_nosuch;\n\\echo :LAST_ERROR_SQLSTATE :SQLSTATE :ERROR")
    holds(text.startswith('ERROR:  42P01: relation "psql_nosuch" does not exist'), f"the code is printed: {text}")
    equal(text.splitlines()[-1], "42P01 42P01 true")
    text = psql("\\set VERBOSITY sqlstate\nSELECT 1/0;")
    equal(text, "ERROR:  22012\n")
    holds("42P01" in psql("SELECT * FROM psql_nosuch;\n\\errverbose"), "\\errverbose tells the code")
    text = psql("SELECT 1/0;\nSELECT 'after';", "-v", "ON_ERROR_STOP=1", status=3)
    holds("after" not in text, "psql stops at an error")
    text = psql("SELECT 1/0;\nSELECT 'af' || 'ter';")
    holds("after" in text, "the session goes on after an error")
    psql("", "-c", "SELECT 1/0", status=1)


@program.check
def many_statements():
    """-c with several statements, \\; between statements, --single-transaction, scripts from files"""
    text = psql("", "-c", "SELECT 1 AS a; SELECT 2 AS b", "-A", "-t")
    equal(text, "1\n2\n")
    equal(plain("SELECT 1\\; SELECT 2\\; SELECT 3;"), "1\n2\n3\n")
    psql("DROP TABLE IF EXISTS psql_single; CREATE TABLE psql_single (id int)", "-q", "--no-psqlrc")
    psql("INSERT INTO psql_single VALUES (1);\nSELECT 1/0;\nINSERT INTO psql_single VALUES (2);", "--single-transaction", "-v", "ON_ERROR_STOP=1", status=3)
    psql("", "-c", "INSERT INTO psql_single VALUES (3); SELECT 1/0", status=1)
    equal(plain("SELECT count(*) FROM psql_single"), "0\n")
    path = scratch("script.sql")
    with open(path, "w", encoding="utf-8") as file:
        file.write("-- a comment\nINSERT INTO psql_single VALUES (4), (5); /* another */\nSELECT sum(id)\nFROM psql_single;\nDROP TABLE psql_single;\n")
    equal(psql("", "-f", path), "INSERT 0 2\n sum \n-----\n   9\n(1 row)\n\nDROP TABLE\n")


@program.check
def definitions():
    """tags of statements; \\d, \\d+, \\dt, \\dt+, \\dv, \\d of a view, \\dn, patterns"""
    text = psql(
        "DROP VIEW IF EXISTS psql_view; DROP TABLE IF EXISTS psql_table;\n"
        "CREATE TABLE psql_table (id bigint NOT NULL, small smallint, n int, ok boolean, r real, f double precision, price numeric(12,2), name text,"
        " raw bytea, day date, at time, ts timestamp, tz timestamptz);\n"
        "CREATE VIEW psql_view AS SELECT id, name FROM psql_table;\n"
        "INSERT INTO psql_table (id, name) VALUES (1, 'a'), (2, 'b');", "-v", "ON_ERROR_STOP=1")
    equal([line for line in text.splitlines() if "NOTICE" not in line][-3:], ["CREATE TABLE", "CREATE VIEW", "INSERT 0 2"])
    schema = plain("SELECT current_schema()").strip()
    title = f'Table "{schema}.psql_table"'.center(72).rstrip()
    equal(psql("\\d psql_table"), f'''\
{title}
 Column |            Type             | Collation | Nullable | Default 
--------+-----------------------------+-----------+----------+---------
 id     | bigint                      |           | not null | 
 small  | smallint                    |           |          | 
 n      | integer                     |           |          | 
 ok     | boolean                     |           |          | 
 r      | real                        |           |          | 
 f      | double precision            |           |          | 
 price  | numeric(12,2)               |           |          | 
 name   | text                        |           |          | 
 raw    | bytea                       |           |          | 
 day    | date                        |           |          | 
 at     | time without time zone      |           |          | 
 ts     | timestamp without time zone |           |          | 
 tz     | timestamp with time zone    |           |          | 

''')
    text = psql("\\d psql_view")
    holds(f'View "{schema}.psql_view"' in text and "bigint" in text, text)
    text = psql("\\d+ psql_view")
    holds("View definition:" in text and "psql_table" in text, f"\\d+ tells how a view is defined: {text}")
    holds("psql_table" in psql("\\sv psql_view"), "\\sv shows the view")
    holds(f'Table "{schema}.psql_table"' in psql("\\d+ psql_table"), "\\d+ of a table")
    equal(plain("\\dt psql_t*"), f"{schema}|psql_table|table|{program.user}\n")
    equal(plain("\\dv psql_*"), f"{schema}|psql_view|view|{program.user}\n")
    equal(plain(f"\\dt {schema}.psql_table").split("|")[1], "psql_table")
    holds("psql_table" in plain("\\dt") and "psql_view" in plain("\\d"), "\\dt and \\d list all")
    holds(re.search(r"psql_table\|table\|[^|]*\|permanent\|", plain("\\dt+ psql_table")), f"\\dt+ tells more: {plain(chr(92) + 'dt+ psql_table')}")
    holds(schema in plain("\\dn"), "\\dn lists the schema")
    equal(psql("\\d psql_nosuch"), 'Did not find any relation named "psql_nosuch".\n')
    equal(psql("\\dt psql_nosuch"), 'Did not find any relation named "psql_nosuch".\n')


@program.check
def describing():
    """\\l, \\du, \\dg, \\df, \\da, \\do, \\dT, \\dC, \\dp, \\z, \\dS, \\dconfig, \\db, \\dL, \\dx, \\drds, \\dRp, \\dy and others answer"""
    holds(program.database in plain("\\l"), "\\l lists the database")
    holds(program.user in plain("\\du"), "\\du lists the user")
    holds("psql_table" in plain("\\dp psql_table"), "\\dp")
    holds("psql_table" in plain("\\z psql_*"), "\\z")
    holds("pg_class" in plain("\\dtS pg_class"), "\\dtS lists pg_class")
    holds("abs" in plain("\\df pg_catalog.abs"), "\\df abs")
    holds("count" in plain("\\da count"), "\\da count")
    holds("bigint" in plain("\\dT bigint") or "int8" in plain("\\dT bigint"), "\\dT bigint")
    for command in ["\\dn+", "\\l+", "\\du+", "\\dg", "\\do =", "\\dC", "\\dc", "\\dD", "\\db", "\\dL", "\\dx", "\\drds", "\\dRp", "\\dRs", "\\dy", "\\des",
                    "\\dew", "\\det", "\\deu", "\\dF", "\\dFd", "\\dFp", "\\dFt", "\\dO", "\\dA", "\\dl", "\\ddp", "\\dconfig server_version", "\\dP",
                    "\\dX", "\\dE", "\\dm", "\\di", "\\ds", "\\dd", "\\dTS int*", "\\dfS lower", "\\dvS pg_tables", "\\dt *.*", "\\d pg_catalog.pg_class",
                    "\\d information_schema.tables", "\\dS+ pg_type"]:
        text = psql(command)
        holds("ERROR" not in text, f"{command}: {text}")
    for command in ["\\di psql_*", "\\ds psql_*", "\\dm psql_*"]:
        equal(psql(command).splitlines()[0], 'Did not find any relation named "%s".' % command.split()[1], command)


@program.check
def describing_queries():
    """\\gdesc of statements, with and without parameters; \\gset, \\gexec, \\crosstabview"""
    equal(plain("SELECT CAST(1 AS int) AS n, 'x' AS t, 1.5::numeric(10,2) AS p, now() AS z, CAST(ARRAY[1] AS int[]) AS a, DATE '2024-01-01' AS d, 2.5::float8 AS f \\gdesc"),
          "n|integer\nt|text\np|numeric(10,2)\nz|timestamp with time zone\na|integer[]\nd|date\nf|double precision\n")
    equal(plain("SELECT id, name FROM psql_table \\gdesc"), "id|bigint\nname|text\n")
    equal(psql("SET timezone = 'UTC' \\gdesc"), "The command has no result, or the result has no columns.\n")
    equal(plain("SELECT 42 AS answer, 'x' AS letter \\gset got_\n\\echo :got_answer :'got_letter'"), "42 'x'\n")
    equal(plain("SELECT 'SELECT ' || x FROM generate_series(1, 3) AS g(x) ORDER BY x \\gexec"), "1\n2\n3\n")
    text = psql("SELECT v, h, n FROM (VALUES ('a', 'x', 1), ('a', 'y', 2), ('b', 'x', 3)) AS t(v, h, n) ORDER BY v, h \\crosstabview")
    equal(text, " v | x | y \n---+---+---\n a | 1 | 2\n b | 3 |  \n(2 rows)\n\n")
    equal(plain("\\set name 'a''b'\nSELECT :'name', length(:'name');\nSELECT 1 AS :\"name\";\n\\if :{?name}\nSELECT 'yes';\n\\endif"), "a'b|3\n1\nyes\n")


@program.check
def preparing():
    """PREPARE with and without types, EXECUTE, DEALLOCATE, in a session"""
    equal(psql("PREPARE p (int, text) AS SELECT $1 + 1 AS n, upper($2) AS t;\nEXECUTE p (41, 'ä');\nEXECUTE p (NULL, NULL);\nDEALLOCATE p;\nEXECUTE p (1, 'x');", "-At"),
          'PREPARE\n42|Ä\n|\nDEALLOCATE\nERROR:  prepared statement "p" does not exist\n')
    equal(plain("PREPARE i AS INSERT INTO psql_table (id, name) VALUES ($1, $2);\nEXECUTE i (10, 'ten');\nSELECT name FROM psql_table WHERE id = 10;"), "ten\n")


@program.check
def cursors():
    """DECLARE, FETCH, MOVE and CLOSE; FETCH_COUNT, which reads through a cursor"""
    equal(psql("BEGIN;\nDECLARE c CURSOR FOR SELECT x FROM generate_series(1, 5) AS g(x) ORDER BY x;\nFETCH 2 FROM c;\nMOVE c;\nFETCH ALL FROM c;\nCLOSE c;\nCOMMIT;", "-At"),
          "BEGIN\nDECLARE CURSOR\n1\n2\nMOVE 1\n4\n5\nCLOSE CURSOR\nCOMMIT\n")
    text = plain("\\set FETCH_COUNT 100\nSELECT x FROM generate_series(1, 1050) AS g(x) ORDER BY x;")
    equal(text.split(), [str(n) for n in range(1, 1051)])


@program.check
def copying():
    """\\copy to and from files, COPY FROM STDIN in a script, COPY TO STDOUT, a program, errors"""
    path = scratch("rows.csv")
    equal(psql("DROP TABLE IF EXISTS psql_copy;\nCREATE TABLE psql_copy (id int, name text, day date);", "-q").count("ERROR"), 0)
    text = psql("COPY psql_copy FROM STDIN;\n1\tone\t1969-07-20\n2\t\\N\t\\N\n3\ttab\\tbs\\\\\t2024-02-29\n\\.\nSELECT count(*) FROM psql_copy;", "-At")
    equal(text, "COPY 3\n3\n")
    equal(plain("COPY (SELECT * FROM psql_copy ORDER BY id) TO STDOUT;"), "1\tone\t1969-07-20\n2\t\\N\t\\N\n3\ttab\\tbs\\\\\t2024-02-29\n")
    equal(psql(f"\\copy (SELECT * FROM psql_copy ORDER BY id) TO '{path}' WITH (FORMAT csv, HEADER)"), "COPY 3\n")
    with open(path, encoding="utf-8") as file:
        equal(file.read(), "id,name,day\n1,one,1969-07-20\n2,,\n3,tab\tbs\\,2024-02-29\n")
    equal(psql(f"\\copy psql_copy FROM '{path}' WITH (FORMAT csv, HEADER)"), "COPY 3\n")
    equal(psql("\\copy psql_copy (id, name) FROM PROGRAM 'echo \"7;seven\"' WITH (FORMAT csv, DELIMITER ';')"), "COPY 1\n")
    equal(psql(f"\\copy psql_copy TO '{path}' CSV HEADER"), "COPY 7\n")
    text = psql("COPY psql_copy FROM STDIN;\n1\tone\n\\.\nSELECT 'goes on';", "-At")
    holds("ERROR:  missing data for column \"day\"" in text and "goes on" in text and "CONTEXT:  COPY psql_copy, line 1" in text, text)
    text = psql("\\copy psql_nosuch FROM '/dev/null'", status=0)
    holds('relation "psql_nosuch" does not exist' in text, text)
    psql("DROP TABLE psql_copy")


@program.check
def transactions():
    """BEGIN, errors (25P02), savepoints, ON_ERROR_ROLLBACK, AUTOCOMMIT off, and what the prompt is told"""
    text = psql("DROP TABLE IF EXISTS psql_t; CREATE TABLE psql_t (id int);\nBEGIN;\nINSERT INTO psql_t VALUES (1);\nSELECT 1/0;\nSELECT 1;\nCOMMIT;\nSELECT count(*) FROM psql_t;", "-At", "-q")
    equal([line for line in text.splitlines() if "NOTICE" not in line],
          ["ERROR:  division by zero", "ERROR:  current transaction is aborted, commands ignored until end of transaction block", "0"])
    text = psql("\\set ON_ERROR_ROLLBACK on\nBEGIN;\nINSERT INTO psql_t VALUES (1);\nSELECT 1/0;\nINSERT INTO psql_t VALUES (2);\nCOMMIT;\nSELECT count(*) FROM psql_t;", "-At", "-q")
    equal(text.splitlines()[-1], "2")
    text = psql("\\set AUTOCOMMIT off\nINSERT INTO psql_t VALUES (3);\nROLLBACK;\nSELECT count(*) FROM psql_t;\nINSERT INTO psql_t VALUES (4);", "-At", "-q")
    equal(text.splitlines()[-1], "2")
    text = psql("BEGIN;\nSAVEPOINT a;\nDELETE FROM psql_t;\nROLLBACK TO a;\nSELECT count(*) FROM psql_t;\nEND;\nDROP TABLE psql_t;", "-At", "-q")
    equal(text.splitlines()[-1], "2")


@program.check
def settings():
    """SET, SHOW, \\encoding, PGOPTIONS, PGTZ, PGAPPNAME, PGCLIENTENCODING; statement_timeout"""
    equal(plain("SHOW application_name; SHOW timezone; SHOW statement_timeout;", PGAPPNAME="mine", PGTZ="Asia/Tokyo", PGOPTIONS="-c statement_timeout=12s"),
          "mine\nAsia/Tokyo\n12s\n")
    equal(plain("\\encoding"), "UTF8\n")
    equal(plain("SHOW application_name"), "psql\n")
    text = psql(f"SET statement_timeout = 300;\n{LONG};\nSELECT 'go' || 'ing';", "-At", "-q")
    equal(text, "ERROR:  canceling statement due to statement timeout\ngoing\n")


@program.check
def explaining():
    """EXPLAIN, EXPLAIN ANALYZE and its options as rows of one column"""
    for statement in ["EXPLAIN SELECT 1", "EXPLAIN ANALYZE SELECT count(*) FROM psql_table", "EXPLAIN (VERBOSE) SELECT * FROM psql_table"]:
        text = psql(statement)
        holds("QUERY PLAN" in text and "ERROR" not in text, text)


@program.check
def watching():
    """\\watch repeats a query until Ctrl-C"""
    running = subprocess.Popen(["psql", "--no-psqlrc", "-At"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env=ENVIRONMENT)
    running.stdin.write("SELECT 'ti' || 'ck' \\watch 0.2\n")
    running.stdin.flush()
    ticks = 0
    while ticks < 3:
        line = running.stdout.readline()
        holds(line, "psql ended")
        ticks += "tick" in line
    running.send_signal(signal.SIGINT)
    running.stdin.close()
    running.wait(timeout=20)
    running.stdout.close()


@program.check
def cancelling():
    """Ctrl-C cancels the statement of a script"""
    running = subprocess.Popen(["psql", "--no-psqlrc", "-At"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env=ENVIRONMENT)
    running.stdin.write(f"\\echo begins\n{LONG};\n")
    running.stdin.flush()
    equal(running.stdout.readline(), "begins\n")
    time.sleep(1)
    started = time.monotonic()
    running.send_signal(signal.SIGINT)
    text, _ = running.communicate(timeout=60)
    holds(time.monotonic() - started < 20, "the statement ends soon")
    equal(text.splitlines(), ["Cancel request sent", "ERROR:  canceling statement due to user request"])


@program.check
def completing():
    """in a terminal: tab completion of tables, columns, schemas, settings and functions; the prompt of a transaction; Ctrl-C"""
    terminal = pexpect.spawn("psql", ["--no-psqlrc", "-v", "PROMPT1=%R%x> ", "-v", "PROMPT2=%R%x> "], env={**ENVIRONMENT, "TERM": "dumb"}, encoding="utf-8",
                             timeout=40, dimensions=(40, 200))
    terminal.expect("=> ")

    def completes(typed, wanted):
        terminal.send(typed + "\t\t")
        try:
            terminal.expect(re.escape(wanted))
        except pexpect.TIMEOUT:
            holds(False, f"{typed!r} is not completed to {wanted!r}: {terminal.before!r}")
        # Readline drops a Ctrl-C that comes while psql asks the server for completions: a second one is pressed, as people do.
        for _ in range(8):
            terminal.sendcontrol("c")
            if terminal.expect(["=> ", pexpect.TIMEOUT], timeout=5) == 0:
                return
        holds(False, f"no prompt after {typed!r}: {terminal.before!r}")

    completes("SELECT * FROM psql_ta", "psql_table")
    completes("SELECT * FROM psql_vi", "psql_view")
    completes("INSERT INTO psql_ta", "psql_table")
    completes("UPDATE psql_ta", "psql_table")
    completes("UPDATE psql_table SET pri", "price")
    completes("ALTER TABLE psql_table DROP COLUMN pri", "price")
    completes("DROP VIEW psql_v", "psql_view")
    completes("\\d psql_ta", "psql_table")
    completes("\\dv psql_v", "psql_view")
    completes("SHOW statement_ti", "statement_timeout")
    completes("SET search_pa", "search_path")
    completes("SELECT * FROM information_sc", "information_schema.")
    completes("\\df pg_catalog.repl", "replace")
    terminal.sendline("BEGIN;")
    terminal.expect(r"=\*> ")
    terminal.sendline("SELECT 1/0;")
    terminal.expect("division by zero")
    terminal.expect("=!> ")
    terminal.sendline("ROLLBACK;")
    terminal.expect("=> ")
    terminal.sendline(LONG + ";")
    time.sleep(1.5)
    terminal.sendcontrol("c")
    terminal.expect("canceling statement due to user request")
    terminal.expect("=> ")
    terminal.sendline("\\q")
    terminal.expect(pexpect.EOF)


@program.check
def large_results():
    """a million rows into a file"""
    path = scratch("large.csv")
    psql(f"\\o {path}\nSELECT x, x % 10 AS y FROM generate_series(1, 1000000) AS g(x);", "--csv", "-t")
    with open(path, encoding="utf-8") as file:
        equal(sum(1 for _ in file), 1_000_000)
    psql("DROP VIEW psql_view; DROP TABLE psql_table;")


program.run()
