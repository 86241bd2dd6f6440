"""SQLAlchemy 2 over psycopg 3 and psycopg2: core, inspection, ORM; Alembic. usage: check_sqlalchemy.py HOST PORT USER [DATABASE]"""

import datetime
import decimal
import uuid

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql

from checks import Program, equal, holds, raises

program = Program(f"SQLAlchemy {sa.__version__}")
DRIVERS = ["psycopg", "psycopg2", "asyncpg"]
UTC = datetime.timezone.utc


def engine(driver="psycopg", **options):
    return sa.create_engine(program.url(f"postgresql+{driver}"), **options)


def table(metadata, name="alchemy_sales"):
    return sa.Table(
        name, metadata,
        sa.Column("id", sa.BigInteger, nullable=False), sa.Column("name", sa.Text), sa.Column("price", sa.Numeric(10, 2)), sa.Column("day", sa.Date),
        sa.Column("at", sa.DateTime), sa.Column("zoned", sa.DateTime(timezone=True)), sa.Column("ok", sa.Boolean), sa.Column("weight", sa.Double),
        sa.Column("raw", sa.LargeBinary), sa.Column("small", sa.SmallInteger), sa.Column("n", sa.Integer), sa.Column("clock", sa.Time),
        sa.Column("ratio", sa.REAL),
    )


ROWS = [
    {"id": 1, "name": "it's \"ü\" %", "price": decimal.Decimal("1.50"), "day": datetime.date(1969, 7, 20), "at": datetime.datetime(1969, 7, 20, 20, 17, 40, 5),
     "zoned": datetime.datetime(2024, 7, 1, 12, tzinfo=UTC), "ok": True, "weight": 0.1, "raw": b"\x00\xff", "small": -5, "n": 7, "clock": datetime.time(1, 2, 3), "ratio": 1.5},
    {"id": 2, "name": "世界", "price": decimal.Decimal("-0.01"), "day": datetime.date(2024, 2, 29), "at": None, "zoned": None, "ok": False, "weight": -1e300, "raw": b"",
     "small": 0, "n": -1, "clock": None, "ratio": None},
    {"id": 3, "name": None, "price": None, "day": None, "at": None, "zoned": None, "ok": None, "weight": None, "raw": None, "small": None, "n": None, "clock": None, "ratio": None},
]


@program.check
def connecting():
    """connect: the queries of the dialect at the first connection, pre-ping, isolation levels, schema translation"""
    for driver in DRIVERS[:2]:
        with engine(driver, pool_pre_ping=True, connect_args={"sslmode": "prefer", "application_name": "alchemy"}).connect() as connection:
            equal(connection.execute(sa.text("SELECT 1")).scalar(), 1)
            holds(connection.dialect.server_version_info >= (14,), f"version {connection.dialect.server_version_info}")
            equal(connection.dialect.default_schema_name, connection.execute(sa.text("SELECT current_schema()")).scalar())
            equal(connection.execute(sa.text("SHOW application_name")).scalar(), "alchemy")
            connection.rollback()
            equal(connection.get_isolation_level(), "READ COMMITTED")
        for level in ["AUTOCOMMIT", "REPEATABLE READ", "SERIALIZABLE"]:
            with engine(driver, isolation_level=level).connect() as connection:
                equal(connection.execute(sa.text("SELECT 1")).scalar(), 1)
        pool = engine(driver, pool_size=1, max_overflow=0)
        for _ in range(3):
            with pool.connect() as connection:
                connection.execute(sa.text("SELECT 1"))


