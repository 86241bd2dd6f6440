"""Runs test files that others wrote against a Harrier that serves, with a PostgreSQL beside it that says what is right.

    harrier serve --warehouse scratch --listen 127.0.0.1:5433 --http off
    python tests/others/run.py --harrier 'host=127.0.0.1 port=5433 user=postgres' --postgres 'host=127.0.0.1 port=5432 user=postgres' FOLDER…

A file is one of sqllogictest, as SQLite has them (`statement ok`, `query IRT rowsort`, `skipif`, `hash-threshold`, a value on each line) or as
DataFusion has (a row on each line, `statement error`). Needs psycopg 3. A record is

- right: as the file says, or as PostgreSQL answers where the file is about another database;
- refused: an error where PostgreSQL has none, by SQLSTATE;
- wrong: another answer than both;
- left out: PostgreSQL refuses it and Harrier answers otherwise than the file, or refuses it, too; the file says that it is not for PostgreSQL, or
  that it is an error or a plan.

Both start anew for every file, whose tables are temporary unless it has views. With `--records N` only the first N records of each file are run. Prints wrong records, refused ones by SQLSTATE,
and a line of totals. Ends with status 1 if anything was wrong.
"""

import argparse
import collections
import hashlib
import pathlib
import re
import sys

import psycopg

SCHEMA = "others"


class Failed(Exception):
    """A statement that was refused: its SQLSTATE, and the message."""

    def __init__(self, result):
        self.state = (result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b"08006").decode()
        message = result.error_field(psycopg.pq.DiagnosticField.MESSAGE_PRIMARY) or b"the connection is lost"
        super().__init__(message.decode(errors="replace"))


class Session:
    def __init__(self, parameters):
        self.parameters, self.connection = parameters, None

    def begin(self, has_views):
        """Goes on with no tables. With views they are in a schema of their own, otherwise they end with the session."""
        if self.connection is not None:
            self.connection.close()
        self.connection = psycopg.connect(self.parameters, autocommit=True)
        self.makes = "CREATE TABLE" if has_views else "CREATE TEMPORARY TABLE"
        schema = [f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}", f"SET search_path = {SCHEMA}"]
        for statement in ["SET statement_timeout = '60s'", "SET client_min_messages = 'warning'"] + schema * has_views:
            self.run(statement)

    def run(self, sql):
        """Rows of texts, None for NULL. Raises Failed."""
        connection = self.connection.pgconn
        result = connection.exec_(re.sub(r"^CREATE TABLE", self.makes, sql).encode())
        if result.status == psycopg.pq.ExecStatus.TUPLES_OK:
            return [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
        if result.status in (psycopg.pq.ExecStatus.COMMAND_OK, psycopg.pq.ExecStatus.EMPTY_QUERY):
            return []
        raise Failed(result)


Record = collections.namedtuple("Record", "line kind types sort sql expected")


def records(path):
    """The records of a file that are for PostgreSQL, and how many are not."""
    blocks, block, start = [], [], 1
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if line.strip():
            if not block:
                start = number
            block.append(line)
        elif block:
            blocks.append((start, block))
            block = []
    if block:
        blocks.append((start, block))
    found, others = [], 0
    for start, lines in blocks:
        is_ours = True
        while lines and (lines[0].startswith("#") or lines[0].split()[0] in ("onlyif", "skipif")):
            words = lines[0].split()
            if words[0] == "onlyif":
                is_ours &= words[1] == "postgresql"
            elif words[0] == "skipif":
                is_ours &= words[1] != "postgresql"
            lines = lines[1:]
        if not lines:
            continue
        words = lines[0].split("#")[0].split()
        if words[0] == "halt" and is_ours:
            break
        if words[0] not in ("statement", "query"):
            continue
        if not is_ours:
            others += 1
            continue
        if words[0] == "statement":
            if words[1] == "error":
                others += 1
                continue
            found.append(Record(start, "statement", "", "", "\n".join(lines[1:]), None))
            continue
        divider = lines.index("----") if "----" in lines else len(lines)
        if words[1] == "error":
            others += 1
            continue
        sort = words[2] if len(words) > 2 else "nosort"
        sql = "\n".join(lines[1:divider])
        # Plans are everyone's own.
        if re.match(r"\s*EXPLAIN\b", sql, re.IGNORECASE):
            others += 1
            continue
        found.append(Record(start, "query", words[1], sort, sql, lines[divider + 1 :]))
    return found, others


def shown(value, kind):
    """A value as SQLite's program prints one of a kind, and DataFusion's one of another."""
    if value is None:
        return "NULL"
    text = value.decode(errors="replace")
    text = {"t": "1", "f": "0"}.get(text, text) if kind in "IR" else text
    try:
        if kind == "I":
            return str(int(float(text))) if not text.lstrip("-").isdigit() else str(int(text))
        if kind == "R":
            return f"{float(text):.3f}"
    except (ValueError, OverflowError):
        return text
    if kind == "B":
        return {"t": "true", "f": "false"}.get(text, text)
    return "".join(sign if " " <= sign <= "~" else "@" for sign in text) or "(empty)"


def sorted_rows(rows, record):
    kinds = record.types + "T" * (len(rows[0]) - len(record.types) if rows else 0)
    rows = [[shown(value, kind) for value, kind in zip(row, kinds)] for row in rows]
    return sorted(rows) if record.sort == "rowsort" else rows


def values_of(rows, record):
    values = [value for row in rows for value in row]
    return sorted(values) if record.sort == "valuesort" else values


def is_as_expected(rows, record):
    values, expected = values_of(rows, record), record.expected
    if len(expected) == 1 and " values hashing to " in expected[0]:
        count, digest = expected[0].split(" values hashing to ")
        hashed = hashlib.md5("".join(value + "\n" for value in values).encode()).hexdigest()
        return len(values) == int(count) and hashed == digest
    lines = [" ".join(row) for row in rows]
    as_numbers = lambda lines: [rounded(line) for line in lines]
    return values == expected or as_numbers(lines) == as_numbers(sorted(expected) if record.sort == "rowsort" else expected)


def rounded(line):
    """A line with its numbers as they are shown here, and times as PostgreSQL shows them."""
    line = re.sub(r"(\d\d\d\d-\d\d-\d\d)T(\d\d)", r"\1 \2", line)
    return re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda number: f"{float(number.group()):.3f}", line)


