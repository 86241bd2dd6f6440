"""Runs the client programs beside it against a server that speaks PostgreSQL's protocol, or Hive's, and says how each went.

usage: run.py HOST PORT USER [--database NAME] [--flight PORT] [--hive PORT] [--only NAME]... [--more] [--keep-going] [--known FILE] [--tls] [--trace FOLDER] [--list]

The password is $PGPASSWORD; the clients are where scripts/clients.sh has put them, and those of --more where scripts/more-clients.sh has. Exit status: 0 if all went well, 1 if not.
"""

import argparse
import os
import subprocess
import sys
import threading
import time

from trace import Proxy

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENTS = os.environ.get("HARRIER_CLIENTS") or os.path.join(HERE, "../../.harrier/clients")
MORE_CLIENTS = os.environ.get("HARRIER_MORE_CLIENTS") or os.path.join(HERE, "../../.harrier/more-clients")
NAMES = ["psql", "psycopg", "asyncpg", "sqlalchemy", "node", "pgjdbc", "pyodbc", "pgbench", "pgcli", "sqlline", "jupysql", "adbc", "dbt", "peewee", "tortoise", "django", "builders", "flightsql"]
# Clients of HiveServer2.
HIVE_NAMES = ["pyhive", "impyla", "hive_sqlalchemy", "hivejdbc"]
# Those that take long to install.
MORE_NAMES = ["go", "tools", "activerecord", "php", "postgres", "frames", "drizzle_kit"]
# What all the checks of one client may take; each check has a limit of its own.
CLIENT_SECONDS_MAX = 900
# Messages shown of a check that failed; the file has all of them.
TRACE_LINES = 30


def command(name):
    if name == "pgjdbc":
        return ["java", "-cp", os.path.join(CLIENTS, "java/postgresql.jar"), os.path.join(HERE, "CheckPgjdbc.java")]
    if name == "hivejdbc":
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
        return ["java", *options, "-cp", os.path.join(CLIENTS, "java/hive-jdbc.jar"), os.path.join(HERE, "CheckHiveJdbc.java")]
    if name == "go":
        return [os.path.join(MORE_CLIENTS, "go/clients")]
    if name == "tools":
        return ["java", "-XX:TieredStopAtLevel=1", "-cp", os.path.join(MORE_CLIENTS, "java/classes") + ":" + os.path.join(MORE_CLIENTS, "java/*"), "CheckTools"]
    programs = {"activerecord": ["ruby", "-W0", "check_activerecord.rb"], "php": ["php", "check_php.php"]}
    programs |= {script: ["node", f"check_{script}.js"] for script in ["node", "builders", "drizzle_kit"]}
    environment = "hive" if name in HIVE_NAMES else "python"
    *words, script = programs.get(name, [os.path.join(folder(name), environment, "bin/python3"), f"check_{name}.py"])
    return words + [os.path.join(HERE, script)]


def folder(name):
    """Where the client of this name was installed."""
    return MORE_CLIENTS if name in MORE_NAMES else CLIENTS


class Trace:
    """What passes a proxy, cut where a check ends."""

    def __init__(self, folder, name, host, port):
        self.lines, self.folder, self.name, self.count = [], folder, name, 0
        self.proxy = Proxy(host, port, self.lines.append)

    def cut(self, failed):
        """Ends the trace of one check; prints its end and keeps all of it if the check has failed."""
        lines, self.lines[:] = list(self.lines), []
        if not failed:
            return
        self.count += 1
        path = os.path.join(self.folder, f"{self.name}-{self.count}.trace")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        last = max((number for number, line in enumerate(lines) if " ← ErrorResponse " in line), default=len(lines) - 1)
        for line in lines[max(0, last - TRACE_LINES + 6):last + 6]:
            print(f"        | {line[:400]}", flush=True)
        print(f"        the messages are in {path}", flush=True)