@program.check
def types():
    """create_all, inserts, selects and comparisons of every type; drop_all"""
    for driver in DRIVERS[:2]:
        base, metadata = engine(driver), sa.MetaData()
        sales = table(metadata)
        metadata.drop_all(base)
        metadata.create_all(base)
        metadata.create_all(base)
        with base.begin() as connection:
            connection.execute(sa.insert(sales), ROWS)
        with base.connect() as connection:
            got = [dict(row) for row in connection.execute(sa.select(sales).order_by(sales.c.id)).mappings()]
            for row in got:
                row["raw"] = None if row["raw"] is None else bytes(row["raw"])
            equal(got, ROWS)
            for name in ["name", "price", "day", "at", "zoned", "raw", "small", "clock", "weight"]:
                equal(connection.execute(sa.select(sales.c.id).where(sales.c[name] == ROWS[0][name])).scalars().all(), [1], name)
            query = sa.select(sa.func.count(), sa.func.sum(sales.c.price)).where(sales.c.id.in_([1, 2, 9])).where(sales.c.name.like("%"))
            equal(tuple(connection.execute(query).one()), (2, decimal.Decimal("1.49")))
            query = sa.select(sales.c.ok, sa.func.count().label("n")).group_by(sales.c.ok).having(sa.func.count() > 0).order_by(sales.c.ok.nulls_last())
            equal([tuple(row) for row in connection.execute(query)], [(False, 1), (True, 1), (None, 1)])
            query = sa.select(sales.c.id).order_by(sales.c.id).limit(1).offset(1)
            equal(connection.execute(query).scalar(), 2)
            query = sa.select(sa.case((sales.c.price > 0, "positive"), else_="other")).order_by(sales.c.id)
            equal(connection.execute(query).scalars().all(), ["positive", "other", "other"])
            query = sa.select(sa.extract("year", sales.c.day), sa.cast(sales.c.id, sa.String), sa.func.coalesce(sales.c.name, "none")).where(sales.c.id == 2)
            row = connection.execute(query).one()
            equal((int(row[0]), row[1], row[2]), (2024, "2", "世界"))
            other = sales.alias()
            equal(connection.execute(sa.select(sa.func.count()).select_from(sales.join(other, sales.c.id == other.c.id))).scalar(), 3)
            query = sa.select(sales.c.id, sa.func.row_number().over(order_by=sales.c.id.desc())).order_by(sales.c.id)
            equal([tuple(row) for row in connection.execute(query)], [(1, 3), (2, 2), (3, 1)])
        with base.begin() as connection:
            equal(connection.execute(sa.update(sales).where(sales.c.id == sa.bindparam("key")).values(name=sa.bindparam("new")), [{"key": 1, "new": "a"}, {"key": 2, "new": "b"}]).rowcount, 2)
            equal(connection.execute(sa.delete(sales).where(sales.c.id == 3)).rowcount, 1)
            connection.execute(sa.insert(sales).from_select(["id", "name"], sa.select(sales.c.id + 10, sales.c.name)))
            equal(connection.execute(sa.select(sa.func.count()).select_from(sales)).scalar(), 4)
        metadata.drop_all(base)


