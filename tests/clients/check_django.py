"""Django: its own migrations and an application's, models, admin's tables, inspectdb. usage: check_django.py HOST PORT USER [DATABASE]"""

import contextlib
import datetime
import decimal
import io
import os
import sys

import django
from django.conf import settings

from checks import Program, equal, holds, raises

program = Program(f"Django {django.get_version()}")
APPLICATIONS = ["admin", "auth", "contenttypes", "sessions", "messages"]

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": program.database, "USER": program.user, "PASSWORD": program.password,
                           "HOST": program.host, "PORT": program.port}},
    INSTALLED_APPS=[f"django.contrib.{name}" for name in APPLICATIONS] + ["shop"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    SECRET_KEY="for tests", USE_TZ=True, TIME_ZONE="UTC",
)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "django_site"))
django.setup()

from django.contrib.auth.models import Permission, User  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import DataError, IntegrityError, ProgrammingError, connection, transaction  # noqa: E402
from django.db.models import Avg, Case, Count, Exists, F, OuterRef, Q, Subquery, Sum, TextField, Value, When, Window  # noqa: E402
from django.db.models.functions import Coalesce, Lower, RowNumber, TruncMonth  # noqa: E402
from shop.models import Sale, Shop, Voucher  # noqa: E402


def command(*words, **options):
    """What a command of manage.py prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        call_command(*words, stdout=output, **options)
    return output.getvalue()


def forget():
    """Drops the tables that Django has made."""
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            if table.startswith(("auth_", "django_", "shop_")):
                cursor.execute(f'DROP TABLE IF EXISTS "{table}" CASCADE')


def filled():
    Sale.objects.all().delete()
    Shop.objects.all().delete()
    shop = Shop.objects.create(name="Corner", opened=datetime.date(2020, 2, 29))
    day = datetime.datetime(2024, 1, 30, 12, tzinfo=datetime.timezone.utc)
    Sale.objects.bulk_create([Sale(shop=shop, product=f"p{n}", price=decimal.Decimal(n), amount=n, at=day + datetime.timedelta(days=n)) for n in range(10)])
    return shop


@program.check
def contrib():
    """migrate auth, admin, contenttypes and sessions; permissions and content types are there; migrate again has nothing to do"""
    forget()
    for name in ["contenttypes", "auth", "admin", "sessions"]:
        command("migrate", name, verbosity=0)
    User.objects.create_superuser("root", "root@example.org", "secret")
    holds(Permission.objects.filter(codename="add_user", content_type__app_label="auth").exists(), "permissions")
    holds(User.objects.get(username="root").has_perm("auth.add_user"), "a superuser")
    holds("No migrations to apply" in command("migrate", "auth"), "migrated")


@program.check
def migrating():
    """migrate an application: tables, keys, an index, a column added, changed, renamed and dropped; showmigrations"""
    if "shop_shop" in connection.introspection.table_names():
        forget()
    call_command("migrate", "shop", verbosity=0)
    equal([line.split() for line in command("showmigrations", "shop").splitlines()], [["shop"]] + [["[X]", name] for name in ["0001_initial", "0002_town"]])
    holds("No changes detected" in command("makemigrations", "shop", dry_run=True), "the models are as the migrations say")


@program.check
def keys():
    """create() gives the generated key; bulk_create with equal NULLs; get_or_create, update_or_create; a document; many to many"""
    shop = filled()
    made = Sale.objects.bulk_create([Sale(shop=shop, product="x"), Sale(shop=shop, product="y")])
    holds(all(isinstance(one.pk, int) for one in made) and made[0].pk < made[1].pk, "the keys")
    one, is_new = Shop.objects.get_or_create(name="New")
    equal((Shop.objects.get_or_create(name="New"), is_new), ((one, False), True))
    equal(Shop.objects.update_or_create(name="New", defaults={"opened": None}), (one, False))
    voucher = Voucher.objects.create(terms={"percent": 5, "on": ["a", None]})
    voucher.shops.add(shop, one)
    found = Voucher.objects.get(pk=voucher.pk)
    equal((found.terms, list(found.shops.order_by("name").values_list("name", flat=True))), ({"percent": 5, "on": ["a", None]}, ["Corner", "New"]))
    equal(Voucher.objects.filter(terms__percent=5).count(), 1)


@program.check
def finding():
    """get, filter, Q, lookups, slices, joins, prefetch, aggregates, groups, windows, subqueries, dates, in_bulk, iterator"""
    shop = filled()
    equal(Shop.objects.get(pk=shop.pk).opened, datetime.date(2020, 2, 29))
    sales = Sale.objects.order_by("amount")
    equal([sale.amount for sale in sales[2:5]], [2, 3, 4])
    equal(list(sales.filter(Q(amount__in=[1, 2]) | Q(product__icontains="P7")).values_list("amount", flat=True)), [1, 2, 7])
    equal(sales.filter(product__startswith="p", price__range=(2, 4), shop__name__iexact="corner").count(), 3)
    equal(sales.filter(product__regex="^p[0-3]$", note="").exclude(amount=0).count(), 3)
    equal(sales.select_related("shop").first().shop.name, "Corner")
    equal([len(one.sales.all()) for one in Shop.objects.prefetch_related("sales")], [10])
    equal(Sale.objects.aggregate(n=Count("id"), sum=Sum("price"), mean=Avg("amount")), {"n": 10, "sum": decimal.Decimal("45.00"), "mean": 4.5})
    months = Sale.objects.annotate(month=TruncMonth("at")).values("month").annotate(n=Count("id")).order_by("month")
    equal([(one["month"].month, one["n"]) for one in months], [(1, 2), (2, 8)])
    equal(list(Shop.objects.annotate(n=Count("sales", filter=Q(sales__amount__gt=5)), name2=Lower("name")).values_list("name2", "n")), [("corner", 4)])
    numbered = Sale.objects.annotate(n=Window(RowNumber(), partition_by="shop", order_by=F("amount").desc())).order_by("amount")
    equal(numbered[0].n, 10)
    last = Sale.objects.filter(shop=OuterRef("pk")).order_by("-amount").values("product")[:1]
    equal(Shop.objects.annotate(last=Subquery(last)).get().last, "p9")
    equal(Shop.objects.filter(Exists(Sale.objects.filter(shop=OuterRef("pk"), amount=9))).count(), 1)
    kinds = Case(When(amount__lt=5, then=Value("few")), default=Value("many"))
    equal(sorted(Sale.objects.annotate(kind=kinds).values_list("kind").annotate(n=Count("id"))), [("few", 5), ("many", 5)])
    equal(sales.filter(at__date=datetime.date(2024, 1, 31), at__year=2024).count(), 1)
    equal(Sale.objects.values_list(Coalesce("note", Value("-", output_field=TextField())), flat=True).distinct().count(), 1)
    equal(len(Sale.objects.in_bulk([sale.pk for sale in sales[:3]])), 3)
    equal(sum(1 for _ in sales.iterator(chunk_size=3)), 10)
    equal(sales.filter(amount=1).union(sales.filter(amount=2)).count(), 2)


@program.check
def changing():
    """save, update with F, bulk_update, delete with what refers to it, select_for_update"""
    shop = filled()
    shop.name = "Other"
    shop.save()
    equal(Sale.objects.filter(amount__lt=3).update(amount=F("amount") + 100), 3)
    some = list(Sale.objects.filter(amount__gte=100).order_by("amount"))
    for sale in some:
        sale.note = f"n{sale.amount}"
    equal(Sale.objects.bulk_update(some, ["note"]), 3)
    equal(list(Sale.objects.filter(note__gt="").order_by("note").values_list("note", flat=True)), ["n100", "n101", "n102"])
    with transaction.atomic():
        equal(Shop.objects.select_for_update().get(pk=shop.pk).name, "Other")
    equal(some[0].delete()[0], 1)
    equal(shop.delete(), (10, {"shop.Sale": 9, "shop.Shop": 1}))


@program.check
def transactions():
    """atomic, savepoints in it, an error in one; errors of Django's own kinds"""
    shop = filled()
    with transaction.atomic():
        Sale.objects.create(shop=shop, product="kept")
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            Sale.objects.create(shop=shop, product="undone")
            raise ZeroDivisionError
        with connection.cursor() as cursor:
            with contextlib.suppress(ProgrammingError), transaction.atomic():
                cursor.execute("SELECT * FROM shop_nosuch")
            raises(DataError, lambda: transaction.atomic()(cursor.execute)("SELECT %s::int", ["x"]))
    equal(list(Sale.objects.filter(product__in=["kept", "undone"]).values_list("product", flat=True)), ["kept"])