def attempt(session, record):
    try:
        return session.run(record.sql), None
    except Failed as failed:
        return None, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--harrier", required=True)
    parser.add_argument("--postgres", required=True)
    parser.add_argument("--records", type=int, default=sys.maxsize)
    parser.add_argument("--shown", type=int, default=20, help="wrong records that are printed")
    parser.add_argument("places", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    paths = [path for place in options.places for path in ([place] if place.is_file() else sorted([*place.rglob("*.test"), *place.rglob("*.slt")]))]
    harrier, postgres = Session(options.harrier), Session(options.postgres)
    counts, refused, examples = collections.Counter(), collections.Counter(), {}
    for path in paths:
        found, others = records(path)
        counts["left out"] += others
        has_views = any(record.sql.upper().startswith("CREATE VIEW") for record in found)
        harrier.begin(has_views)
        postgres.begin(has_views)
        for record in found[: options.records]:
            rows, failed = attempt(harrier, record)
            true_rows, truly_failed = attempt(postgres, record)
            where = f"{path}:{record.line}"
            shown_rows = sorted_rows(rows, record) if rows is not None else None
            if truly_failed is not None:
                is_right = failed is None and record.kind == "query" and is_as_expected(shown_rows, record)
                counts["right" if is_right else "left out"] += 1
                continue
            if failed is not None:
                counts["refused"] += 1
                refused[failed.state] += 1
                examples.setdefault((failed.state, str(failed)[:40]), f"{where}: {failed}")
                if failed.state in ("08006", "57P01"):
                    harrier.begin(has_views)
                continue
            true_rows = sorted_rows(true_rows, record)
            if record.kind == "statement" or shown_rows == true_rows or is_as_expected(shown_rows, record):
                counts["right"] += 1
                continue
            if values_of(shown_rows, record) == values_of(true_rows, record):
                counts["right"] += 1
                continue
            counts["wrong"] += 1
            if counts["wrong"] <= options.shown:
                print(f"WRONG {where}\n{record.sql}\n  harrier    {shown_rows[:6]}\n  postgresql {true_rows[:6]}")
        print(f"{path}: {dict(counts)}", file=sys.stderr, flush=True)
    for (state, _), example in sorted(examples.items()):
        print(f"refused {state} {example}")
    print(f"refused by SQLSTATE: {dict(refused)}")
    total = counts["right"] + counts["refused"] + counts["wrong"]
    shares = ", ".join(f"{counts[kind]} {kind} ({100 * counts[kind] / max(total, 1):.3f} %)" for kind in ("right", "refused", "wrong"))
    print(f"{len(paths)} files, {total} records: {shares}; {counts['left out']} left out")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