@program.check
def inspection():
    """inspect(): tables, views, columns with types, schemas, and no keys, indexes or sequences; reflection"""
    base, metadata = engine(), sa.MetaData()
    table(metadata, "alchemy_inspected")
    with base.begin() as connection:
        connection.execute(sa.text("DROP VIEW IF EXISTS alchemy_view"))
    metadata.drop_all(base)
    metadata.create_all(base)
    with base.begin() as connection:
        connection.execute(sa.text("CREATE VIEW alchemy_view AS SELECT id, name FROM alchemy_inspected"))
    found = sa.inspect(base)
    holds("alchemy_inspected" in found.get_table_names(), "get_table_names")
    equal(found.has_table("alchemy_inspected"), True)
    equal(found.has_table("alchemy_nosuch"), False)
    holds("alchemy_view" in found.get_view_names(), "get_view_names")
    holds("alchemy_inspected" in found.get_view_definition("alchemy_view"), "get_view_definition")
    holds(found.default_schema_name in found.get_schema_names() and "information_schema" in found.get_schema_names(), f"get_schema_names: {found.get_schema_names()}")
    columns = found.get_columns("alchemy_inspected")
    equal([(column["name"], str(column["type"]), column["nullable"], column["default"]) for column in columns], [
        ("id", "BIGINT", False, None), ("name", "TEXT", True, None), ("price", "NUMERIC(10, 2)", True, None), ("day", "DATE", True, None),
        ("at", "TIMESTAMP", True, None), ("zoned", "TIMESTAMP", True, None), ("ok", "BOOLEAN", True, None), ("weight", "DOUBLE PRECISION", True, None),
        ("raw", "BYTEA", True, None), ("small", "SMALLINT", True, None), ("n", "INTEGER", True, None), ("clock", "TIME", True, None), ("ratio", "REAL", True, None),
    ])
    equal([column["type"].timezone for column in columns if column["name"] in ("at", "zoned")], [False, True])
    equal(found.get_pk_constraint("alchemy_inspected")["constrained_columns"], [])
    for method in ["get_foreign_keys", "get_indexes", "get_unique_constraints", "get_check_constraints"]:
        equal(getattr(found, method)("alchemy_inspected"), [], method)
    equal([name for name in found.get_sequence_names() if name.startswith("alchemy")], [])
    equal(found.get_table_comment("alchemy_inspected"), {"text": None})
    equal(list(found.get_multi_columns(filter_names=["alchemy_inspected"]).values())[0][0]["name"], "id")
    holds(len(found.get_columns("tables", schema="information_schema")) > 5, "columns of information_schema.tables")
    raises(sa.exc.NoSuchTableError, lambda: found.get_columns("alchemy_nosuch"))
    reflected = sa.MetaData()
    reflected.reflect(base, only=["alchemy_inspected", "alchemy_view"], views=True)
    equal(sorted(reflected.tables), ["alchemy_inspected", "alchemy_view"])
    again = sa.Table("alchemy_inspected", sa.MetaData(), autoload_with=base, schema=found.default_schema_name)
    equal([column.name for column in again.columns][:3], ["id", "name", "price"])
    with base.begin() as connection:
        connection.execute(sa.text("DROP VIEW alchemy_view"))
    metadata.drop_all(base)


@program.check
def keys():
    """create_all() with keys and indexes, inspect() of them, reflection"""
    base, metadata = engine(), sa.MetaData()
    sa.Table(
        "alchemy_parents", metadata, sa.Column("id", sa.Integer, primary_key=True, autoincrement=False), sa.Column("code", sa.Text, unique=True),
        sa.Column("x", sa.Integer), sa.Column("y", sa.Integer), sa.UniqueConstraint("x", "y", name="alchemy_xy"),
    )
    sa.Table(
        "alchemy_children", metadata, sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("parent", sa.ForeignKey("alchemy_parents.id", ondelete="CASCADE"), index=True), sa.Column("x", sa.Integer), sa.Column("y", sa.Integer),
        sa.ForeignKeyConstraint(["x", "y"], ["alchemy_parents.x", "alchemy_parents.y"], name="alchemy_both", deferrable=True, initially="DEFERRED"),
        sa.Index("alchemy_text", sa.text("lower(x::text)"), "y", unique=True),
    )
    metadata.drop_all(base)
    metadata.create_all(base)
    found = sa.inspect(base)
    equal(found.get_pk_constraint("alchemy_children")["constrained_columns"], ["id"])
    equal(found.get_pk_constraint("alchemy_parents")["name"], "alchemy_parents_pkey")
    equal(sorted((key["name"], key["column_names"]) for key in found.get_unique_constraints("alchemy_parents")), [
        ("alchemy_parents_code_key", ["code"]), ("alchemy_xy", ["x", "y"]),
    ])
    equal(sorted((key["name"], key["constrained_columns"], key["referred_table"], key["referred_columns"], key["options"]) for key in found.get_foreign_keys("alchemy_children")), [
        ("alchemy_both", ["x", "y"], "alchemy_parents", ["x", "y"], {"deferrable": True, "initially": "DEFERRED"}),
        ("alchemy_children_parent_fkey", ["parent"], "alchemy_parents", ["id"], {"ondelete": "CASCADE"}),
    ])
    equal(sorted((index["name"], index["unique"], index["column_names"]) for index in found.get_indexes("alchemy_children")), [
        ("alchemy_text", True, [None, "y"]), ("ix_alchemy_children_parent", False, ["parent"]),
    ])
    reflected = sa.MetaData()
    reflected.reflect(base, only=["alchemy_children"])
    equal(sorted(reflected.tables), ["alchemy_children", "alchemy_parents"])
    metadata.drop_all(base)


