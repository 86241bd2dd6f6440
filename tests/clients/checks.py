"""What the client programs in Python share: their arguments, and checks that say what differs."""

import argparse
import difflib
import enum
import faulthandler
import os
import pprint
import signal
import sys
import tempfile
import time
import traceback

# What one check may take, a million rows on a busy machine included.
CHECK_SECONDS_MAX = 120


class Difference(Exception):
    """A server gave something else than what is right."""


def equal(got, expected, what=""):
    """Fails with a diff unless both are the same, in value and in type."""
    if got == expected and same_types(got, expected):
        return
    left, right = pprint.pformat(expected, width=100), pprint.pformat(got, width=100)
    if left == right:
        left, right = f"{left} ({type(expected).__name__})", f"{right} ({type(got).__name__})"
    diff = "\n".join(
        line.rstrip("\n")
        for line in difflib.unified_diff(left.splitlines(), right.splitlines(), "expected", "got", lineterm="", n=1)
    )
    raise Difference(f"{what}\n{diff}" if what else diff)


def same_types(got, expected):
    # True equals 1 and 1 equals 1.0, which no client should mix up. A client may have rows of a class of its own.
    if isinstance(expected, (list, tuple)):
        return len(got) == len(expected) and all(same_types(one, other) for one, other in zip(got, expected))
    if isinstance(expected, (bool, int, float)) and not isinstance(expected, enum.Enum):
        return type(got) is type(expected)
    return True


def holds(condition, what):
    """Fails unless the condition is true."""
    if not condition:
        raise Difference(what)


def raises(kind, statement, what=""):
    """The exception of this kind that calling `statement` raises; fails if it raises none."""
    try:
        result = statement()
    except kind as error:
        return error
    raise Difference(f"{what or 'a statement'}: expected {kind.__name__}, got {result!r}")


class Program:
    """The checks of one client. Each is a function whose first line of documentation says what is checked."""

    def __init__(self, client):
        self.client = client
        self.checks = []
        # Who was started in the background may have been told to ignore it, and shells that are started here would, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        options = argparse.ArgumentParser(description=f"Checks a server with {client}; the password is $PGPASSWORD.")
        options.add_argument("host")
        options.add_argument("port", type=int)
        options.add_argument("user")
        options.add_argument("database", nargs="?")
        options.add_argument("--only", metavar="TEXT", help="run the checks whose line has this text")
        options.add_argument("--keep-going", action="store_true", help="run further checks after one has failed")
        self.arguments = options.parse_args()
        self.host, self.port, self.user = self.arguments.host, self.arguments.port, self.arguments.user
        self.database = self.arguments.database or self.user
        self.password = os.environ.get("PGPASSWORD", "")
        # What a client says of encryption; the last only where there has to be some.
        self.ssl_modes = ["disable", "allow", "prefer"] + (["require"] if os.environ.get("CLIENTS_TLS") else [])

    def url(self, scheme):
        """The server as a URL of this scheme."""
        from urllib.parse import quote

        password = f":{quote(self.password, safe='')}" if self.password else ""
        return f"{scheme}://{quote(self.user, safe='')}{password}@{self.host}:{self.port}/{quote(self.database, safe='')}"

    def check(self, function):
        self.checks.append(function)
        return function

    def run(self, end=None):
        """Runs the checks in order, calls `end`, and ends the program: 0 if all went well, 1 at the first that did not."""

        def too_long(*_):
            raise Difference(f"no answer after {CHECK_SECONDS_MAX} s")

        signal.signal(signal.SIGALRM, too_long)
        print(f"client  {self.client}", flush=True)
        failed = 0
        for function in self.checks:
            line = function.__doc__.strip().splitlines()[0]
            if self.arguments.only and self.arguments.only not in line:
                continue
            started = time.monotonic()
            signal.alarm(CHECK_SECONDS_MAX)
            # A client that waits in C code does not see the alarm.
            faulthandler.dump_traceback_later(CHECK_SECONDS_MAX + 20, exit=True)
            try:
                function()
                print(f"ok      {line} ({time.monotonic() - started:.2f} s)", flush=True)
            except Exception as error:  # every kind is a failed check
                failed += 1
                print(f"FAILED  {line}", flush=True)
                place = [frame for frame in traceback.extract_tb(error.__traceback__) if os.path.exists(frame.filename) and os.path.samefile(frame.filename, sys.argv[0])]
                for frame in place[:1] + place[1:][-1:]:
                    print(f"        {os.path.basename(sys.argv[0])}:{frame.lineno}: {frame.line}")
                text = str(error) if isinstance(error, Difference) else f"{type(error).__name__}: {error}"
                print("        " + text.strip().replace("\n", "\n        "), flush=True)
                if not self.arguments.keep_going:
                    break
            finally:
                signal.alarm(0)
                faulthandler.cancel_dump_traceback_later()
        if end:
            end()
        # Threads that wait for an answer that never comes must not keep the program.
        sys.stdout.flush()
        os._exit(1 if failed else 0)


def scratch(name):
    """The path of a new file in a new folder."""
    return os.path.join(tempfile.mkdtemp(prefix="clients-"), name)
