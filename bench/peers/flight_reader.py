"""Reads the answer of a statement over Arrow Flight SQL again and again and throws it away; tells how fast it came.

usage: flight_reader.py PORT USER STATEMENT RUNS

Prints one line of JSON: for pyarrow's own client and for the ADBC driver the rows, the bytes of the batches in memory, and the
seconds of each run, from asking to the last batch.
"""

import json
import sys
import time

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi
import pyarrow
import pyarrow.flight


def field(number, content):
    """A field of a protobuf message whose value is bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


class Flight:
    name = f"pyarrow.flight {pyarrow.__version__}"

    def __init__(self, port, user):
        self.client = pyarrow.flight.connect(f"grpc://127.0.0.1:{port}")
        self.options = pyarrow.flight.FlightCallOptions(headers=[self.client.authenticate_basic_token(user, "")])

    def batches(self, statement):
        command = field(1, b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery")
        command += field(2, field(1, statement.encode()))
        info = self.client.get_flight_info(pyarrow.flight.FlightDescriptor.for_command(command), self.options)
        for endpoint in info.endpoints:
            for chunk in self.client.do_get(endpoint.ticket, self.options):
                yield chunk.data


class Adbc:
    name = f"ADBC {adbc_driver_flightsql.__version__}"

    def __init__(self, port, user):
        options = {"username": user, "password": ""}
        self.connection = adbc_driver_flightsql.dbapi.connect(f"grpc://127.0.0.1:{port}", db_kwargs=options, autocommit=True)

    def batches(self, statement):
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            yield from cursor.fetch_record_batch()


def main():
    port, user, statement, runs = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    told = []
    for client in (Flight, Adbc):
        try:
            reader = client(port, user)
            seconds = []
            # The first run warms up.
            for run in range(runs + 1):
                rows = size = 0
                start = time.perf_counter()
                for batch in reader.batches(statement):
                    rows += batch.num_rows
                    size += batch.nbytes
                if run:
                    seconds.append(time.perf_counter() - start)
            told.append({"name": client.name, "rows": rows, "bytes": size, "seconds": seconds})
        except Exception as error:
            told.append({"name": client.name, "problem": f"{type(error).__name__}: {error}"})
    print(json.dumps({"ways": told}))


main()
