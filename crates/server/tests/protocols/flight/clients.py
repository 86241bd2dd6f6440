"""ADBC and pyarrow clients against a server of a few statements (mock_backend.rs); run by flight.rs.

usage: clients.py adbc|cancel|pyarrow|speed|tls URI [CERTIFICATE]
"""

import sys
import threading
import time

import adbc_driver_flightsql.dbapi as dbapi
import adbc_driver_manager
import pyarrow
import pyarrow.flight


def connect(uri, **options):
    return dbapi.connect(uri, db_kwargs={"username": "ada", "password": "secret: 1", **options}, autocommit=True)


def fails(sqlstate, work):
    try:
        work()
    except adbc_driver_manager.Error as error:
        assert sqlstate in str(error), error
        return error
    raise AssertionError(f"no {sqlstate}")


def adbc(uri):
    fails("28P01", lambda: dbapi.connect(uri, db_kwargs={"username": "ada", "password": "wrong"}).cursor().execute("SELECT 1"))
    with connect(uri) as connection, connection.cursor() as cursor:
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]
        assert cursor.execute("SELECT current_user").fetchone() == ("ada",)
        many = cursor.execute("SELECT numbers 300000").fetch_arrow_table()
        assert many.num_rows == 300000 and many["n"].to_pylist() == list(range(300000))
        assert many["word"][8].as_py() == "the word of the number 8" and many["word"][7].as_py() is None

        # What returns no rows has run when execute returns.
        cursor.execute('CREATE TABLE "people" ("id" bigint, "name" text)')
        cursor.executemany('INSERT INTO "people" VALUES ($1, $2)', [(1, "a"), (2, None), (3, "c")])
        assert cursor.execute('SELECT * FROM "people"').fetchall() == [(1, "a"), (2, None), (3, "c")]
        assert cursor.execute("SELECT $1, $2", (17, "x")).fetchall() == [(17, "x")]
        fails("42P01", lambda: cursor.execute('SELECT * FROM "none"'))
        fails("42601", lambda: cursor.execute("SELEC"))
        fails("22012", lambda: cursor.execute("SELECT then fail").fetch_arrow_table())
        schema = cursor.adbc_execute_schema('SELECT * FROM "people"')
        assert schema.names == ["id", "name"], schema

        # Rows of one cursor are read while another runs.
        rows = cursor.execute("SELECT numbers 5000000").fetch_record_batch()
        first = next(rows)
        with connection.cursor() as second:
            assert second.execute("SELECT 1").fetchone() == (1,)
        assert first.num_rows + sum(batch.num_rows for batch in rows) == 5000000

        table = pyarrow.table({"id": [1, 2], "word": ["x\ty", None], "half": [0.5, None]})
        assert cursor.adbc_ingest("ingested", table, mode="create") == 2
        fails("42P07", lambda: cursor.adbc_ingest("ingested", table, mode="create"))
        assert cursor.adbc_ingest("ingested", table, mode="append") == 2
        assert cursor.execute('SELECT * FROM "ingested"').fetch_arrow_table().num_rows == 4
        assert cursor.adbc_ingest("ingested", table, mode="replace") == 2
        large = pyarrow.table({"id": range(300000)})
        assert cursor.adbc_ingest("ingested", large.to_batches()[0], mode="replace") == 300000

        info = connection.adbc_get_info()
        assert info["vendor_name"] == "Harrier", info
        assert connection.adbc_get_table_types() == sorted(connection.adbc_get_table_types())
        objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        schemas = {it["db_schema_name"]: it for it in objects[0]["catalog_db_schemas"]}
        tables = {it["table_name"]: it for it in schemas["public"]["db_schema_tables"]}
        assert [it["column_name"] for it in tables["people"]["table_columns"]] == ["id", "name"], tables
        assert connection.adbc_get_table_schema("people").names == ["id", "name"]
        assert connection.adbc_current_catalog == "toy", connection.adbc_current_catalog
        connection.adbc_connection.set_options(**{"adbc.connection.db_schema": "reports"})
        assert connection.adbc_current_db_schema == "reports"

    # As Python's database interface has it: a transaction until commit or rollback.
    options = {"username": "ada", "password": "secret: 1"}
    with dbapi.connect(uri, db_kwargs=options) as connection, connect(uri) as other:
        with connection.cursor() as cursor, other.cursor() as looks:
            cursor.execute('CREATE TABLE "later" ("id" bigint)')
            fails("42P01", lambda: looks.execute('SELECT * FROM "later"'))
            connection.rollback()
            # A cursor keeps the statement that it prepared in the last transaction.
            cursor.execute('CREATE TABLE "later" ("id" bigint)')
            cursor.adbc_ingest("later", pyarrow.table({"id": [1]}), mode="append")
            fails("42P01", lambda: looks.execute('SELECT * FROM "later"'))
            connection.commit()
            assert looks.execute('SELECT * FROM "later"').fetchall() == [(1,)]
            for number in range(3):
                cursor.execute('INSERT INTO "later" VALUES ($1)', (number,))
                connection.rollback() if number == 1 else connection.commit()
            assert looks.execute('SELECT * FROM "later"').fetchall() == [(1,), (0,), (2,)]