@program.check
def conflict():
    """unique and foreign keys are enforced: IntegrityError; bulk_create with ignore_conflicts and with update_conflicts"""
    filled()
    raises(IntegrityError, lambda: Shop.objects.create(name="Corner"))
    Shop.objects.bulk_create([Shop(name="Corner"), Shop(name="Second")], ignore_conflicts=True)
    day = datetime.date(2001, 1, 1)
    Shop.objects.bulk_create([Shop(name="Corner", opened=day)], update_conflicts=True, unique_fields=["name"], update_fields=["opened"])
    equal(list(Shop.objects.order_by("name").values_list("name", "opened")), [("Corner", day), ("Second", None)])


@program.check
def inspecting():
    """inspectdb writes the models down; introspection of constraints; dumpdata; sessions"""
    filled()
    text = command("inspectdb", "shop_shop", "shop_sale")
    for line in ["class ShopSale(models.Model):", "id = models.BigAutoField(primary_key=True)", "name = models.CharField(unique=True, max_length=50)",
                 "shop = models.ForeignKey(ShopShop, models.DO_NOTHING)", "price = models.DecimalField(max_digits=10, decimal_places=2, blank=True, null=True)"]:
        holds(line in text, f"{line} in {text}")
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, "shop_sale").values()
    equal(sorted((one["columns"], one["primary_key"], bool(one["foreign_key"])) for one in found if one["primary_key"] or one["foreign_key"]),
          [(["id"], True, False), (["shop_id"], False, True)])
    holds('"product": "p3"' in command("dumpdata", "shop.sale"), "dumpdata")
    store = SessionStore()
    store["who"] = "me"
    store.save()
    equal(SessionStore(store.session_key)["who"], "me")


program.run()
