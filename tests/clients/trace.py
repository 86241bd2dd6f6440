"""A proxy of PostgreSQL's protocol that writes down, message by message, what a client sends and what it gets.

usage: trace.py HOST PORT [LISTEN_PORT]     (the trace goes to standard output)

It answers requests for encryption with "no", because it could not read what follows. Passwords are not written.
"""

import socket
import struct
import sys
import threading

# Of one message; a statement of 10 000 parameters would hide all others.
TEXT_MAX = 1500
# Rows written of each result; the others are counted.
ROWS_MAX = 3

CLIENT = {
    "B": "Bind", "C": "Close", "d": "CopyData", "c": "CopyDone", "f": "CopyFail", "D": "Describe", "E": "Execute", "H": "Flush", "F": "FunctionCall", "P": "Parse",
    "p": "Password", "Q": "Query", "S": "Sync", "X": "Terminate",
}
SERVER = {
    "R": "Authentication", "K": "BackendKeyData", "2": "BindComplete", "3": "CloseComplete", "C": "CommandComplete", "d": "CopyData", "c": "CopyDone", "G": "CopyInResponse",
    "H": "CopyOutResponse", "D": "DataRow", "I": "EmptyQueryResponse", "E": "ErrorResponse", "n": "NoData", "N": "NoticeResponse", "A": "NotificationResponse",
    "t": "ParameterDescription", "S": "ParameterStatus", "1": "ParseComplete", "s": "PortalSuspended", "Z": "ReadyForQuery", "T": "RowDescription", "v": "NegotiateProtocolVersion",
}


class Reader:
    """The fields of one message."""

    def __init__(self, body):
        self.body, self.place = body, 0

    def number(self, form):
        size = struct.calcsize("!" + form)
        (value,) = struct.unpack_from("!" + form, self.body, self.place)
        self.place += size
        return value

    def string(self):
        end = self.body.index(b"\0", self.place)
        value = self.body[self.place:end].decode("utf-8", "replace")
        self.place = end + 1
        return value

    def value(self):
        size = self.number("i")
        if size < 0:
            return "NULL"
        value = self.body[self.place:self.place + size]
        self.place += size
        return show(value)


def show(value):
    try:
        text = value.decode()
        if text.isprintable():
            return repr(text)
    except UnicodeDecodeError:
        pass
    return "x" + value[:60].hex() + ("…" if len(value) > 60 else "")


def fields(kind, body, from_client):
    """What a message says, as text."""
    read = Reader(body)
    if from_client:
        if kind == "Q":
            return read.string()
        if kind == "P":
            name, query = read.string(), read.string()
            return f"{name!r} {query} types {[read.number('I') for _ in range(read.number('h'))]}"
        if kind == "B":
            portal, name = read.string(), read.string()
            formats = [read.number("h") for _ in range(read.number("h"))]
            values = [read.value() for _ in range(read.number("H"))]
            results = [read.number("h") for _ in range(read.number("h"))]
            return f"portal {portal!r} statement {name!r} formats {formats} values [{', '.join(values)}] results {results}"
        if kind in "CD":
            return f"{chr(body[0])} {body[1:-1].decode('utf-8', 'replace')!r}"
        if kind == "E":
            return f"{read.string()!r} rows {read.number('i')}"
        if kind == "p":
            return f"{len(body)} bytes"
        return show(body) if body else ""
    if kind in "EN":
        parts = []
        while body[read.place] != 0:
            code = chr(read.number("B"))
            parts.append(f"{code}={read.string()}")
        return " ".join(parts)
    if kind == "T":
        columns = []
        for _ in range(read.number("h")):
            name, table, number, oid, size, modifier, form = read.string(), read.number("I"), read.number("h"), read.number("I"), read.number("h"), read.number("i"), read.number("h")
            columns.append(f"{name!r} table {table}.{number} type {oid} size {size} modifier {modifier} format {form}")
        return "; ".join(columns)
    if kind == "D":
        return ", ".join(read.value() for _ in range(read.number("h")))
    if kind == "C":
        return read.string()
    if kind == "S":
        return f"{read.string()} = {read.string()}"
    if kind == "Z":
        return chr(body[0])
    if kind == "t":
        return str([read.number("I") for _ in range(read.number("h"))])
    if kind == "R":
        return f"{read.number('I')}"
    if kind == "K":
        return f"process {read.number('I')}"
    return show(body) if body else ""