@program.check
def mapping():
    """the ORM: add_all, flush, query, savepoints, commit, rollback, refresh, delete"""

    class Base(orm.DeclarativeBase):
        pass

    class Item(Base):
        __tablename__ = "alchemy_items"
        # SQLAlchemy wants a key; the table is made by hand, without one.
        id = orm.mapped_column(sa.Integer, primary_key=True, autoincrement=False)
        name = orm.mapped_column(sa.Text)

    base = engine()
    with base.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS alchemy_items"))
        connection.execute(sa.text("CREATE TABLE alchemy_items (id int, name text)"))
    with orm.Session(base) as session:
        session.add_all([Item(id=n, name=f"item {n}") for n in range(20)])
        session.commit()
        item = session.get(Item, 7)
        equal(item.name, "item 7")
        item.name = "renamed"
        session.flush()
        session.refresh(item)
        equal(item.name, "renamed")
        with session.begin_nested() as nested:
            session.add(Item(id=100, name="undone"))
            session.flush()
            nested.rollback()
        session.commit()
        session.delete(session.get(Item, 8))
        session.rollback()
        session.delete(session.get(Item, 9))
        session.commit()
        equal(session.scalar(sa.select(sa.func.count()).select_from(Item)), 19)
        equal([one.id for one in session.scalars(sa.select(Item).where(Item.name.in_(["renamed", "item 8"])).order_by(Item.id))], [7, 8])
    with base.begin() as connection:
        connection.execute(sa.text("DROP TABLE alchemy_items"))


@program.check
def transactions_and_errors():
    """begin, nested, rollback; the classes and SQLSTATEs of errors; the pool after one"""
    base = engine(pool_size=1, max_overflow=0)
    with base.connect() as connection:
        for statement, kind, state in [
            ("SELECT * FROM alchemy_nosuch", sa.exc.ProgrammingError, "42P01"), ("SELEC", sa.exc.ProgrammingError, "42601"),
            ("SELECT 1/0", sa.exc.DataError, "22012"), ("SELECT CAST('x' AS int)", sa.exc.DataError, "22P02"),
        ]:
            error = raises(kind, lambda: connection.execute(sa.text(statement)), statement)
            equal(error.orig.sqlstate, state)
            equal(raises(sa.exc.InternalError, lambda: connection.execute(sa.text("SELECT 1"))).orig.sqlstate, "25P02")
            connection.rollback()
    with base.connect() as connection:
        equal(connection.execute(sa.text("SELECT 1")).scalar(), 1)


@program.check
def streaming():
    """stream_results through a server-side cursor, yield_per, partitions"""
    for driver in DRIVERS[:2]:
        with engine(driver).connect().execution_options(stream_results=True, max_row_buffer=500) as connection:
            query = sa.text("SELECT x FROM generate_series(1, 20000) AS g(x)")
            equal(sum(row.x for row in connection.execute(query)), 200010000)
            equal([len(part) for part in connection.execute(query, execution_options={"max_row_buffer": 8000}).partitions(8000)], [8000, 8000, 4000])