def run(name, arguments):
    """Runs one client; returns how many of its checks went well, how many did not, and its own name with its version."""
    port, trace = arguments.port, None
    database = arguments.database
    if name == "flightsql":
        port = arguments.flight
    elif name in HIVE_NAMES:
        port, database = arguments.hive, "default"
    elif arguments.trace:
        trace = Trace(arguments.trace, name, arguments.host, port)
        port = trace.proxy.port
    # What the caller has set for his own clients would change what ours do.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PG") or key == "PGPASSWORD"}
    environment |= {"HARRIER_CLIENTS": folder(name), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}
    # One port takes all transports.
    environment |= {"HIVE_HTTP_PORT": str(arguments.hive or 0)}
    if arguments.tls and not trace:
        environment["CLIENTS_TLS"] = "1"
    host = "127.0.0.1" if trace else arguments.host
    words = command(name) + [host, str(port), arguments.user, database] + (["--keep-going"] if arguments.keep_going else [])
    program = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace", env=environment)
    limit = threading.Timer(CLIENT_SECONDS_MAX, program.kill)
    limit.start()
    known = {line for client, line in arguments.differences if client == name}
    good, bad, client, failing = 0, 0, name, False
    for line in program.stdout:
        if failing and not line.startswith("        ") and trace:
            trace.cut(True)
            failing = False
        if line.startswith("client  "):
            client = line[8:].strip()
        elif line.startswith("ok      "):
            good += 1
            # The time that it took stands behind it.
            if line[8:].rpartition(" (")[0] in known:
                print(f"better  a known difference is none any more: {line[8:].rstrip()}", flush=True)
            if trace:
                trace.cut(False)
        elif line.startswith("FAILED  ") and line[8:].rstrip() in known:
            line = "known   " + line[8:]
        elif line.startswith("FAILED  "):
            bad += 1
            failing = True
        print(line, end="", flush=True)
    status = program.wait()
    limit.cancel()
    if failing and trace:
        trace.cut(True)
    if status and not bad and not known:
        print(f"FAILED  {name} ended with status {status}", flush=True)
        bad = 1
        if trace:
            trace.cut(True)
    return good, bad, client


def main():
    options = argparse.ArgumentParser(description="Runs the clients against a server.")
    options.add_argument("host")
    options.add_argument("port", type=int)
    options.add_argument("user")
    options.add_argument("--database", help="(default: the name of the user)")
    options.add_argument("--flight", type=int, metavar="PORT", help="the port of Arrow Flight SQL; without it that client is left out")
    options.add_argument("--hive", type=int, metavar="PORT", help="the port of HiveServer2; without it its clients are left out")
    options.add_argument("--only", action="append", metavar="NAME", choices=NAMES + HIVE_NAMES + MORE_NAMES, help="run this client; may be given again")
    options.add_argument("--more", action="store_true", help="run the clients that scripts/more-clients.sh installs, instead")
    options.add_argument("--keep-going", action="store_true", help="run the further checks of a client after one has failed")
    options.add_argument("--known", metavar="FILE", help="checks that are known to fail: the name of a client, a tab, the check, and behind another tab why")
    options.add_argument("--trace", metavar="FOLDER", help="write down the messages of the checks that fail")
    options.add_argument("--tls", action="store_true", help="the server encrypts: clients that ask for it have to get it")
    options.add_argument("--list", action="store_true", help="print the names of the clients and end")
    arguments = options.parse_args()
    arguments.database = arguments.database or arguments.user
    arguments.differences = []
    if arguments.known:
        with open(arguments.known, encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#")]
        arguments.differences = [(line[0], line[1]) for line in lines]
    if arguments.list:
        print("\n".join(MORE_NAMES if arguments.more else NAMES + HIVE_NAMES))
        return 0
    if arguments.trace:
        os.makedirs(arguments.trace, exist_ok=True)
    results = []
    for name in arguments.only or (MORE_NAMES if arguments.more else NAMES + HIVE_NAMES):
        if name == "flightsql" and arguments.flight is None:
            print("== flightsql: left out, no --flight PORT", flush=True)
            continue
        if name in HIVE_NAMES and arguments.hive is None:
            print(f"== {name}: left out, no --hive PORT", flush=True)
            continue
        print(f"== {name}", flush=True)
        started = time.monotonic()
        good, bad, client = run(name, arguments)
        results.append((client, good, bad, time.monotonic() - started))
    print("== summary")
    for client, good, bad, seconds in results:
        print(f"{'FAILED' if bad else 'ok':8}{client:42}{good:4} checks went well, {bad} failed, {seconds:.0f} s")
    return 1 if any(bad for _, _, bad, _ in results) or not results else 0


if __name__ == "__main__":
    sys.exit(main())
