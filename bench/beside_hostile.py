#!/usr/bin/env python3
"""How long others wait for `SELECT 1` while a role without privileges sends statements that would end, stop or fill the server.

usage: beside_hostile.py [--harrier PROGRAM] [--memory BYTES] [--ranks N] [--clients N] [--rounds N]

Starts a server with a warehouse of its own, in a control group with so many bytes of memory (2 GiB) and as many for its
operators as the server then chooses by itself. Where no control group can be made the server's own limit is all there is, which
is told. One client after the other sends each hostile statement, with a timeout of 20 s; meanwhile N clients (4) of another
role ask `SELECT 1` over and over. Told are, for statements that are deep, for those that fill memory, and without any: how many
answers there were, p50, p99 and the longest in milliseconds, of the hostile statements the codes that they ended with, and the
most memory that the group had. The statements are of the kinds of crates/harrier/tests/serve/denial_of_service.rs and memory_exhaustion.rs.
"""

import argparse
import collections
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import threading
import time

import psycopg

TIMEOUT = "20s"
QUIET_SECONDS = 5
START_SECONDS = 60


def nested(start, inner, end, depth):
    return start * depth + inner + end * depth


def many(count, text, between):
    return between.join(text.format(at=at) for at in range(count))


def deep():
    rows = "FROM generate_series(1, 2) AS t(g)"
    yield f"SELECT {many(2000, '1', ' + ')}"
    yield f"SELECT {many(10000, '1', ' + ')}"
    yield f"SELECT length({many(5000, 'g::text', ' || ')}) {rows}"
    yield f"SELECT count(*) {rows} WHERE {many(20000, 'g = {at}', ' OR ')}"
    yield f"SELECT count(*) {rows} WHERE " + many(500, "g::text LIKE '%{at}'", " OR ")
    yield f"SELECT 1{'::int' * 2000}"
    yield f"SELECT count(*) FROM ({many(1000, 'SELECT 1', ' UNION ALL ')}) AS t"
    yield many(500, "SELECT 1", " EXCEPT ")
    ctes = ", ".join(f"c{at} AS (SELECT {'1 AS a' if at == 0 else f'a + 1 AS a FROM c{at - 1}'})" for at in range(1000))
    yield f"WITH {ctes} SELECT * FROM c999"
    yield "SELECT now()" + " AT TIME ZONE 'UTC'" * 300
    for start, inner, end, depth in [
        ("(", "1", ")", 1000),
        ("abs(", "1", ")", 100),
        ("abs(", "1", ")", 300),
        ("coalesce(1, ", "1", ")", 90),
        ("CASE WHEN g > 0 THEN abs(", "g", ") ELSE 0 END", 90),
        ("CASE WHEN g > 0 THEN ", "g", " ELSE 0 END", 1000),
        ("(SELECT ", "1", ")", 16),
        ("ARRAY[", "1", "]", 300),
    ]:
        yield f"SELECT {nested(start, inner, end, depth)} {rows}"


def filling():
    rows = "FROM generate_series(1, 100000) AS t(g)"
    yield "SELECT array_length(array_repeat(1, 2000000000), 1)"
    yield "SELECT array_length(range(1, 4000000000), 1)"
    yield "SELECT sum(length(repeat('x', 100000000))) FROM generate_series(1, 1000)"
    yield "SELECT length(replace(repeat('x', 1000000), 'x', repeat('y', 10000)))"
    yield "WITH RECURSIVE r(n) AS (SELECT 'x' UNION ALL SELECT n || n FROM r) SELECT max(length(n)) FROM r"
    yield f"SELECT length(string_agg(repeat('x', 100000), ',')) {rows}"
    yield f"SELECT repeat('x', 500000 + g::int) {rows}"
    yield f"SELECT array_agg(g) OVER () {rows}"
    yield "SELECT count(*) FROM (SELECT unnest(array_repeat(repeat('x', 100000), 100000))) AS t"
    yield "CREATE TEMP TABLE t AS SELECT repeat('x', 100000 + g::int) FROM generate_series(1, 100000) AS s(g)"
    yield "SELECT count(*) FROM generate_series(1, 5000000) a(x) JOIN generate_series(1, 5000000) b(y) ON a.x = b.y"
    yield "SELECT count(*) FROM (SELECT DISTINCT x, repeat('y', 100) FROM generate_series(1, 20000000) AS t(x)) AS q"