@program.check
def inserting_many():
    """insertmanyvalues and executemany of 5 000 rows"""
    for driver in DRIVERS[:2]:
        base, metadata = engine(driver), sa.MetaData()
        items = sa.Table("alchemy_many", metadata, sa.Column("id", sa.Integer, nullable=False), sa.Column("name", sa.String(30)))
        metadata.drop_all(base)
        metadata.create_all(base)
        with base.begin() as connection:
            connection.execute(sa.insert(items).values([{"id": n, "name": f"n{n}"} for n in range(2000)]))
            connection.execute(sa.insert(items), [{"id": n, "name": None} for n in range(300)])
            equal(tuple(connection.execute(sa.select(sa.func.count(items.c.name), sa.func.count())).one()), (2000, 2300))
        metadata.drop_all(base)


@program.check
def asynchronous():
    """an asynchronous engine over asyncpg, which reads every value in binary"""
    import asyncio

    from sqlalchemy.ext.asyncio import create_async_engine

    async def main():
        base, metadata = create_async_engine(program.url("postgresql+asyncpg")), sa.MetaData()
        sales = table(metadata, "alchemy_async")
        async with base.begin() as connection:
            await connection.run_sync(metadata.drop_all)
            await connection.run_sync(metadata.create_all)
            await connection.execute(sa.insert(sales), ROWS)
            got = (await connection.execute(sa.select(sales).order_by(sales.c.id))).mappings().all()
            equal([dict(row) for row in got], ROWS)
            names = await connection.run_sync(lambda inner: sa.inspect(inner).get_table_names())
            holds("alchemy_async" in names, "get_table_names")
            await connection.run_sync(metadata.drop_all)
        await base.dispose()

    asyncio.run(main())


@program.check
def generated_keys():
    """generated keys: many rows in one flush with RETURNING, relationships, pages, cascades, reflection of keys and indexes"""
    base = orm.declarative_base()

    class Author(base):
        __tablename__ = "alchemy_authors"
        id = sa.Column(sa.Integer, primary_key=True)
        name = sa.Column(sa.String(60), nullable=False, index=True)
        made = sa.Column(sa.DateTime(timezone=True), server_default=sa.func.now())
        books = orm.relationship("Book", back_populates="author", cascade="all, delete-orphan")

    class Book(base):
        __tablename__ = "alchemy_books"
        id = sa.Column(sa.BigInteger, sa.Identity(), primary_key=True)
        author_id = sa.Column(sa.ForeignKey("alchemy_authors.id", ondelete="CASCADE"), nullable=False)
        title = sa.Column(sa.Text)
        extra = sa.Column(postgresql.JSONB)
        chip = sa.Column(sa.Uuid, default=uuid.uuid4)
        author = orm.relationship("Author", back_populates="books")

    for driver in DRIVERS[:2]:
        bound = engine(driver)
        base.metadata.drop_all(bound)
        base.metadata.create_all(bound)
        with orm.Session(bound) as session:
            author = Author(name="Ann", books=[Book(title=f"Book {n:02}", extra={"n": [n, None]}) for n in range(20)])
            session.add_all([author, Author(name="Bob")])
            session.commit()
            holds(author.id > 0 and author.made is not None and len({book.id for book in author.books}) == 20, "keys")
            page = sa.select(Book).join(Book.author).where(Author.name == "Ann").order_by(Book.title.desc()).limit(2).offset(1)
            equal([(book.title, book.extra) for book in session.scalars(page)], [("Book 18", {"n": [18, None]}), ("Book 17", {"n": [17, None]})])
            counted = sa.select(Author.name, sa.func.count(Book.id)).outerjoin(Author.books).group_by(Author.name).order_by(Author.name)
            equal([tuple(row) for row in session.execute(counted)], [("Ann", 20), ("Bob", 0)])
            loaded = session.scalars(sa.select(Author).options(orm.selectinload(Author.books)).order_by(Author.id)).all()
            equal([len(one.books) for one in loaded], [20, 0])
            chip = author.books[0].chip
            equal(session.scalars(sa.select(Book).where(Book.chip == chip)).one().title, author.books[0].title)
            made = session.scalars(sa.insert(Author).returning(Author.id, sort_by_parameter_order=True), [{"name": f"n{n}"} for n in range(5)]).all()
            equal(made, sorted(made))
            session.delete(author)
            session.commit()
            equal(session.scalar(sa.select(sa.func.count()).select_from(Book)), 0)
        found = sa.inspect(bound)
        equal(found.get_pk_constraint("alchemy_books")["constrained_columns"], ["id"])
        keys = found.get_foreign_keys("alchemy_books")
        equal([(key["constrained_columns"], key["referred_table"], key["options"]) for key in keys], [(["author_id"], "alchemy_authors", {"ondelete": "CASCADE"})])
        equal([(index["name"], index["column_names"]) for index in found.get_indexes("alchemy_authors")], [("ix_alchemy_authors_name", ["name"])])
        base.metadata.drop_all(bound)


