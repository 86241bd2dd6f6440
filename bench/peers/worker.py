"""A peer's side of a benchmark: requests on standard input, replies on standard output, one JSON object a line.

The lines are described in crates/bench/src/protocol.rs. An engine is a class with a `name`, and

    table(name, path)   makes a Parquet file, or a folder of them (its path ends with a slash), known under a name
    run(sql)            runs one statement and returns all its rows as a pyarrow.Table
"""

import json
import os
import sys
import time


def serve(engine):
    # What libraries print must not come between the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def reply(**fields):
        print(json.dumps(fields), file=replies, flush=True)

    reply(engine=engine.name)
    rows = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "tables" in request:
                for name, path in request["tables"].items():
                    engine.table(name, path)
                reply(ok=True)
            elif "run" in request:
                # What the last statement left must not be freed on this one's time.
                rows = None
                sql = request["run"].rstrip().rstrip(";")
                start = time.perf_counter()
                rows = engine.run(sql)
                reply(wall_s=time.perf_counter() - start, rows=rows.num_rows)
            else:
                columns = [[text(value) for value in column.to_pylist()] for column in rows.columns]
                reply(answer=[list(row) for row in zip(*columns)])
        except Exception as error:
            reply(error=f"{type(error).__name__}: {error}")


def text(value):
    """A value as Harrier prints it; what is not a number or a string prints itself (dates as 1995-03-05)."""
    return None if value is None else str(value)


def threads(description):
    """The number of threads from the command line."""
    import argparse

    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of the engine")
    return parser.parse_args().threads
