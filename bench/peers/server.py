"""What peers of `harrier bench serve` share: how they say that they are ready, and when they end.

A server is started with HARRIER_BENCH_DATA, the folder with the tables of TPC-H (`<table>/` or `<table>.parquet`), and
HARRIER_BENCH_FOLDER, an empty one of its own. It prints one line of JSON when clients may come,

    {"engine": "duckdb 2.0.0", "protocol": "postgresql" or "hive", "port": 5432, "user": "…", "database": "…"}

on a port of 127.0.0.1, and ends with its standard input. A line "cancel" there asks it to end all statements that run; a server
that clients can ask for that themselves need not heed it.
"""

import glob
import json
import os
import sys

TABLES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]


def tables():
    """The tables: names, and patterns of their Parquet files."""
    data = os.environ["HARRIER_BENCH_DATA"]
    for table in TABLES:
        folder = os.path.join(data, table)
        yield table, os.path.join(folder, "*.parquet") if os.path.isdir(folder) else folder + ".parquet"


def folder():
    return os.environ["HARRIER_BENCH_FOLDER"]


def serve(replies, cancel, **facts):
    """Says that the server is ready and blocks until it has to end."""
    print(json.dumps(facts), file=replies, flush=True)
    for line in sys.stdin:
        if line.strip() == "cancel":
            cancel()


def own_output():
    """Standard output for the line alone: what libraries print goes to standard error."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return replies


def files(pattern):
    found = sorted(glob.glob(pattern))
    if not found:
        raise SystemExit(f"no file {pattern}")
    return found
