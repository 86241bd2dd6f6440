"""peewee: models with generated keys, found, changed and described again. usage: check_peewee.py HOST PORT USER [DATABASE]"""

import datetime
import decimal
import uuid

import peewee
from playhouse import postgres_ext, reflection

from checks import Program, equal, holds, raises

program = Program(f"peewee {peewee.__version__}")
database = peewee.PostgresqlDatabase(program.database, host=program.host, port=program.port, user=program.user, password=program.password)


class Base(peewee.Model):
    class Meta:
        database = database


class Author(Base):
    name = peewee.CharField(max_length=40, unique=True)
    born = peewee.DateField(null=True)

    class Meta:
        table_name = "peewee_authors"


class Book(Base):
    author = peewee.ForeignKeyField(Author, backref="books", on_delete="CASCADE")
    title = peewee.CharField(max_length=100, index=True)
    price = peewee.DecimalField(max_digits=10, decimal_places=2, null=True)
    pages = peewee.IntegerField(default=0)
    at = peewee.DateTimeField(null=True)
    sold = peewee.BooleanField(default=False)

    class Meta:
        table_name = "peewee_books"


class Key(Base):
    id = peewee.UUIDField(primary_key=True, default=uuid.uuid4)
    document = postgres_ext.BinaryJSONField(null=True, index=False)

    class Meta:
        table_name = "peewee_keys"


def fill():
    database.drop_tables([Book, Author], safe=True)
    database.create_tables([Author, Book])
    author = Author.create(name="Ursula", born=datetime.date(1929, 10, 21))
    Book.create(author=author, title="The Dispossessed", price=decimal.Decimal("9.50"), pages=341, at=datetime.datetime(1974, 5, 1, 12, 30))
    Book.insert_many([{"author": author, "title": f"Book {n}", "pages": n} for n in range(10)]).execute()
    return author


@program.check
def creating():
    """create_tables, drop_tables, table_exists, create again with safe=True"""
    with database.connection_context():
        fill()
        holds(Book.table_exists(), "the table is there")
        database.create_tables([Author, Book], safe=True)
        database.drop_tables([Book, Author])
        holds(not Book.table_exists(), "the table is gone")


@program.check
def keys():
    """create() gives the generated key; insert_many with RETURNING; bulk_create; get_or_create"""
    with database.connection_context():
        first = fill()
        second = Author.create(name="Stanisław")
        holds(isinstance(first.id, int) and second.id > first.id, f"keys {first.id}, {second.id}")
        found = list(Author.insert_many([{"name": "a"}, {"name": "b"}]).returning(Author.id, Author.name))
        equal([one.name for one in found], ["a", "b"])
        holds(second.id < found[0].id < found[1].id, "keys that grow")
        made = [Author(name="c"), Author(name="d")]
        Author.bulk_create(made, batch_size=10)
        holds(all(one.id for one in made), "bulk_create gives the keys")
        one, is_new = Author.get_or_create(name="e")
        holds(is_new, "made")
        equal(Author.get_or_create(name="e"), (one, False))


@program.check
def finding():
    """get_by_id, where, order, limit and offset, joins, prefetch, aggregates, in, like, exists"""
    with database.connection_context():
        author = fill()
        equal(Author.get_by_id(author.id).name, "Ursula")
        equal(Author.get(Author.name == "Ursula").born, datetime.date(1929, 10, 21))
        equal([book.title for book in Book.select().where(Book.pages < 5).order_by(Book.pages.desc()).limit(2).offset(1)], ["Book 3", "Book 2"])
        equal([book.title for book in Book.select().order_by(Book.title).paginate(2, 3)], ["Book 3", "Book 4", "Book 5"])
        found = Book.select(Book, Author).join(Author).where(Author.name.startswith("Urs"), Book.title ** "the %").get()
        equal((found.author.name, found.price, found.pages, found.at), ("Ursula", decimal.Decimal("9.50"), 341, datetime.datetime(1974, 5, 1, 12, 30)))
        equal([len(one.books) for one in peewee.prefetch(Author.select(), Book.select())], [11])
        query = Author.select(Author.name, peewee.fn.COUNT(Book.id).alias("n"), peewee.fn.MAX(Book.pages).alias("most")).join(Book, peewee.JOIN.LEFT_OUTER).group_by(Author.name)
        equal([(one.name, one.n, one.most) for one in query], [("Ursula", 11, 341)])
        equal(Book.select().where(Book.pages.in_([1, 2, 700])).count(), 2)
        holds(Book.select().where(Book.title == "Book 1").exists(), "exists")
        holds(Author.get_or_none(Author.name == "nobody") is None, "none")
        equal(Book.select(Book.pages).where(Book.price.is_null()).order_by(Book.pages).tuples()[:2], [(0,), (1,)])


