#!/usr/bin/env python3
"""How long servers of PostgreSQL's protocol take to plan long statements, side by side.

usage: long_statements.py [--runs N] CONNECTION CONNECTION...

Each CONNECTION is what psycopg connects by, such as "host=127.0.0.1 port=5432 dbname=warehouse". Every statement is sent as
EXPLAIN to one server after the other, N times (3), on connections that have planned something before. Told are medians in
milliseconds from the statement's first byte to the last line of the plan, and their ratio to the last server's; or the code of
the error that a server answers with: 57014 where it takes longer than 20 s, of which one run is made.
"""

import argparse
import statistics
import time

import psycopg


def statements():
    def many(count, text, between):
        return between.join(text.format(at=at) for at in range(count))

    columns = many(60, "x + {at} AS c{at}", ", ")
    ordered = f"(SELECT {columns} FROM (VALUES (1), (2), (3)) AS t(x) ORDER BY c1)"
    one = "FROM (SELECT 1::bigint AS x) AS t"
    yield "sum of 500 integers", f"SELECT {many(500, 'x', ' + ')} {one}"
    yield "sum of 2000 integers", f"SELECT {many(2000, 'x', ' + ')} {one}"
    yield "product of 500 integers", f"SELECT {many(500, 'x', ' * ')} {one}"
    yield "sum of 500 numerics", f"SELECT {many(500, 'x', ' + ')} FROM (SELECT 1.5::numeric(10, 2) AS x) AS t"
    yield "300 casts", f"SELECT x{'::int::bigint' * 150} {one}"
    yield "300 AT TIME ZONE", "SELECT x" + " AT TIME ZONE 'UTC'" * 300 + " FROM (SELECT now() AS x) AS t"
    case = "x"
    for _ in range(40):
        case = f"CASE WHEN x > 0 THEN abs({case}) ELSE 0 END"
    yield "40 levels of CASE with calls", f"SELECT {case} {one}"
    yield "500 texts put together", f"SELECT length({many(500, 'x', ' || ')}) FROM (SELECT 'ab'::text AS x) AS t"
    yield "5000 texts put together", f"SELECT length({many(5000, 'x', ' || ')}) FROM (SELECT 'ab'::text AS x) AS t"
    yield "20 000 conditions with OR", f"SELECT count(*) {one} WHERE {many(20000, 'x = {at}', ' OR ')}"
    yield "500 queries with UNION ALL", many(500, "SELECT {at}", " UNION ALL ")
    ctes = ", ".join(f"c{at} AS (SELECT {'1 AS a' if at == 0 else f'a + 1 AS a FROM c{at - 1}'})" for at in range(1000))
    yield "1000 common table expressions", f"WITH {ctes} SELECT * FROM c999"
    yield "60 ordered queries of 60 columns with UNION ALL", f"SELECT * FROM ({many(60, ordered, ' UNION ALL ')}) AS u ORDER BY c1 LIMIT 3"


def milliseconds(connection, sql):
    """Returns the time, or the code of an error."""
    start = time.monotonic()
    try:
        connection.execute(f"EXPLAIN {sql}").fetchall()
    except psycopg.Error as error:
        connection.rollback()
        return error.sqlstate or "lost"
    return (time.monotonic() - start) * 1000


def main():
    options = argparse.ArgumentParser(description="Times EXPLAIN of long statements on several servers.")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("connections", nargs="+", metavar="CONNECTION")
    options = options.parse_args()
    servers = [psycopg.connect(connection, autocommit=True) for connection in options.connections]
    for server in servers:
        server.execute("SET statement_timeout = '20s'")
        milliseconds(server, "SELECT 1")
    print("| statement | " + " | ".join(f"{at}, ms" for at in range(1, len(servers) + 1)) + " | ratio |")
    print("|---|" + "---|" * (len(servers) + 1))
    for name, sql in statements():
        runs = []
        while len(runs) < options.runs:
            runs.append([milliseconds(server, sql) for server in servers])
            if "57014" in runs[-1]:
                break
        figures = []
        for of_server in zip(*runs):
            codes = [run for run in of_server if isinstance(run, str)]
            figures.append(codes[0] if codes else statistics.median(of_server))
        shown = [figure if isinstance(figure, str) else f"{figure:.0f}" for figure in figures]
        numbers = [figure for figure in (figures[0], figures[-1]) if not isinstance(figure, str)]
        ratio = f"{numbers[0] / numbers[1]:.1f}" if len(numbers) == 2 else ""
        print(f"| {name} | {' | '.join(shown)} | {ratio} |", flush=True)


main()
