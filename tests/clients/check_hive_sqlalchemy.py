"""SQLAlchemy over HiveServer2, with PyHive's dialect and with impyla's. usage: check_hive_sqlalchemy.py HOST PORT USER [DATABASE]"""

import datetime
import decimal
import importlib.metadata
import warnings

import sqlalchemy
from sqlalchemy import Column, Integer, MetaData, String, Table, func, inspect, literal_column, select, text

from checks import Program, equal, holds, raises
from hive_server import AUTHENTICATION, NUMBERS

# What the dialects themselves do with SQLAlchemy is not what is checked.
warnings.simplefilter("ignore")
program = Program(
    f"SQLAlchemy {sqlalchemy.__version__} with PyHive {importlib.metadata.version('PyHive')} and impyla {importlib.metadata.version('impyla')}"
)
database = program.arguments.database or "default"


def pyhive():
    user = f"{program.user}:{program.password}" if AUTHENTICATION == "LDAP" else program.user
    return sqlalchemy.create_engine(f"hive://{user}@{program.host}:{program.port}/{database}", connect_args={"auth": AUTHENTICATION})


def impyla():
    # impala4 is impyla's dialect for servers other than Impala 2.
    mechanism = "NOSASL" if AUTHENTICATION == "NOSASL" else "PLAIN"
    user = program.user if AUTHENTICATION == "NOSASL" else f"{program.user}:{program.password or 'none'}"
    return sqlalchemy.create_engine(f"impala4://{user}@{program.host}:{program.port}/{database}?auth_mechanism={mechanism}")


ENGINES = {"PyHive": pyhive(), "impyla": impyla()}


def each():
    for name, engine in ENGINES.items():
        with engine.connect() as connection:
            yield name, connection


@program.check
def connecting():
    """connect, select one row, scalar, names of columns; the pool gives connections back"""
    for name, connection in each():
        equal(connection.execute(text("SELECT 1 AS one, 'a' AS letter")).all(), [(1, "a")], name)
        row = connection.execute(text("SELECT 1 AS one, 'a' AS letter")).mappings().one()
        equal(dict(row), {"one": 1, "letter": "a"}, name)
        equal(connection.scalar(text("SELECT current_database()")), database, name)
    for name, engine in ENGINES.items():
        for _ in range(3):
            with engine.connect() as connection:
                equal(connection.scalar(text("SELECT 1")), 1, name)


@program.check
def parameters():
    """bound parameters: text with quotes, numbers, NULL"""
    for name, connection in each():
        query = text("SELECT :a AS a, :b AS b, :c AS c")
        equal(connection.execute(query, {"a": "it's", "b": 5, "c": None}).all(), [("it's", 5, None)], name)


@program.check
def inspection():
    """has_table, table names, schema names, columns with types, of tables made here; a partitioned one"""
    with ENGINES["PyHive"].connect() as connection:
        for statement in [
            "DROP TABLE IF EXISTS sa_plain",
            "DROP TABLE IF EXISTS sa_parts",
            "CREATE TABLE sa_plain (id int, name string, price decimal(10,2), day date, at timestamp, big bigint, x double, yes boolean)",
            "CREATE TABLE sa_parts (id int) PARTITIONED BY (d string, n int)",
        ]:
            connection.execute(text(statement))
    kinds = ["int", "string", "decimal", "date", "timestamp", "bigint", "double", "boolean"]
    for name, connection in each():
        look = inspect(connection)
        # Without the schema PyHive does not understand what Hive 4 says of a table that is not there.
        equal((look.has_table("sa_plain", schema=database), look.has_table("sa_no_such", schema=database)), (True, False), name)
        holds({"sa_plain", "sa_parts"} <= set(look.get_table_names()), f"{name}: {look.get_table_names()}")
        holds(database in look.get_schema_names(), f"{name}: {look.get_schema_names()}")
        columns = look.get_columns("sa_plain")
        equal([column["name"] for column in columns], ["id", "name", "price", "day", "at", "big", "x", "yes"], name)
        equal(len([column["type"] for column in columns]), len(kinds), name)
    with ENGINES["PyHive"].connect() as connection:
        look = inspect(connection)
        equal(look.get_indexes("sa_parts"), [{"name": "partition", "column_names": ["d", "n"], "unique": False}])
        equal(look.get_indexes("sa_plain"), [])
        equal([column["name"] for column in look.get_columns("sa_parts")], ["id", "d", "n"])
        for table in ("sa_plain", "sa_parts"):
            connection.execute(text(f"DROP TABLE {table}"))


