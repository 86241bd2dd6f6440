"""asyncpg: types that it looks up, parameters without a type, pools. usage: check_asyncpg.py HOST PORT USER [DATABASE]"""

import asyncio
import datetime
import decimal

import asyncpg

from checks import Program, equal, holds

program = Program(f"asyncpg {asyncpg.__version__}")


def connect(**options):
    return asyncpg.connect(
        host=program.host, port=program.port, user=program.user, password=program.password or None,
        database=program.database, timeout=10, **options
    )


def check(function):
    """A check that is given a connection."""

    def run():
        async def connected():
            connection = await connect()
            try:
                await function(connection)
            finally:
                await connection.close()

        asyncio.run(connected())

    run.__doc__ = function.__doc__
    return program.check(run)


async def fails(code, statement):
    try:
        result = await statement
    except asyncpg.PostgresError as error:
        equal(error.sqlstate, code, str(error))
        return
    holds(False, f"expected {code}, got {result!r}")


@check
async def arrays(connection):
    """arrays of every type there and back; their types are looked up in the catalogs"""
    cases = [
        ("int4", [1, None, -2]), ("int8", [2**40]), ("int2", []), ("text", ["a,b", '"', None]), ("float8", [1.5]), ("bool", [True, False]),
        ("numeric", [decimal.Decimal("1.50")]), ("date", [datetime.date(2024, 2, 29)]), ("timestamp", [datetime.datetime(2024, 2, 29, 1, 2)]),
        ("oid", [23, 25]), ("name", ["x"]),
    ]
    for name, values in cases:
        equal(await connection.fetchval(f"SELECT $1::{name}[]", values), values, name)
    equal(await connection.fetchval("SELECT ARRAY[1, 2]::int[]"), [1, 2])
    equal(await connection.fetchval("SELECT array_agg(oid ORDER BY oid) FROM pg_type WHERE oid IN (23, 25)"), [23, 25])


@check
async def places(connection):
    """parameters get their types from their places"""
    await connection.execute("DROP TABLE IF EXISTS asyncpg_places")
    await connection.execute("CREATE TABLE asyncpg_places (a int, b bigint, c text, d date, e timestamp, f interval, g boolean)")
    await connection.execute(
        "INSERT INTO asyncpg_places VALUES ($1, $2, $3, $4, $5, $6, $7)",
        1, 2, "x", datetime.date(2024, 1, 2), datetime.datetime(2024, 1, 2, 3), datetime.timedelta(days=1, hours=3), True,
    )
    row = await connection.fetchrow("SELECT * FROM asyncpg_places WHERE a = ANY($1) AND b = ANY($2) LIMIT $3 OFFSET $4", [1, 5], [2], 10, 0)
    equal(row["f"], datetime.timedelta(days=1, hours=3))
    statement = await connection.prepare(
        "SELECT CASE WHEN g = $1 THEN c ELSE $2 END AS c, coalesce(b, $3) AS b, d + $4::int AS d, e - $5 AS e FROM asyncpg_places WHERE a BETWEEN $6 AND $7 AND c IN ($8, $9)"
    )
    equal([one.name for one in statement.get_parameters()], ["bool", "text", "int8", "int4", "timestamp", "int4", "int4", "text", "text"])
    equal([one.name for one in statement.get_attributes()], ["c", "b", "d", "e"])
    row = await statement.fetchrow(True, "y", 7, 1, datetime.datetime(2024, 1, 1), 0, 9, "x", "z")
    equal(tuple(row), ("x", 2, datetime.date(2024, 1, 3), datetime.timedelta(days=1, hours=3)))
    await connection.execute("UPDATE asyncpg_places SET b = b + $1, c = $2 WHERE a = $3", 5, "new", 1)
    equal(tuple(await connection.fetchrow("SELECT b, c FROM asyncpg_places")), (7, "new"))
    equal([one[0] for one in await connection.fetch("SELECT g::int FROM generate_series(1, $1::int) AS g", 3)], [1, 2, 3])


@check
async def pools(_):
    """pools, which undo at every release what a client has left behind: locks, settings, cursors"""
    pool = await asyncpg.create_pool(
        host=program.host, port=program.port, user=program.user, password=program.password or None, database=program.database,
        min_size=1, max_size=2,
    )
    async with pool:
        for number in range(5):
            async with pool.acquire() as connection:
                equal(await connection.fetchval("SELECT $1::int", number), number)
                holds(await connection.fetchval("SELECT pg_try_advisory_lock($1)", 77), "the lock of the last one is free")
                await connection.execute("SET application_name = 'left'")
        equal(sorted(await asyncio.gather(*(pool.fetchval("SELECT $1::int", one) for one in range(8)))), list(range(8)))
        async with pool.acquire() as connection:
            holds(await connection.fetchval("SHOW application_name") != "left", "settings are those of the beginning")


@check
async def locks(connection):
    """advisory locks between two sessions: try, shared, of a transaction, freed when the session ends"""
    other = await connect()
    await connection.execute("SELECT pg_advisory_lock(4711)")
    equal(await other.fetchval("SELECT pg_try_advisory_lock(4711)"), False)
    equal(await other.fetchval("SELECT pg_try_advisory_lock(47, 11)"), True)
    waiting = asyncio.ensure_future(other.fetchval("SELECT pg_advisory_lock_shared(4711)"))
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted"
    while await connection.fetchval(query) == 0:
        await asyncio.sleep(0.01)
    equal(await connection.fetchval("SELECT pg_advisory_unlock(4711)"), True)
    await waiting
    await other.execute("SELECT pg_advisory_unlock_all()")
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(4711)")
        equal(await other.fetchval("SELECT pg_try_advisory_lock(4711)"), False)
    await other.execute("SET lock_timeout = '50ms'")
    await connection.execute("SELECT pg_advisory_lock(4711)")
    await fails("55P03", other.execute("SELECT pg_advisory_lock(4711)"))
    await connection.close()
    await other.execute("RESET lock_timeout")
    await other.execute("SELECT pg_advisory_lock(4711)")
    await other.close()


@check
async def errors(connection):
    """errors between prepared statements, cursors and COPY, after which the connection goes on"""
    await fails("42P01", connection.fetch("SELECT * FROM nosuch WHERE a = $1", 1))
    await fails("22012", connection.fetch("SELECT 1 / $1::int", 0))
    async with connection.transaction():
        rows = [row[0] async for row in connection.cursor("SELECT g::int FROM generate_series(1, $1::int) AS g", 5, prefetch=2)]
        equal(rows, [1, 2, 3, 4, 5])
    await connection.execute("DROP TABLE IF EXISTS asyncpg_copied")
    await connection.execute("CREATE TABLE asyncpg_copied (a int, b interval)")
    equal(await connection.copy_records_to_table("asyncpg_copied", records=[(1, datetime.timedelta(hours=2)), (2, None)]), "COPY 2")
    equal(await connection.fetchval("SELECT b::text FROM asyncpg_copied WHERE a = 1"), "02:00:00")
    await connection.executemany("INSERT INTO asyncpg_copied (a) VALUES ($1)", [(3,), (4,)])
    equal(await connection.fetchval("SELECT count(*) FROM asyncpg_copied WHERE a > $1", 2), 2)


program.run()