@program.check
def conflicts():
    """a unique key is enforced: IntegrityError; insert() with on_conflict_do_nothing and on_conflict_do_update"""
    bound, metadata = engine(), sa.MetaData()
    things = sa.Table("alchemy_unique", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text, unique=True), sa.Column("n", sa.Integer))
    metadata.drop_all(bound)
    metadata.create_all(bound)
    with bound.connect() as connection:
        connection.execute(sa.insert(things), [{"name": "a", "n": 1}])
        connection.commit()
        raises(sa.exc.IntegrityError, lambda: connection.execute(sa.insert(things), [{"name": "a"}]))
        connection.rollback()
        insert = postgresql.insert(things).values([{"name": "a", "n": 5}, {"name": "b", "n": 6}])
        connection.execute(insert.on_conflict_do_nothing())
        connection.execute(insert.on_conflict_do_update(index_elements=[things.c.name], set_={"n": insert.excluded.n + things.c.n}))
        equal([tuple(row) for row in connection.execute(sa.select(things.c.name, things.c.n).order_by(things.c.name))], [("a", 6), ("b", 12)])
        connection.commit()
    metadata.drop_all(bound)


@program.check
def migrations():
    """Alembic: operations of a migration, and autogenerate, which finds no difference"""
    bound, metadata = engine(), sa.MetaData()
    things = sa.Table(
        "alembic_things", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(80), nullable=False, server_default="x"),
        sa.Column("price", sa.Numeric(10, 2)), sa.Column("at", sa.DateTime(timezone=True)), sa.Index("alembic_things_at", "at"),
    )
    with bound.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS alembic_things"))
    with bound.begin() as connection:
        context = MigrationContext.configure(connection)
        operations = Operations(context)
        operations.create_table("alembic_things", sa.Column("id", sa.Integer, primary_key=True), sa.Column("title", sa.String(40)), sa.Column("old", sa.Text))
        operations.bulk_insert(sa.table("alembic_things", sa.column("title", sa.String)), [{"title": "a"}, {"title": None}])
    with bound.begin() as connection:
        operations = Operations(MigrationContext.configure(connection))
        operations.add_column("alembic_things", sa.Column("price", sa.Numeric(10, 2)))
        operations.add_column("alembic_things", sa.Column("at", sa.DateTime(timezone=True)))
        operations.alter_column("alembic_things", "title", new_column_name="name", type_=sa.String(80))
        operations.execute("UPDATE alembic_things SET name = 'none' WHERE name IS NULL")
        operations.alter_column("alembic_things", "name", nullable=False, server_default="x")
        operations.drop_column("alembic_things", "old")
        operations.create_index("alembic_things_at", "alembic_things", ["at"])
    with bound.connect() as connection:
        equal(connection.execute(sa.text("SELECT name FROM alembic_things ORDER BY name")).scalars().all(), ["a", "none"])
        options = {"compare_server_default": True, "include_name": lambda name, kind, parents: kind != "table" or name == things.name}
        equal(compare_metadata(MigrationContext.configure(connection, opts=options), metadata), [])


program.run()
