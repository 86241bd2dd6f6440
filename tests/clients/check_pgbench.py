"""pgbench with scripts of ours, in each of its protocols. usage: check_pgbench.py HOST PORT USER [DATABASE]"""

import glob
import os
import re
import shutil
import subprocess

from checks import Program, equal, holds

PGBENCH = shutil.which("pgbench") or sorted(glob.glob("/usr/lib/postgresql/*/bin/pgbench") + glob.glob("/usr/pgsql-*/bin/pgbench"))[-1]
VERSION = subprocess.run([PGBENCH, "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
program = Program(f"pgbench {VERSION}")
SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pgbench")
ENVIRONMENT = {**os.environ, "PGHOST": program.host, "PGPORT": str(program.port), "PGUSER": program.user, "PGDATABASE": program.database, "LC_ALL": "C.UTF-8"}


def psql(*options):
    ran = subprocess.run(["psql", "--no-psqlrc", "-q", "-At", "-v", "ON_ERROR_STOP=1", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)
    holds(ran.returncode == 0, ran.stdout)
    return ran.stdout


def pgbench(script, protocol, clients, transactions, *options):
    """Runs a script; all its transactions have to succeed."""
    ran = subprocess.run([PGBENCH, "--no-vacuum", "--file", os.path.join(SCRIPTS, script), "--protocol", protocol, "--client", str(clients), "--jobs", str(min(clients, 2)),
                          "--transactions", str(transactions), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)
    holds(ran.returncode == 0, ran.stdout)
    done = re.search(r"number of transactions actually processed: (\d+)/(\d+)", ran.stdout)
    equal(done and done.group(1), str(clients * transactions), ran.stdout)
    failed = re.search(r"number of failed transactions: (\d+)", ran.stdout)
    holds(failed is None or failed.group(1) == "0", ran.stdout)
    speed = re.search(r"tps = ([0-9.]+)", ran.stdout).group(1)
    print(f"        {script}, {protocol}, {clients} clients: {float(speed):.0f} transactions per second", flush=True)


@program.check
def loading():
    """the schema of the scripts is made by psql"""
    psql("-f", os.path.join(SCRIPTS, "schema.sql"))
    equal(psql("-c", "SELECT (SELECT count(*) FROM bench_customers), (SELECT count(*) FROM bench_orders), (SELECT count(*) FROM bench_items)"), "1000|10000|40000\n")


@program.check
def protocols():
    """point lookups, small aggregates and the mix, in the simple, extended and prepared protocol"""
    for protocol in ["simple", "extended", "prepared"]:
        pgbench("point.sql", protocol, 4, 50)
        pgbench("aggregate.sql", protocol, 4, 10)
        pgbench("mix.sql", protocol, 2, 10)


@program.check
def many_clients():
    """32 clients at once; a connection for each transaction; a rate; several scripts with weights"""
    pgbench("point.sql", "prepared", 32, 10)
    pgbench("point.sql", "extended", 4, 5, "--connect")
    pgbench("point.sql", "simple", 4, 10, "--rate", "100", "--report-per-command")
    pgbench("point.sql", "prepared", 4, 20, "--file", os.path.join(SCRIPTS, "aggregate.sql") + "@3")


@program.check
def writing():
    """transactions that write and read what they have written"""
    psql("-c", "DROP TABLE IF EXISTS bench_written", "-c", "CREATE TABLE bench_written (client int, value int)")
    for protocol in ["simple", "extended", "prepared"]:
        # More than one try, because a server may refuse one of two commits that meet.
        pgbench("write.sql", protocol, 2, 10, "--max-tries", "20")
    equal(psql("-c", "SELECT count(*) FROM bench_written"), "60\n")
    psql("-c", "DROP TABLE bench_written; DROP TABLE bench_customers; DROP TABLE bench_orders; DROP TABLE bench_items")


program.run()
