"""dbt with its adapter for PostgreSQL: the project in dbt/. usage: check_dbt.py HOST PORT USER [DATABASE]; dbt is in $HARRIER_CLIENTS/dbt"""

import json
import os
import subprocess
import tempfile

from checks import Program, equal, holds

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENTS = os.environ.get("HARRIER_CLIENTS") or os.path.join(HERE, "../../.harrier/clients")
program = Program("dbt with dbt-postgres")
TARGET = tempfile.mkdtemp(prefix="clients-dbt-")
ENVIRONMENT = {**os.environ, "PGHOST": program.host, "PGPORT": str(program.port), "PGUSER": program.user, "PGDATABASE": program.database, "DBT_TARGET_PATH": TARGET,
               "DBT_LOG_PATH": TARGET, "DBT_PROFILES_DIR": os.path.join(HERE, "dbt"), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}


def dbt(*arguments):
    """Runs dbt, which has to end well; where it does not, what it sent last is in its log."""
    ran = subprocess.run([os.path.join(CLIENTS, "dbt/bin/dbt"), "--no-use-colors", "--no-version-check", *arguments, "--project-dir", os.path.join(HERE, "dbt")],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)
    if ran.returncode:
        with open(os.path.join(TARGET, "dbt.log"), encoding="utf-8") as file:
            holds(False, f"{ran.stdout}\nthe end of dbt.log:\n{file.read()[-6000:]}")
    return ran.stdout


def psql(text):
    ran = subprocess.run(["psql", "--no-psqlrc", "-q", "-At", "-v", "ON_ERROR_STOP=1"], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    holds(ran.returncode == 0, ran.stderr)
    return ran.stdout


@program.check
def debugging():
    """dbt debug: the connection"""
    psql("DROP SCHEMA IF EXISTS dbt_matrix CASCADE;")
    holds("Connection test: [OK" in dbt("debug"), "the connection is tested")


@program.check
def seeding():
    """dbt seed: rows of a file, twice"""
    for _ in range(2):
        dbt("seed")
        equal(psql("SELECT count(*), sum(amount), min(day) FROM dbt_matrix.raw_orders;"), "5|33.50|1969-07-20\n")


@program.check
def running():
    """dbt run: views, tables, incremental models that append and that replace, ephemeral models; again, and again in full"""
    for options in [[], [], ["--full-refresh"]]:
        dbt("run", *options)
        equal(psql("SELECT customer, orders, total, first_day FROM dbt_matrix.customers ORDER BY customer;"), "1|2|30.75|1969-07-20\n2|2|2.75|2024-03-01\n3|1|0.00|2024-03-02\n")
        equal(psql("SELECT count(*) FROM dbt_matrix.appended; SELECT count(*), count(DISTINCT customer) FROM dbt_matrix.replaced; SELECT customer FROM dbt_matrix.best;"), "5\n3|3\n1\n")
    psql("INSERT INTO dbt_matrix.raw_orders VALUES (6, 3, '2024-04-01', 1.00, 'later');")
    dbt("run")
    equal(psql("SELECT count(*) FROM dbt_matrix.appended; SELECT last_day FROM dbt_matrix.replaced WHERE customer = 3; SELECT count(*) FROM dbt_matrix.replaced;"), "6\n2024-04-01\n3\n")


@program.check
def testing():
    """dbt test: unique, not_null, accepted_values, relationships"""
    holds("PASS=5" in dbt("test"), "all tests pass")


@program.check
def documenting():
    """dbt docs generate: the catalog of the schema with its columns and their types"""
    dbt("docs", "generate")
    with open(os.path.join(TARGET, "catalog.json"), encoding="utf-8") as file:
        nodes = json.load(file)["nodes"]
    equal(sorted(nodes), ["model.harrier_matrix." + name for name in ["appended", "best", "customers", "replaced", "stage_orders"]] + ["seed.harrier_matrix.raw_orders"])
    columns = nodes["seed.harrier_matrix.raw_orders"]["columns"]
    equal([(name, column["type"]) for name, column in columns.items()],
          [("id", "integer"), ("customer", "integer"), ("day", "date"), ("amount", "numeric(10,2)"), ("note", "text")])
    equal(nodes["model.harrier_matrix.stage_orders"]["metadata"]["type"], "VIEW")
    equal(nodes["model.harrier_matrix.customers"]["metadata"]["type"], "BASE TABLE")


@program.check
def showing():
    """dbt show and dbt build of one model"""
    holds("30.75" in dbt("show", "--select", "customers"), "rows are shown")
    dbt("build", "--select", "stage_orders+", "--exclude", "resource_type:snapshot")


@program.check
def snapshots():
    """dbt snapshot: history of changed rows by UPDATE and INSERT"""
    dbt("snapshot")
    psql("UPDATE dbt_matrix.raw_orders SET amount = 11.00 WHERE id = 1;")
    dbt("snapshot")
    equal(psql("SELECT count(*), count(dbt_valid_to) FROM dbt_matrix.orders_snapshot;"), "7|1\n")
    psql("DROP SCHEMA dbt_matrix CASCADE;")


program.run()
