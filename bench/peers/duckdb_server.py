"""DuckDB behind a server in Python that speaks the PostgreSQL protocol: a thread and a cursor for each client.

It has as much of the protocol as the benchmark uses: the simple query, and prepared statements with parameters as text. An answer
is written with one call if it is short. The tables are DuckDB's own, with an index on each primary key, as PostgreSQL has it.
"""

import argparse
import os
import socket
import struct
import threading

import duckdb

import server

# Rows that are fetched and written at a time.
ROWS_AT_A_TIME = 2000

KEYS = {
    "customer": "c_custkey",
    "orders": "o_orderkey",
    "part": "p_partkey",
    "supplier": "s_suppkey",
    "nation": "n_nationkey",
    "region": "r_regionkey",
}

OIDS = {
    "BIGINT": 20,
    "INTEGER": 23,
    "SMALLINT": 21,
    "DATE": 1082,
    "DOUBLE": 701,
    "FLOAT": 700,
    "BOOLEAN": 16,
    "TIMESTAMP": 1114,
    "HUGEINT": 1700,
}

running = {}
lock = threading.Lock()


def load(path, threads):
    connection = duckdb.connect(path, config={"threads": threads})
    for table, pattern in server.tables():
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in server.files(pattern))
        connection.execute(f"create table {table} as select * from read_parquet([{names}])")
        if table in KEYS:
            connection.execute(f"create unique index {table}_key on {table} ({KEYS[table]})")
    connection.execute("checkpoint")
    return connection


def oid(kind):
    kind = str(kind)
    return 1700 if kind.startswith("DECIMAL") else OIDS.get(kind, 25)


def message(kind, body=b""):
    return kind + struct.pack("!i", len(body) + 4) + body


def described(cursor):
    columns = cursor.description or []
    body = struct.pack("!h", len(columns))
    for column in columns:
        body += column[0].encode() + b"\0" + struct.pack("!ihihih", 0, 0, oid(column[1]), -1, -1, 0)
    return message(b"T", body)


def rows_of(rows):
    """Rows as messages of text."""
    parts = []
    pack = struct.Struct("!i").pack
    for row in rows:
        head = len(parts)
        parts.append(b"")
        length = 6
        for value in row:
            if value is None:
                parts.append(b"\xff\xff\xff\xff")
                length += 4
            else:
                text = (value if type(value) is str else str(value)).encode()
                parts.append(pack(len(text)))
                parts.append(text)
                length += 4 + len(text)
        parts[head] = b"D" + struct.pack("!ih", length, len(row))
    return b"".join(parts)


class Client(threading.Thread):
    def __init__(self, stream, connection):
        super().__init__(daemon=True)
        self.stream = stream
        self.reader = stream.makefile("rb", 65536)
        self.connection = connection
        self.statements = {}
        self.bound = {}
        self.failed = False

    def run(self):
        try:
            self.serve()
        except (OSError, EOFError, struct.error):
            pass
        finally:
            with lock:
                running.pop(getattr(self, "key", None), None)
            self.stream.close()

    def exactly(self, length):
        data = self.reader.read(length)
        if len(data) < length:
            raise EOFError
        return data

    def serve(self):
        while True:
            (length,) = struct.unpack("!i", self.exactly(4))
            body = self.exactly(length - 4)
            (code,) = struct.unpack("!i", body[:4])
            if code == 80877103:
                self.stream.sendall(b"N")
            elif code == 80877102:
                with lock:
                    cursor = running.get(struct.unpack("!ii", body[4:12]))
                if cursor is not None:
                    cursor.interrupt()
                return
            else:
                break
        self.cursor = self.connection.cursor()
        self.key = struct.unpack("!ii", os.urandom(8))
        with lock:
            running[self.key] = self.cursor
        self.stream.sendall(
            message(b"R", struct.pack("!i", 0))
            + message(b"S", b"server_version\x0015.0\0")
            + message(b"K", struct.pack("!ii", *self.key))
            + message(b"Z", b"I")
        )
        out = b""
        while True:
            kind = self.exactly(1)
            (length,) = struct.unpack("!i", self.exactly(4))
            body = self.exactly(length - 4)
            if kind == b"X":
                return
            if kind == b"Q":
                out += self.attempt(self.query, body[:-1].decode(), None)
                self.failed = False
                out += message(b"Z", b"I")
            elif kind == b"S":
                self.failed = False
                out += message(b"Z", b"I")
            elif not self.failed:
                out += self.attempt(self.extended, kind, body)
            if kind in (b"Q", b"S", b"H"):
                self.stream.sendall(out)
                out = b""

    def attempt(self, work, *arguments):
        try:
            return work(*arguments)
        except (duckdb.Error, RuntimeError) as error:
            self.failed = True
            state = b"57014" if isinstance(error, duckdb.InterruptException) else b"XX000"
            return message(b"E", b"SERROR\0VERROR\0C" + state + b"\0M" + str(error).encode() + b"\0\0")

    def extended(self, kind, body):
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self.statements[name] = text.decode()
            return message(b"1")
        if kind == b"B":
            portal, name, rest = body.split(b"\0", 2)
            (formats,) = struct.unpack("!h", rest[:2])
            rest = rest[2 + 2 * formats :]
            (count,) = struct.unpack("!h", rest[:2])
            rest = rest[2:]
            values = []
            for _ in range(count):
                (length,) = struct.unpack("!i", rest[:4])
                rest = rest[4:]
                values.append(None if length < 0 else rest[:length].decode())
                rest = rest[max(length, 0) :]
            self.bound[portal] = (self.statements[name], values)
            return message(b"2")
        if kind == b"E":
            return self.query(*self.bound[body.split(b"\0", 1)[0]], describe=False)
        if kind == b"C":
            return message(b"3")
        # The benchmark describes nothing.
        raise RuntimeError(f"message {kind!r} is not known here")

    def query(self, text, values, describe=True):
        cursor = self.cursor
        cursor.execute(text, values) if values else cursor.execute(text)
        out = described(cursor) if describe else b""
        count = 0
        while True:
            rows = cursor.fetchmany(ROWS_AT_A_TIME)
            count += len(rows)
            out += rows_of(rows)
            if len(rows) < ROWS_AT_A_TIME:
                break
            self.stream.sendall(out)
            out = b""
        return out + message(b"C", b"SELECT %d\0" % count)


def main():
    replies = server.own_output()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of the engine")
    connection = load(os.path.join(server.folder(), "tpch.duckdb"), parser.parse_args().threads)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1100)

    def accept():
        while True:
            stream, _ = listener.accept()
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Client(stream, connection).start()

    threading.Thread(target=accept, daemon=True).start()
    name = f"duckdb {duckdb.__version__} behind a server in Python"
    server.serve(
        replies, lambda: None, engine=name, protocol="postgresql", port=listener.getsockname()[1], user="bench", database="bench"
    )
    os._exit(0)


if __name__ == "__main__":
    main()