@program.check
def changing():
    """save, update with expressions and RETURNING, delete, delete_instance with what refers to it"""
    with database.connection_context():
        author = fill()
        author.name = "U. K."
        equal(author.save(), 1)
        equal(Book.update(pages=Book.pages + 1, sold=True).where(Book.pages < 3).execute(), 3)
        equal(sorted(book.pages for book in Book.update(price=1).where(Book.pages == 5).returning(Book.pages)), [5])
        equal(Book.delete().where(Book.sold).execute(), 3)
        equal(Book.select().where(Book.author == author).count(), 8)
        author.delete_instance(recursive=True)
        equal((Author.select().count(), Book.select().count()), (0, 0))


@program.check
def transactions():
    """atomic() and a savepoint in it that is undone, errors, the connection after an error"""
    with database.connection_context():
        author = fill()
        with database.atomic() as outer:
            Book.create(author=author, title="kept")
            with database.atomic() as inner:
                Book.create(author=author, title="undone")
                inner.rollback()
        equal(Book.select().where(Book.title.in_(["kept", "undone"])).count(), 1)
        error = raises(peewee.ProgrammingError, lambda: database.execute_sql("SELECT * FROM peewee_nosuch"))
        holds("peewee_nosuch" in str(error), str(error))
        raises(peewee.DataError, lambda: database.execute_sql("SELECT %s::int", ("x",)))
        equal(Book.select().count(), 12)


@program.check
def conflict():
    """a unique key is enforced: IntegrityError; on_conflict_ignore and on_conflict with an update"""
    with database.connection_context():
        fill()
        raises(peewee.IntegrityError, lambda: Author.create(name="Ursula"))
        Author.insert(name="Ursula").on_conflict_ignore().execute()
        Author.insert(name="Ursula", born=None).on_conflict(conflict_target=[Author.name], update={Author.born: None}).execute()
        equal(Author.get(Author.name == "Ursula").born, None)


@program.check
def other_types():
    """a uuid as the key, and a document as jsonb"""
    with database.connection_context():
        database.drop_tables([Key], safe=True)
        database.create_tables([Key])
        one = Key.create(document={"a": [1, 2, {"b": None}]})
        found = Key.get_by_id(one.id)
        equal((found.id, found.document), (one.id, {"a": [1, 2, {"b": None}]}))
        equal(Key.select().where(Key.id << [one.id, uuid.uuid4()]).count(), 1)


@program.check
def describing():
    """get_tables, get_columns, get_primary_keys, get_indexes, get_foreign_keys; models that pwiz makes of the tables"""
    with database.connection_context():
        fill()
        holds({"peewee_authors", "peewee_books"} <= set(database.get_tables()), "tables")
        columns = {column.name: column for column in database.get_columns("peewee_books")}
        equal([column.name for column in columns.values() if column.primary_key], ["id"])
        equal({name: column.null for name, column in columns.items()}, {"id": False, "author_id": False, "title": False, "price": True, "pages": False, "at": True, "sold": False})
        equal(columns["title"].data_type, "character varying")
        equal(database.get_primary_keys("peewee_books"), ["id"])
        keys = [(key.column, key.dest_table, key.dest_column) for key in database.get_foreign_keys("peewee_books")]
        equal(keys, [("author_id", "peewee_authors", "id")])
        equal(sorted((tuple(index.columns), index.unique) for index in database.get_indexes("peewee_books")), [(("author_id",), False), (("id",), True), (("title",), False)])
        models = reflection.Introspector.from_database(database).generate_models(table_names=["peewee_authors", "peewee_books"])
        equal(models["peewee_authors"].select().count(), 1)
        equal(models["peewee_books"].get(models["peewee_books"].pages == 341).author.name, "Ursula")


program.run()