def cancel(uri):
    with connect(uri) as connection, connection.cursor() as cursor:
        timer = threading.Timer(0.3, cursor.adbc_cancel)
        timer.start()
        begun = time.monotonic()
        try:
            rows = cursor.execute("SELECT numbers 1000000000000").fetch_record_batch()
            for _ in rows:
                pass
            raise AssertionError("it ended")
        except (adbc_driver_manager.Error, pyarrow.ArrowException, OSError, ValueError) as error:
            assert "cancel" in str(error).lower(), error
        assert time.monotonic() - begun < 10
        assert cursor.execute("SELECT 1").fetchone() == (1,)


def command(name, *fields):
    """A command of Flight SQL: a message in a google.protobuf.Any."""

    def delimited(number, data):
        length, size = b"", len(data)
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + data

    url = "type.googleapis.com/arrow.flight.protocol.sql." + name
    message = b"".join(delimited(number, data) for number, data in fields)
    return delimited(1, url.encode()) + delimited(2, message)


class Password(pyarrow.flight.ClientAuthHandler):
    """The older handshake, with user and password in its payload."""

    def authenticate(self, outgoing, incoming):
        outgoing.write(pyarrow.flight.BasicAuth("ada", "secret: 1").serialize())
        self.token = incoming.read()

    def get_token(self):
        return self.token


def flight(uri):
    client = pyarrow.flight.connect(uri)
    token = client.authenticate_basic_token("ada", "secret: 1")
    options = pyarrow.flight.FlightCallOptions(headers=[token])

    def query(text, client=client, options=options):
        descriptor = pyarrow.flight.FlightDescriptor.for_command(command("CommandStatementQuery", (1, text.encode())))
        info = client.get_flight_info(descriptor, options)
        return client.do_get(info.endpoints[0].ticket, options)

    assert query("SELECT 1").read_all().to_pylist() == [{"one": 1}]
    assert query("SELECT numbers 100000").read_all().num_rows == 100000
    try:
        query("SELECT * FROM none")
        raise AssertionError("there is no such table")
    except pyarrow.ArrowException as error:
        assert "42P01" in str(error), error
    query("SET greeting = 'hello'").read_all()
    assert query("SHOW greeting").read_all().to_pylist() == [{"value": "hello"}]
    actions = {action.type for action in client.list_actions(options)}
    assert {"CreatePreparedStatement", "CancelFlightInfo", "CloseSession"} <= actions, actions
    assert list(client.list_flights(b"", options)) == []
    list(client.do_action(pyarrow.flight.Action("CloseSession", b""), options))

    older = pyarrow.flight.connect(uri)
    older.authenticate(Password())
    none = pyarrow.flight.FlightCallOptions()
    assert query("SELECT current_user", older, none).read_all().to_pylist() == [{"current_user": "ada"}]
    list(older.do_action(pyarrow.flight.Action("CloseSession", b""), none))


def speed(uri):
    with connect(uri) as connection, connection.cursor() as cursor:
        begun = time.monotonic()
        size = sum(batch.nbytes for batch in cursor.execute("SELECT wide 4000").fetch_record_batch())
        print(f"ADBC: {size / (time.monotonic() - begun) / 1e6:.0f} MB/s")
    client = pyarrow.flight.connect(uri)
    options = pyarrow.flight.FlightCallOptions(headers=[client.authenticate_basic_token("ada", "secret: 1")])
    text = command("CommandStatementQuery", (1, b"SELECT wide 4000"))
    begun = time.monotonic()
    info = client.get_flight_info(pyarrow.flight.FlightDescriptor.for_command(text), options)
    size = sum(chunk.data.nbytes for chunk in client.do_get(info.endpoints[0].ticket, options))
    print(f"pyarrow: {size / (time.monotonic() - begun) / 1e6:.0f} MB/s")


def tls(uri, certificate):
    with open(certificate) as file:
        options = {"adbc.flight.sql.client_option.tls_root_certs": file.read()}
    with connect(uri, **options) as connection, connection.cursor() as cursor:
        assert cursor.execute("SELECT numbers 100000").fetch_arrow_table().num_rows == 100000


if __name__ == "__main__":
    part, uri, *rest = sys.argv[1:]
    {"adbc": adbc, "cancel": cancel, "pyarrow": flight, "speed": speed, "tls": tls}[part](uri, *rest)