class Group:
    """A control group of memory, of the first or the second version; without one nothing is limited."""

    def __init__(self, limit):
        name = f"harrier-beside-hostile-{os.getpid()}"
        self.folder, self.peak = None, None
        for root, bound, peak in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
        ]:
            folder = pathlib.Path(root) / name
            if not (pathlib.Path(root) / "cgroup.procs").exists():
                continue
            try:
                folder.mkdir()
                (folder / bound).write_text(str(limit))
            except OSError:
                if folder.exists():
                    folder.rmdir()
                continue
            self.folder, self.peak = folder, folder / peak
            return

    def enter(self):
        if self.folder:
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def told(self):
        if not self.folder:
            return "no control group could be made: memory was not limited"
        peak = int(self.peak.read_text()) >> 20 if self.peak.exists() else "?"
        return f"the most memory of the group: {peak} MiB"

    def remove(self):
        if self.folder:
            self.folder.rmdir()


def start(options, group, folder):
    log = open(folder / "log", "w", encoding="utf-8")
    arguments = [options.harrier, "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    arguments += ["--warehouse", str(folder / "warehouse"), "--memory", str(options.memory // 2)]
    arguments += ["--ranks", str(options.ranks)] if options.ranks else ["--launcher", "none"]
    server = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=group.enter, start_new_session=True
    )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = re.search(r"ready: psql -h 127.0.0.1 -p (\d+)", server.stdout.readline())
        if found:
            threading.Thread(target=server.stdout.read, daemon=True).start()
            return server, int(found[1])
    raise SystemExit("the server did not start")


def connect(port, user):
    return psycopg.connect(f"host=127.0.0.1 port={port} user={user} dbname=warehouse", autocommit=True)


def beside(port, clients, attack):
    """Returns milliseconds of each answer, and failures, while `attack` runs."""
    over, times, failures = threading.Event(), [], []

    def ask():
        try:
            with connect(port, "other") as connection:
                while not over.is_set():
                    begun = time.monotonic()
                    connection.execute("SELECT 1").fetchall()
                    times.append((time.monotonic() - begun) * 1000)
        except psycopg.Error as error:
            failures.append(error.sqlstate or str(error))

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    attack()
    over.set()
    for thread in threads:
        thread.join()
    return times, failures


def main():
    options = argparse.ArgumentParser(description="Times SELECT 1 beside hostile statements.")
    options.add_argument("--harrier", default="target/release/harrier")
    options.add_argument("--memory", type=int, default=2 << 30, help="bytes of the control group")
    options.add_argument("--ranks", type=int, default=0, help="of the gang; 0: one process")
    options.add_argument("--clients", type=int, default=4)
    options.add_argument("--rounds", type=int, default=1)
    options = options.parse_args()
    group = Group(options.memory)
    with tempfile.TemporaryDirectory() as folder:
        server, port = start(options, group, pathlib.Path(folder))
        try:
            with connect(port, os.environ.get("USER", "root")) as admin:
                admin.execute("CREATE ROLE low LOGIN")
                admin.execute("CREATE ROLE other LOGIN")
            codes = collections.Counter()

            def send(statements):
                for sql in [sql for _ in range(options.rounds) for sql in statements]:
                    # A session of its own for each: what one leaves behind is not to be met by the next.
                    with connect(port, "low") as connection:
                        connection.execute(f"SET statement_timeout = '{TIMEOUT}'")
                        try:
                            for _ in connection.cursor().stream(sql) if sql.startswith("SELECT repeat") else connection.execute(sql):
                                pass
                            codes["answered"] += 1
                        except psycopg.ProgrammingError as error:
                            codes[error.sqlstate or "answered"] += 1
                        except psycopg.Error as error:
                            codes[error.sqlstate or "lost"] += 1

            print("| beside | answers | p50, ms | p99, ms | longest, ms | failures | codes of the statements |")
            print("|---|---|---|---|---|---|---|")
            for name, attack in [
                ("nothing", lambda: time.sleep(QUIET_SECONDS)),
                ("deep statements", lambda: send(list(deep()))),
                ("statements that fill memory", lambda: send(list(filling()))),
            ]:
                codes.clear()
                times, failures = beside(port, options.clients, attack)
                p99 = statistics.quantiles(times, n=100)[98] if len(times) > 1 else float("nan")
                told = ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))
                longest, middle = max(times, default=float("nan")), statistics.median(times or [float("nan")])
                print(
                    f"| {name} | {len(times)} | {middle:.1f} | {p99:.1f} | {longest:.1f} | {len(failures)} | {told} |", flush=True
                )
            print(f"\n{group.told()}; the server {'has ended' if server.poll() is not None else 'runs'}")
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            time.sleep(1)
    group.remove()


main()
