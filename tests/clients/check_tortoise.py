"""Tortoise over asyncpg: a schema that it makes, generated keys, queries, changes, transactions. usage: check_tortoise.py HOST PORT USER [DATABASE]"""

import asyncio
import datetime
import decimal

import tortoise
from tortoise import Tortoise, connections, fields
from tortoise.exceptions import DoesNotExist, IntegrityError, OperationalError
from tortoise.expressions import F, Q
from tortoise.functions import Count, Max
from tortoise.models import Model
from tortoise.transactions import in_transaction

from checks import Program, equal, holds

program = Program(f"Tortoise {tortoise.__version__}")


class Tournament(Model):
    id = fields.IntField(primary_key=True)
    name = fields.CharField(max_length=100, unique=True)
    day = fields.DateField(null=True)
    prize = fields.DecimalField(max_digits=10, decimal_places=2, null=True)
    made = fields.DatetimeField(auto_now_add=True)

    class Meta:
        table = "tortoise_tournaments"


class Event(Model):
    id = fields.BigIntField(primary_key=True)
    name = fields.TextField()
    size = fields.SmallIntField(default=0, db_index=True)
    is_open = fields.BooleanField(default=True)
    tournament = fields.ForeignKeyField("models.Tournament", related_name="events")
    teams = fields.ManyToManyField("models.Team", related_name="events", through="tortoise_event_teams")

    class Meta:
        table = "tortoise_events"


class Team(Model):
    id = fields.UUIDField(primary_key=True)
    name = fields.CharField(max_length=30)
    colours = fields.JSONField(null=True)

    class Meta:
        table = "tortoise_teams"


def connected(work):
    """A check that runs with the tables made anew."""

    async def main():
        await Tortoise.init(db_url=program.url("asyncpg"), modules={"models": [__name__]})
        try:
            for name in ["tortoise_event_teams", "tortoise_events", "tortoise_teams", "tortoise_tournaments"]:
                await connections.get("default").execute_script(f'DROP TABLE IF EXISTS "{name}" CASCADE')
            await Tortoise.generate_schemas()
            await work()
        finally:
            await connections.close_all()

    def check():
        asyncio.run(main())

    check.__doc__ = work.__doc__
    return program.check(check)


async def fill():
    cup = await Tournament.create(name="Cup", day=datetime.date(2024, 2, 29), prize=decimal.Decimal("99.50"))
    await Event.bulk_create([Event(name=f"Event {n}", size=n, tournament=cup) for n in range(10)])
    return cup


@connected
async def creating():
    """generate_schemas, again with safe=True; the pool of connections"""
    await Tortoise.generate_schemas(safe=True)
    counts = await asyncio.gather(*(Tournament.all().count() for _ in range(8)))
    equal(counts, [0] * 8)


@connected
async def keys():
    """create() gives the generated key; bulk_create; get_or_create; update_or_create"""
    first, second = await Tournament.create(name="a"), await Tournament.create(name="b")
    holds(isinstance(first.id, int) and second.id > first.id, f"keys {first.id}, {second.id}")
    await Tournament.bulk_create([Tournament(name="c"), Tournament(name="d")])
    equal([one.name for one in await Tournament.filter(id__gt=second.id).order_by("id")], ["c", "d"])
    one, is_new = await Tournament.get_or_create(name="e")
    holds(is_new, "made")
    equal((await Tournament.get_or_create(name="e"))[0].id, one.id)
    changed, is_new = await Tournament.update_or_create({"prize": 5}, name="e")
    equal((changed.id, is_new), (one.id, False))


@connected
async def finding():
    """get, filter, Q, in, order, limit and offset, joins, prefetch, values, aggregates, exists, first, none"""
    cup = await fill()
    found = await Tournament.get(name="Cup")
    equal((found.id, found.day, found.prize), (cup.id, datetime.date(2024, 2, 29), decimal.Decimal("99.50")))
    holds(abs((datetime.datetime.now(datetime.timezone.utc) - found.made).total_seconds()) < 600, "now")
    equal([one.name for one in await Event.filter(size__lt=5).order_by("-size").limit(2).offset(1)], ["Event 3", "Event 2"])
    equal(await Event.filter(Q(size__in=[1, 2]) | Q(name__icontains="EVENT 7")).order_by("size").values_list("size", flat=True), [1, 2, 7])
    equal(await Event.filter(tournament__name="Cup", size__gte=8).count(), 2)
    joined = await Event.filter(size=3).select_related("tournament").first()
    equal(joined.tournament.name, "Cup")
    equal([len(one.events) for one in await Tournament.all().prefetch_related("events")], [10])
    counted = await Tournament.annotate(n=Count("events"), most=Max("events__size")).values("name", "n", "most")
    equal(counted, [{"name": "Cup", "n": 10, "most": 9}])
    holds(await Event.filter(size=9).exists() and not await Event.exists(size=99), "exists")
    holds(await Event.get_or_none(name="nothing") is None, "none")
    try:
        await Event.get(name="nothing")
        holds(False, "get of nothing")
    except DoesNotExist:
        pass


@connected
async def changing():
    """save, update with F, bulk_update, delete of one and of many"""
    cup = await fill()
    cup.name = "Bowl"
    await cup.save()
    equal((await Tournament.get(id=cup.id)).name, "Bowl")
    equal(await Event.filter(size__lt=3).update(size=F("size") + 100, is_open=False), 3)
    equal(await Event.filter(is_open=False).order_by("size").values_list("size", flat=True), [100, 101, 102])
    some = await Event.filter(size__lte=4)
    for one in some:
        one.name = "short"
    await Event.bulk_update(some, fields=["name"])
    equal(await Event.filter(name="short").count(), 2)
    await some[0].delete()
    equal(await Event.filter(is_open=False).delete(), 3)
    equal(await Event.all().count(), 6)


@connected
async def many_to_many():
    """uuid keys, documents as jsonb, rows of a table between two others"""
    await fill()
    event = await Event.get(size=1)
    red, blue = await Team.create(name="red", colours={"main": ["red", 1]}), await Team.create(name="blue")
    await event.teams.add(red, blue)
    equal([team.name for team in await event.teams.all().order_by("name")], ["blue", "red"])
    equal((await Team.get(id=red.id)).colours, {"main": ["red", 1]})
    equal(await Event.filter(teams__name="red").values_list("name", flat=True), ["Event 1"])
    await event.teams.remove(blue)
    equal(await event.teams.all().count(), 1)


@connected
async def transactions():
    """in_transaction, kept and undone; SELECT FOR UPDATE; an error and the connection after it"""
    cup = await fill()
    async with in_transaction():
        await Tournament.filter(id=cup.id).select_for_update().get()
        await Event.create(name="kept", tournament=cup)
    try:
        async with in_transaction():
            await Event.create(name="undone", tournament=cup)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    equal(await Event.filter(name__in=["kept", "undone"]).values_list("name", flat=True), ["kept"])
    try:
        await connections.get("default").execute_query("SELECT * FROM tortoise_nosuch WHERE a = $1", [1])
        holds(False, "a table that is not there")
    except OperationalError as error:
        holds("tortoise_nosuch" in str(error), str(error))
    equal(await Event.all().count(), 11)


@connected
async def conflict():
    """a unique key is enforced: IntegrityError"""
    await fill()
    try:
        await Tournament.create(name="Cup")
        holds(False, "a second Cup")
    except IntegrityError:
        pass
    equal(await Tournament.all().count(), 1)


program.run()
