"""PostgreSQL's own programs: postgres_fdw and dblink of a server of its own, pg_dump. usage: check_postgres.py HOST PORT USER [DATABASE]"""

import glob
import os
import pwd
import re
import shutil
import subprocess
import tempfile

import psycopg

from checks import Program, equal, holds, raises

BIN = max(glob.glob("/usr/lib/postgresql/*/bin") + glob.glob("/usr/pgsql-*/bin"), default="", key=lambda folder: int(re.search(r"\d+", folder).group()))
PROGRAM_SECONDS_MAX = 60

program = Program("PostgreSQL's postgres_fdw, dblink and pg_dump")


class Local:
    """A server of PostgreSQL in a folder of its own, which listens on a socket there and on nothing else."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="clients-")
        # It refuses to be run by root.
        self.user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        if self.user:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        self.run("initdb", "-A", "trust", "-U", "local", "--no-sync", "-D", f"{self.folder}/data")
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-w", "-l", f"{self.folder}/log", "-o", f"-F -k {self.folder} -c listen_addresses=''", "start")

    def run(self, name, *words):
        who = {"user": self.user.pw_uid, "group": self.user.pw_gid} if self.user else {}
        subprocess.run([f"{BIN}/{name}", *words], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=self.folder, timeout=PROGRAM_SECONDS_MAX, **who)

    def connect(self):
        return psycopg.connect(host=self.folder, user="local", dbname="postgres", autocommit=True, options="-c statement_timeout=60s")

    def stop(self):
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.folder)


def served():
    return psycopg.connect(host=program.host, port=program.port, user=program.user, password=program.password, dbname=program.database, autocommit=True)


def fill(connection):
    for statement in [
        "DROP SCHEMA IF EXISTS tools CASCADE", "CREATE SCHEMA tools",
        "CREATE TABLE tools.items (id int, name text, price numeric(10,2), at timestamp, ok boolean)",
        "INSERT INTO tools.items SELECT g, 'item ' || g, g * 1.5, timestamp '2024-01-01' + g * interval '1 day', g % 2 = 0 FROM generate_series(1, 100) AS g(g)",
        "CREATE VIEW tools.cheap AS SELECT id, name FROM tools.items WHERE price < 10",
    ]:
        connection.execute(statement)


def foreign(local, options=""):
    """A connection to the local server, which has the served tables as its own."""
    with served() as connection:
        fill(connection)
    connection = local.connect()
    password = f", password '{program.password}'" if program.password else ""
    for statement in [
        "DROP SCHEMA IF EXISTS far CASCADE", "DROP EXTENSION IF EXISTS postgres_fdw CASCADE", "CREATE EXTENSION postgres_fdw", "CREATE SCHEMA far",
        f"CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{program.host}', port '{program.port}', dbname '{program.database}'{options})",
        f"CREATE USER MAPPING FOR local SERVER far OPTIONS (user '{program.user}'{password})",
        "IMPORT FOREIGN SCHEMA tools FROM SERVER far INTO far",
    ]:
        connection.execute(statement)
    return connection


def rows(connection, query, arguments=None):
    return connection.execute(query, arguments).fetchall()


local = Local()


@program.check
def reading():
    """postgres_fdw: IMPORT FOREIGN SCHEMA, rows, conditions, joins, aggregates and LIMIT that are pushed down, parameters"""
    with foreign(local) as connection:
        equal(sorted(name for name, in rows(connection, "SELECT foreign_table_name FROM information_schema.foreign_tables")), ["cheap", "items"])
        equal(rows(connection, "SELECT count(*), sum(price)::text, max(at)::text FROM far.items"), [(100, "7575.00", "2024-04-10 00:00:00")])
        equal(rows(connection, "SELECT name FROM far.items WHERE id IN (3, 5) AND name LIKE 'item%' ORDER BY id DESC LIMIT 1 OFFSET 1"), [("item 3",)])
        equal(rows(connection, "SELECT ok, count(*) FROM far.items GROUP BY ok HAVING count(*) > 1 ORDER BY ok"), [(False, 50), (True, 50)])
        equal(rows(connection, "SELECT a.id FROM far.items a JOIN far.cheap b USING (id) WHERE a.id > %s ORDER BY a.id", [4]), [(5,), (6,)])
        equal(rows(connection, "SELECT name FROM far.items WHERE at = ANY(%s::timestamp[]) AND id = ANY(%s)", [["2024-01-02", "2024-01-05"], [1, 2]]), [("item 1",)])
        equal(rows(connection, "SELECT l.g, r.name FROM generate_series(1, 2) l(g) LEFT JOIN LATERAL (SELECT name FROM far.items WHERE id = l.g) r ON true ORDER BY 1"),
              [(1, "item 1"), (2, "item 2")])


@program.check
def estimating():
    """postgres_fdw: with use_remote_estimate, which reads EXPLAIN; ANALYZE of a foreign table"""
    with foreign(local, ", use_remote_estimate 'true'") as connection:
        equal(rows(connection, "SELECT count(*) FROM far.items WHERE id < 10"), [(9,)])
        connection.execute("ANALYZE far.items")
        equal(rows(connection, "SELECT reltuples::int FROM pg_class WHERE oid = 'far.items'::regclass"), [(100,)])


@program.check
def writing():
    """postgres_fdw: INSERT of one and of many rows with RETURNING, COPY; an error, and the connection after it; transactions"""
    with foreign(local) as connection:
        equal(rows(connection, "INSERT INTO far.items (id, name) VALUES (1000, 'new') RETURNING id, name"), [(1000, "new")])
        connection.execute("ALTER SERVER far OPTIONS (ADD batch_size '50')")
        connection.execute("INSERT INTO far.items (id, name) SELECT g, 'many' FROM generate_series(2001, 2100) g")
        with connection.cursor().copy("COPY far.items (id, name) FROM STDIN") as copy:
            copy.write("3000\tcopied\n")
        error = raises(psycopg.Error, lambda: connection.execute("SELECT 1 / (id - 1) FROM far.items WHERE id = 1"))
        equal(error.sqlstate, "22012")
        with connection.transaction(force_rollback=True):
            connection.execute("INSERT INTO far.items (id, name) VALUES (4000, 'undone')")
            with connection.transaction(force_rollback=True):
                connection.execute("INSERT INTO far.items (id, name) VALUES (4001, 'undone')")
        equal(rows(connection, "SELECT count(*) FROM far.items WHERE id >= 1000"), [(102,)])


@program.check
def changing():
    """postgres_fdw: UPDATE and DELETE that are pushed down"""
    with foreign(local) as connection:
        equal(connection.execute("UPDATE far.items SET name = 'changed' WHERE id <= 10").rowcount, 10)
        equal(rows(connection, "UPDATE far.items SET price = price + 1 WHERE id = 11 RETURNING price::text"), [("17.50",)])
        equal(connection.execute("DELETE FROM far.items WHERE id = 100").rowcount, 1)
        equal(rows(connection, "SELECT count(*), count(*) FILTER (WHERE name = 'changed') FROM far.items"), [(99, 10)])


@program.check
def changing_rows():
    """postgres_fdw: UPDATE and DELETE row by row, by ctid, where a condition or a value is of this side"""
    with foreign(local) as connection:
        equal(connection.execute("UPDATE far.items SET name = pg_backend_pid()::text WHERE id = 11").rowcount, 1)
        equal(connection.execute("DELETE FROM far.items USING generate_series(1, 5) g(g) WHERE id = g.g").rowcount, 5)
        equal(rows(connection, "SELECT count(*), count(*) FILTER (WHERE name = 'changed') FROM far.items"), [(95, 0)])


@program.check
def linking():
    """dblink: queries, commands, errors"""
    with served() as far:
        fill(far)
    with local.connect() as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS dblink")
        password = f" password={program.password}" if program.password else ""
        connection.execute("SELECT dblink_connect('far', %s)", [f"host={program.host} port={program.port} dbname={program.database} user={program.user}{password}"])
        equal(rows(connection, "SELECT * FROM dblink('far', 'SELECT id, name FROM tools.items WHERE id < 3 ORDER BY id') AS t(id int, name text)"), [(1, "item 1"), (2, "item 2")])
        equal(rows(connection, "SELECT dblink_exec('far', 'DELETE FROM tools.items WHERE id < 3')"), [("DELETE 2",)])
        equal(raises(psycopg.Error, lambda: connection.execute("SELECT * FROM dblink('far', 'SELECT * FROM nosuch') AS t(a int)")).sqlstate, "42P01")


def dump(*words):
    """What pg_dump writes, without what psql alone understands."""
    command = [f"{BIN}/pg_dump", "-h", program.host, "-p", str(program.port), "-U", program.user, "-d", program.database, *words]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PROGRAM_SECONDS_MAX, env={**os.environ, "PGCONNECT_TIMEOUT": "10"})
    holds(done.returncode == 0, done.stderr)
    return "\n".join(line for line in done.stdout.splitlines() if not re.match(r"\\(un)?restrict", line))


def dumped(*words):
    """The lines of it, without comments, settings and empty lines."""
    return [line for line in dump(*words).splitlines() if line and not re.match(r"--|SET |SELECT pg_catalog", line)]


@program.check
def dumping_a_schema():
    """pg_dump --schema-only of a schema: tables and views, which a server of PostgreSQL reads"""
    with served() as connection:
        fill(connection)
    lines = dumped("--schema-only", "--schema", "tools", "--no-owner")
    holds("CREATE TABLE tools.items (" in lines and "    price numeric(10,2)," in lines, "\n".join(lines))
    holds(any(line.startswith("CREATE VIEW tools.cheap AS") for line in lines), "\n".join(lines))
    with local.connect() as connection:
        connection.execute("DROP SCHEMA IF EXISTS tools CASCADE")
        connection.execute("\n".join(lines))
        equal(rows(connection, "SELECT id FROM tools.cheap"), [])


@program.check
def dumping_keys():
    """pg_dump of a table with a generated key, defaults, an index and a foreign key, with its rows, which a server of PostgreSQL reads"""
    with served() as connection:
        fill(connection)
        connection.execute("CREATE TABLE tools.makers (id serial PRIMARY KEY, name varchar(30) NOT NULL UNIQUE)")
        connection.execute("CREATE TABLE tools.parts (id bigint GENERATED BY DEFAULT AS IDENTITY, maker_id int REFERENCES tools.makers (id), name text DEFAULT 'part' NOT NULL)")
        connection.execute("CREATE INDEX parts_name ON tools.parts (name)")
        connection.execute("INSERT INTO tools.makers (name) VALUES ('a'), ('b')")
        connection.execute("INSERT INTO tools.parts (maker_id) VALUES (2)")
    text = dump("--schema", "tools", "--no-owner", "--inserts")
    with local.connect() as connection:
        connection.execute("DROP SCHEMA IF EXISTS tools CASCADE")
        connection.execute(text)
        connection.execute("SET search_path TO tools")
        equal(rows(connection, "INSERT INTO makers (name) VALUES ('c') RETURNING id"), [(3,)])
        equal(rows(connection, "INSERT INTO parts (maker_id) VALUES (3) RETURNING id, name"), [(2, "part")])
        equal(raises(psycopg.Error, lambda: connection.execute("INSERT INTO parts (maker_id) VALUES (9)")).sqlstate, "23503")
        equal(raises(psycopg.Error, lambda: connection.execute("INSERT INTO makers (name) VALUES ('a')")).sqlstate, "23505")


@program.check
def dumping_data():
    """pg_dump --data-only of a table, with COPY and with INSERT"""
    with served() as connection:
        fill(connection)
    lines = dumped("--data-only", "--table", "tools.items")
    equal(lines[:3], ["COPY tools.items (id, name, price, at, ok) FROM stdin;", "1\titem 1\t1.50\t2024-01-02 00:00:00\tf", "2\titem 2\t3.00\t2024-01-03 00:00:00\tt"])
    equal(len(lines), 102)
    lines = dumped("--data-only", "--table", "tools.items", "--column-inserts")
    equal(lines[1], "INSERT INTO tools.items (id, name, price, at, ok) VALUES (2, 'item 2', 3.00, '2024-01-03 00:00:00', true);")


program.run(local.stop)
