"""Comes in over Arrow Flight SQL in a way that is asked for, and runs statements.

usage: flight_login.py URI [--user NAME] [--password WORD] [--ca FILE] [--certificate FILE --key FILE] [--pyarrow] STATEMENT...

With ADBC's driver, or PyArrow's client of Flight. Of each statement it prints the rows, as JSON, or what was said against it. For ADBC,
`ingest TABLE` writes a row with 7 in its column x, and `prepare STATEMENT` prepares a statement before it is run.
"""

import argparse
import json
import sys

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi
import pyarrow
import pyarrow.flight

arguments = argparse.ArgumentParser()
arguments.add_argument("uri")
arguments.add_argument("--user", default="")
arguments.add_argument("--password", default="")
arguments.add_argument("--ca")
arguments.add_argument("--certificate")
arguments.add_argument("--key")
arguments.add_argument("--pyarrow", action="store_true")
arguments.add_argument("statements", nargs="+")
given = arguments.parse_args()


def tell(error):
    """Says in a line what was said against a statement; who was not let in, or did not get through, has nothing more to say."""
    if "SQLSTATE" not in str(error) or "SQLSTATE 28" in str(error):
        raise error
    print(f"{type(error).__name__}:", " ".join(str(error).split()))


def contents(path):
    with open(path) as file:
        return file.read()


def adbc():
    Options = adbc_driver_flightsql.DatabaseOptions
    options = {}
    if given.user:
        options.update(username=given.user, password=given.password)
    if given.ca:
        options[Options.TLS_ROOT_CERTS.value] = contents(given.ca)
    if given.certificate:
        options[Options.MTLS_CERT_CHAIN.value] = contents(given.certificate)
        options[Options.MTLS_PRIVATE_KEY.value] = contents(given.key)
    with adbc_driver_flightsql.dbapi.connect(given.uri, db_kwargs=options, autocommit=True) as connection:
        for statement in given.statements:
            try:
                with connection.cursor() as cursor:
                    kind, _, rest = statement.partition(" ")
                    if kind == "ingest":
                        cursor.adbc_ingest(rest, pyarrow.table({"x": pyarrow.array([7], pyarrow.int32())}), mode="append")
                        print("[]")
                        continue
                    if kind == "prepare":
                        cursor.adbc_prepare(rest)
                        statement = rest
                    cursor.execute(statement)
                    rows = cursor.fetchall() if cursor.description else []
                    print(json.dumps([list(row) for row in rows], default=str))
            except adbc_driver_flightsql.dbapi.Error as error:
                tell(error)


def varint(number):
    digits = b""
    while number > 127:
        digits += bytes([number & 127 | 128])
        number >>= 7
    return digits + bytes([number])


def command(statement):
    """A CommandStatementQuery in an Any, written by hand: PyArrow knows Flight, and nothing of SQL."""
    text = statement.encode()
    query = b"\x0a" + varint(len(text)) + text
    name = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    return b"\x0a" + varint(len(name)) + name + b"\x12" + varint(len(query)) + query


def pyarrow_client():
    options = {}
    if given.ca:
        options["tls_root_certs"] = contents(given.ca)
    if given.certificate:
        options.update(cert_chain=contents(given.certificate), private_key=contents(given.key))
    with pyarrow.flight.connect(given.uri, **options) as client:
        headers = []
        if given.user:
            headers.append(client.authenticate_basic_token(given.user, given.password))
        call = pyarrow.flight.FlightCallOptions(headers=headers)
        for statement in given.statements:
            try:
                info = client.get_flight_info(pyarrow.flight.FlightDescriptor.for_command(command(statement)), call)
                table = client.do_get(info.endpoints[0].ticket, call).read_all()
                print(json.dumps([list(row.values()) for row in table.to_pylist()], default=str))
            except (pyarrow.flight.FlightError, pyarrow.ArrowException) as error:
                tell(error)


try:
    pyarrow_client() if given.pyarrow else adbc()
except (adbc_driver_flightsql.dbapi.Error, pyarrow.flight.FlightError, pyarrow.ArrowException) as error:
    print(f"refused: {type(error).__name__}: {error}")
    sys.exit(1)