@program.check
def reflection():
    """a table that is read from the server; core statements over it: where, group, order, limit, join, subquery"""
    with ENGINES["PyHive"].connect() as connection:
        connection.execute(text("DROP TABLE IF EXISTS sa_items"))
        connection.execute(text("CREATE TABLE sa_items (id int, kind string, price decimal(10,2), day date)"))
        connection.execute(text("INSERT INTO sa_items VALUES (1, 'a', 1.50, '2020-01-02'), (2, 'a', 2, NULL), (3, 'b', NULL, '2020-01-03')"))
    for name, connection in each():
        items = Table("sa_items", MetaData(), autoload_with=connection)
        equal([column.name for column in items.columns], ["id", "kind", "price", "day"], name)
        equal(connection.execute(select(items).where(items.c.id < 3).order_by(items.c.id)).all(), [
            (1, "a", decimal.Decimal("1.50"), datetime.date(2020, 1, 2)), (2, "a", decimal.Decimal("2.00"), None)], name)
        grouped = select(items.c.kind, func.count().label("n"), func.sum(items.c.price).label("s")).group_by(items.c.kind)
        equal(connection.execute(grouped.order_by("kind")).all(), [("a", 2, decimal.Decimal("3.50")), ("b", 1, None)], name)
        other = items.alias("other")
        joined = select(items.c.id, other.c.id.label("with_id")).join(other, items.c.kind == other.c.kind).where(items.c.id != other.c.id)
        equal(sorted(connection.execute(joined).all()), [(1, 2), (2, 1)], name)
        inner = select(func.max(items.c.id).label("top")).subquery()
        equal(connection.scalar(select(inner.c.top)), 3, name)
        equal(connection.execute(select(items.c.id).order_by(items.c.id.desc()).limit(1)).all(), [(3,)], name)
        equal(connection.execute(select(literal_column("1").label("x")).union_all(select(literal_column("2")))).all().__len__(), 2, name)
    with ENGINES["PyHive"].connect() as connection:
        connection.execute(text("DROP TABLE sa_items"))


@program.check
def tables():
    """create_all, inserts of one and of many rows, drop_all, with PyHive's dialect"""
    metadata = MetaData(schema=database)
    things = Table("sa_things", metadata, Column("id", Integer), Column("name", String))
    engine = ENGINES["PyHive"]
    metadata.drop_all(engine)
    metadata.create_all(engine)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(things.insert().values(id=1, name="one"))
        connection.execute(things.insert().values([{"id": 2, "name": "two"}, {"id": 3, "name": None}]))
        equal(connection.execute(select(things).order_by(things.c.id)).all(), [(1, "one"), (2, "two"), (3, None)])
        equal(connection.scalar(select(func.count()).select_from(things)), 3)
    metadata.drop_all(engine)
    with engine.connect() as connection:
        equal(inspect(connection).has_table("sa_things", schema=database), False)


@program.check
def errors():
    """errors arrive as SQLAlchemy's; the connection goes on"""
    for name, connection in each():
        error = raises(sqlalchemy.exc.DBAPIError if name == "PyHive" else Exception, lambda: connection.execute(text("SELECT * FROM no_such_table")), name)
        holds("Table not found 'no_such_table'" in str(error), f"{name}: {error}")
        equal(connection.scalar(text("SELECT 1")), 1, name)


@program.check
def many_rows():
    """ten thousand rows, by pieces"""
    for name, connection in each():
        rows = connection.execute(text(f"SELECT pos FROM {NUMBERS.format(9_999)} n ORDER BY pos"))
        equal(rows.fetchmany(3), [(0,), (1,), (2,)], name)
        equal(sum(row[0] for row in rows), 49_994_997, name)


program.run()