class Proxy:
    """Listens on a port of its own (`port`) and hands all on to a server; `write` gets each line of the trace."""

    def __init__(self, host, port, write, listen_port=0):
        self.server, self.write, self.lock, self.count = (host, port), write, threading.Lock(), 0
        self.listener = socket.create_server(("127.0.0.1", listen_port), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def line(self, text):
        with self.lock:
            self.write(text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + f"… ({len(text)} characters)")

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            self.count += 1
            threading.Thread(target=self.serve, args=[client, self.count], daemon=True).start()

    def serve(self, client, number):
        try:
            server = socket.create_connection(self.server)
        except OSError as error:
            self.line(f"[{number}] no connection: {error}")
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self.pump, args=[client, server, number, True], daemon=True).start()
        threading.Thread(target=self.pump, args=[server, client, number, False], daemon=True).start()

    def pump(self, source, target, number, from_client):
        buffer, started, rows = b"", not from_client, 0
        arrow, names = ("→", CLIENT) if from_client else ("←", SERVER)
        try:
            while True:
                block = source.recv(262144)
                if not block:
                    self.line(f"[{number}] {arrow} closed")
                    break
                buffer += block
                place, sent = 0, 0
                while True:
                    if not started:
                        if len(buffer) - place < 8:
                            break
                        size, code = struct.unpack_from("!II", buffer, place)
                        if len(buffer) - place < size:
                            break
                        if code in (80877103, 80877104):
                            self.line(f"[{number}] → {'SSLRequest' if code == 80877103 else 'GSSENCRequest'}, answered N here")
                            source.sendall(b"N")
                            sent = place + size
                        elif code == 80877102:
                            self.line(f"[{number}] → CancelRequest of process {struct.unpack_from('!I', buffer, place + 8)[0]}")
                        else:
                            words = buffer[place + 8:place + size].decode("utf-8", "replace").split("\0")
                            self.line(f"[{number}] → Startup {code >> 16}.{code & 0xffff} {words[:-2]}")
                            started = True
                        place += size
                        continue
                    if len(buffer) - place < 5:
                        break
                    kind, size = chr(buffer[place]), struct.unpack_from("!I", buffer, place + 1)[0]
                    if len(buffer) - place < size + 1:
                        break
                    counted = kind == "d" or kind == "D" and not from_client
                    if counted:
                        rows += 1
                    elif rows > ROWS_MAX:
                        self.line(f"[{number}] {arrow} … {rows - ROWS_MAX} more rows")
                    if not counted:
                        rows = 0
                    if rows <= ROWS_MAX:
                        body = buffer[place + 5:place + 1 + size]
                        try:
                            text = fields(kind, body, from_client)
                        except (struct.error, ValueError, IndexError) as error:
                            text = f"CANNOT BE READ ({error}): {body[:200].hex()}"
                        self.line(f"[{number}] {arrow} {names.get(kind, 'UNKNOWN ' + repr(kind))} {text}".rstrip())
                    place += size + 1
                # Only whole messages are handed on.
                target.sendall(buffer[sent:place])
                buffer = buffer[place:]
        except OSError as error:
            self.line(f"[{number}] {arrow} ended: {error}")
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

def main():
    proxy = Proxy(sys.argv[1], int(sys.argv[2]), lambda text: print(text, flush=True), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    print(f"listening on port {proxy.port}", file=sys.stderr)
    threading.Event().wait()


if __name__ == "__main__":
    main()
