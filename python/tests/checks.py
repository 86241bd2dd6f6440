"""What the package promises. Prints what the A tasks of this rank found, one line each; the test adds them up."""

import functools
import os
import random
import signal
import sys
import threading
import time

import harrier_mpid


def arrays():
    import numpy

    def o(task):
        numbers = numpy.arange(1000, dtype=numpy.uint32) + task.rank * 1000
        task.send_arrays(numbers, numbers.astype(numpy.float64) / 2)

    def a(task):
        count, total = 0, 0.0
        for keys, values in task.arrays(numpy.uint32, numpy.float64, length=300):
            assert (keys == values * 2).all()
            count, total = count + len(keys), total + float(values.sum())
        return count, int(total * 2)

    return harrier_mpid.run(o, a, key=bytes, value=bytes, arrangement="plain", o_tasks=4, a_tasks=3)


def refused(call, kind, told):
    """Whether this is refused, with these words; 1 or 0."""
    try:
        call()
    except kind as error:
        assert told in str(error), (told, error)
        return 1
    return 0


def array_pairs():
    """Arrays of whatever numbers are the pairs that are yielded beside them, for sums, partitioners and orders. argv: the type of values."""
    import numpy

    value = {"int": int, "float": float}[sys.argv[2]]
    whole = ["int64", "int8", "uint8", ">i4", "uint32", ">u8", "uint64", ">i8", "int16", "uint16"]
    kinds = whole if value is int else ["float64", "float32", ">f8", "float16", ">f4"]
    signed = numpy.arange(-100, 100)

    def o(task):
        # Every kind of key, with some kind of value; and what is yielded.
        if task.rank == len(whole):
            return ((number, value(number)) for number in signed.tolist())
        kind = numpy.dtype(whole[task.rank])
        numbers = signed if kind.kind == "i" else signed[100:]
        of_values = numpy.dtype(kinds[task.rank % len(kinds)])
        assert kind.kind == of_values.kind or value is float
        # Of one, more than are converted at a time.
        for times in (350, 50) if task.rank == 0 else (7, 3):
            task.send_arrays(numpy.tile(numbers.astype(kind), times), numpy.tile(numbers.astype(of_values), times))
        task.send_arrays(numbers[:0].astype(kind), numbers[:0].astype(of_values))
        return None

    def expected(number):
        kinds = [at for at, kind in enumerate(whole) if number >= 0 or numpy.dtype(kind).kind == "i"]
        return number * (1 + sum(400 if at == 0 else 10 for at in kinds))

    def a(task):
        if sys.argv[3] == "pairs":
            found = list(task.pairs())
        else:
            # As other types than those that were sent.
            types = ">i2", ">i8" if value is int else "float64"
            pieces = [(keys.copy(), values.copy()) for keys, values in task.arrays(*types, length=7)]
            assert all(array.dtype == kind for piece in pieces for array, kind in zip(piece, types))
            found = [pair for keys, values in pieces for pair in zip(keys.tolist(), values.tolist())]
        numbers = [number for number in range(-100, 100) if number % task.size == task.rank]
        assert found == [(number, expected(number)) for number in numbers], found
        return len(found), 0

    return harrier_mpid.run(
        o, a, int, value, "sorted", combine="sum", partition=lambda key, tasks: key % tasks, o_tasks=len(whole) + 1, a_tasks=3
    )


def array_bytes():
    """Elements that are bytes: those of memory, as of an element that is yielded."""
    import numpy

    def o(task):
        keys = numpy.array([b"bb", b"a\0", b"cc"]).view("V2")
        task.send_arrays(keys, numpy.array([1, 2, 3], ">u4"))
        yield from zip(keys, (number.to_bytes(4, "big") for number in (4, 5, 6)))

    def a(task):
        keys, values = next(task.arrays("V2", ">u4"))
        keys, values = [bytes(key) for key in keys], values.tolist()
        assert keys == [b"a\0", b"a\0", b"bb", b"bb", b"cc", b"cc"], keys
        assert [sorted(values[at : at + 2]) for at in (0, 2, 4)] == [[2, 5], [1, 4], [3, 6]], values
        return len(keys), 0

    return harrier_mpid.run(o, a, key=bytes, value=bytes, arrangement="sorted", o_tasks=1, a_tasks=1)


def wrong_arrays():
    """What is not the pairs that it looks like is refused."""
    import numpy

    number, decimal = numpy.arange(3), numpy.ones(3)
    of_numbers = [
        (decimal, decimal, TypeError, "the keys of this job are int, and not what an array of float64 has"),
        (number, number, TypeError, "the values of this job are float, and not what an array of int64 has"),
        (number, decimal.astype(complex), TypeError, "complex128"),
        (number, decimal.astype(numpy.longdouble), TypeError, "float128"),
        (number > 1, decimal, TypeError, "bool"),
        (number.astype("datetime64[s]"), decimal, TypeError, "datetime64"),
        (number.astype("S3"), decimal, TypeError, "|S3"),
        (number.astype("U3"), decimal, TypeError, "<U3"),
        (number.astype(object), decimal, TypeError, "object"),
        (number.astype("u8") + numpy.uint64(2**63), decimal, OverflowError, f"the key {2**63 + 2} is out of range"),
        (numpy.ma.array(number, mask=[0, 1, 0]), decimal, TypeError, "the keys are a masked array"),
        (number, numpy.ma.array(decimal), TypeError, "the values are a masked array"),
        (number.tolist(), decimal, TypeError, "the keys are no NumPy array but list"),
        (number, memoryview(decimal), TypeError, "the values are no NumPy array but memoryview"),
        (numpy.arange(6)[::2], decimal, ValueError, "ascontiguousarray"),
        (number[::-1], decimal, ValueError, "ascontiguousarray"),
        (number.reshape(3, 1), decimal, ValueError, "one dimension"),
        (numpy.array(1), decimal, ValueError, "one dimension"),
        (number[:2], decimal, ValueError, "as many keys as values, and not 2 and 3"),
    ]

    def o(task):
        for keys, values, kind, told in of_numbers:
            assert refused(lambda: task.send_arrays(keys, values), kind, told), told
        task.send_arrays(numpy.array([-200, 5, 2**62]), decimal)

    def a(task):
        assert refused(lambda: next(task.arrays(float, float)), TypeError, "the keys of this job are int")
        assert refused(lambda: next(task.arrays(int, int)), TypeError, "the values of this job are float")
        assert refused(lambda: next(task.arrays("no type", int)), TypeError, "no type")
        for length in (0, -1):
            assert refused(lambda: next(task.arrays(int, float, length=length)), ValueError, "length is at least 1")
        assert refused(lambda: next(task.arrays(int, float, length=1.5)), TypeError, "float")
        for kind, wrong in (("i1", -200), ("u8", None), ("i4", 2**62)):
            if wrong is None:
                assert next(task.arrays(kind, "f4", length=1))[0].tolist() == [5]
            else:
                assert refused(lambda: next(task.arrays(kind, float, length=1)), OverflowError, f"the key {wrong} is out of range of int")
        return len(of_numbers), 0

    return harrier_mpid.run(o, a, key=int, value=float, arrangement="sorted", o_tasks=1, a_tasks=1)


def arrays_of_others():
    """Keys and values that arrays cannot be, and texts."""
    import numpy

    number, texts = numpy.arange(2), numpy.array(["a", "b"])

    def o(task):
        told = "arrays have keys that are bytes or int, and the keys of this job are str"
        assert refused(lambda: task.send_arrays(texts, number), TypeError, told)
        yield "a", 1

    def a(task):
        told = "arrays have keys that are bytes or int, and the keys of this job are str"
        return refused(lambda: next(task.arrays("U1", int)), TypeError, told), 0

    return harrier_mpid.run(o, a, o_tasks=1, a_tasks=1)


def object_arrays():
    """Their memory has pointers, which nobody else may have."""
    import numpy

    def refused(call):
        try:
            call()
        except TypeError as error:
            assert "pointers to objects" in str(error), error
            return 1
        return 0

    def o(task):
        numbers, objects = numpy.arange(2), numpy.array(["a", None], dtype=object)
        within = numpy.zeros(2, [("number", int), ("object", object)])
        pairs = [(objects, numbers), (numbers, objects), (within, numbers)]
        assert sum(refused(lambda: task.send_arrays(*pair)) for pair in pairs) == 3
        task.send_arrays(numbers, numbers)

    def a(task):
        return refused(lambda: next(task.arrays(object, int))) + refused(lambda: next(task.arrays(int, object))), 0

    return harrier_mpid.run(o, a, key=bytes, value=bytes, o_tasks=1, a_tasks=1)


def ranges():
    """Numbers that 64 bits do not hold are refused, and not cut off."""
    ends = [-(2**63), -1, 0, 2**63 - 1]

    def o(task):
        for wrong, kind in ((2**63, OverflowError), (-(2**63) - 1, OverflowError), (2**64 + 5, OverflowError), (1.5, TypeError)):
            for pair, what in (((wrong, 1), "key"), ((1, wrong), "value")):
                try:
                    task.send(*pair)
                except kind as error:
                    assert kind is TypeError or f"the {what} {wrong} is out of range" in str(error) and "2**63 - 1" in str(error), error
                else:
                    raise AssertionError(f"{pair} was sent")
        for position in (-1, 2**64):
            try:
                task.at(position)
            except OverflowError:
                pass
            else:
                raise AssertionError(position)
        return ((number, number) for number in ends)

    def a(task):
        assert list(task.pairs()) == [(number, number) for number in ends]
        return len(ends), 0

    return harrier_mpid.run(o, a, key=int, value=int, arrangement="sorted", o_tasks=1, a_tasks=1)


def wrong_bytes():
    """Neither numbers nor texts are bytes: of a number, there would be as many zeros."""

    def o(task):
        for wrong in (5, 0, "text", None, 1.5, [1]):
            for pair, what in (((wrong, b""), "key"), ((b"", wrong), "value")):
                told = f"the {what} {wrong!r} is of type {type(wrong).__name__}, and {what}s of this job are bytes"
                assert refused(lambda: task.send(*pair), TypeError, told), pair
        return ((b"a", kind(b"b")) for kind in (bytes, bytearray, memoryview))

    def a(task):
        assert list(task.pairs()) == [(b"a", b"b")] * 3
        return 1, 0

    return harrier_mpid.run(o, a, key=bytes, value=bytes, o_tasks=1, a_tasks=1)


def wrong_pairs():
    """Keys and values of other types than the job's."""

    def o(task):
        for pair, told in (
            ((None, 1.0), "the key None is of type NoneType, and keys of this job are str"),
            ((b"a", 1.0), "the key b'a' is of type bytes"),
            (("a", None), "the value None is of type NoneType, and values of this job are float"),
            (("a", "1" * 1000), "1111…"),
        ):
            assert refused(lambda: task.send(*pair), TypeError, told), pair
        assert refused(lambda: task.keep(1, 2), TypeError, "keep is for tasks of Rounds")
        assert refused(lambda: task.kept(), TypeError, "kept is for tasks of Rounds")
        yield "a", 1

    return harrier_mpid.run(o, lambda task: (len(list(task.pairs())), 0), value=float, o_tasks=1, a_tasks=1)


def yields():
    """What is no pair. argv has which."""

    class Callable:
        def __call__(self, task):
            yield from task.pairs()

    async def later(task):
        pass

    what = sys.argv[2]
    pair = [("a", 1)]
    o = {"text": lambda _: ["ab"], "none": lambda _: [None], "three": lambda _: [("a", 1, 2)], "number": lambda _: 5, "async": later}
    a = {"generator": lambda task: (pair for pair in task.pairs()), "callable": Callable(), "coroutine": lambda task: later(task)}
    return harrier_mpid.run(o.get(what, lambda _: pair), a.get(what, lambda task: None), value=int, o_tasks=2, a_tasks=2)


def refusals():
    """What cannot be is said before a job begins, and one can begin afterwards."""
    run, stream, rounds = harrier_mpid.run, harrier_mpid.stream, harrier_mpid.Rounds
    o, a = (lambda _: [("a", 1)]), (lambda task: (len(list(task.pairs())), 0))

    def lazy(task):
        yield from task.pairs()

    async def later(task):
        pass

    in_rounds = rounds()
    wrong = [
        (lambda: run(o, lazy), TypeError, "the A function refusals.<locals>.lazy has a yield"),
        (lambda: run(o, functools.partial(lazy)), TypeError, "has a yield"),
        (lambda: run(o, later), TypeError, "later has a yield or is async"),
        (lambda: stream(o, lazy, 10), TypeError, "lazy has a yield"),
        (lambda: in_rounds.run(o, lazy), TypeError, "lazy has a yield"),
        (lambda: run(o, a, key=float), TypeError, "key is float, and can be str, bytes or int"),
        (lambda: run(o, a, key=[str]), TypeError, "key is [<class 'str'>], and can be"),
        (lambda: run(o, a, value=list), TypeError, "value is list, and can be str, bytes, int, float or object"),
        (lambda: run(o, a, arrangement="nope"), ValueError, "arrangement is 'nope', and can be 'plain', 'grouped' or 'sorted'"),
        (lambda: run(o, a, combine="max"), ValueError, "combine is 'max', and can be \"sum\" or a function"),
        (lambda: run(o, a, combine=5), TypeError, "combine is 5"),
        (lambda: run(o, a, partition="sum"), TypeError, "partition is 'sum'"),
        (lambda: run(o, a, compare=[]), TypeError, "compare is []"),
        (lambda: run(None, a), TypeError, "o is None"),
        (lambda: run(o, a, o_tasks=0), ValueError, "o_tasks is 0"),
        (lambda: run(o, a, a_tasks=1.5), TypeError, "a_tasks is 1.5"),
        (lambda: rounds(kept=int), TypeError, "kept is <class 'int'>"),
        (lambda: rounds(kept=(int, dict)), TypeError, "the value of kept is dict, and can be"),
    ]
    for value in (str, bytes, object):
        told = f'combine="sum" adds up values that are int or float, and value is {value.__name__}'
        wrong.append((lambda value=value: run(o, a, value=value, combine="sum"), ValueError, told))
    for call, kind, told in wrong:
        assert refused(call, kind, told), told
    return run(o, a, value=int, o_tasks=1, a_tasks=1)


def nested():
    """A job within another one. argv has by which function."""
    where = sys.argv[2]

    def within(*_):
        harrier_mpid.run(lambda _: None, lambda _: None)

    def o(task):
        if where == "o":
            within()
        return [("a", 1), ("a", 1)]

    def in_rounds(_):
        rounds.run(lambda _: None, lambda _: None)

    def sums(_):
        rounds.sum(1)

    if where == "rounds":
        other = harrier_mpid.Rounds()
        with harrier_mpid.Rounds(o_tasks=1, a_tasks=1) as rounds:
            rounds.run(o, lambda _: None, value=int)
            with other:
                assert refused(lambda: other.run(o, lambda _: None), RuntimeError, "a job of this process has not ended")
            assert rounds.sum(1)[0] >= 1
        raise ValueError("a job of this process has not ended, and goes on")
    if where in ("round", "sum"):
        with harrier_mpid.Rounds(o_tasks=1, a_tasks=1) as rounds:
            rounds.run(in_rounds if where == "round" else sums, lambda _: None)
            rounds.sum(1)
    else:
        a = within if where == "a" else lambda _: None
        harrier_mpid.run(o, a, value=int, combine=within if where == "combine" else None, o_tasks=1, a_tasks=1)
    return {}


def several():
    """Jobs one after the other, with numbers of tasks of their own."""
    found = {}
    for tasks in (2, 3):
        counted = harrier_mpid.run(lambda _: [("a", 1)], lambda task: list(task.pairs()), value=int, o_tasks=tasks, a_tasks=1)
        found[tasks] = sum(len(pairs) for pairs in counted.values()), 0
    return found


def overflows():
    def o(task):
        return (("key", 2**62) for _ in range(3))

    return harrier_mpid.run(o, lambda task: None, value=int, combine="sum", o_tasks=2)


def ordered():
    """Keys in an order of the program's own."""

    def o(task):
        return ((number, number) for number in range(task.rank, 500, task.size))

    def a(task):
        numbers = [key for key, _ in task.pairs()]
        assert numbers == sorted(numbers, key=lambda number: (number % 10, -number)), numbers
        return len(numbers), sum(numbers)

    def compare(left, right):
        return left % 10 - right % 10 or right - left

    return harrier_mpid.run(o, a, key=int, value=int, arrangement="sorted", compare=compare, o_tasks=3, a_tasks=3)


def raises():
    """A function that the library calls raises something, or returns no number: argv has which, and what."""
    which, what = sys.argv[2:4]

    def wrong(*_):
        if what in returned:
            return returned[what]
        raise kinds[what]("on purpose")

    def trace(frame, event, _):
        # As if an interrupt came between the library and the function's first line.
        if event == "call" and frame.f_code.co_name == "call":
            raise KeyboardInterrupt

    def o(task):
        if what == "early":
            sys.settrace(trace)
        for number in range(5000):
            yield number % 70, float(number)

    def a(task):
        list(task.pairs())
        sys.stdout.write("an answer\n")

    kinds = {kind.__name__: kind for kind in (KeyboardInterrupt, SystemExit, ValueError)}
    returned = {"none": None, "float": 1.5, "large": 2**64, "below": -1, "early": 1, "bool": True}
    try:
        harrier_mpid.run(o, a, key=int, value=float, arrangement="sorted", o_tasks=3, a_tasks=3, **{which: wrong})
    except BaseException as error:
        sys.stdout.write(f"raised {type(error).__name__} from {type(error.__cause__).__name__}\n")
        sys.stdout.write(f"told {type(error).__name__} {error}\n")
    return {}


def one_raises():
    """A function that the library calls raises something on one rank alone: argv has which."""
    runs_first = []

    def orderly(left, right):
        return (left > right) - (left < right)

    def wrong(*arguments):
        if runs_first:
            raise ValueError("on purpose")
        return {"combine": max, "partition": lambda key, tasks: key % tasks, "compare": orderly}[sys.argv[2]](*arguments)

    def o(task):
        if task.rank == 0:
            runs_first.append(task)
        return [(number % 70, 1.0) for number in range(5000)]

    try:
        harrier_mpid.run(o, lambda task: None, int, float, "sorted", o_tasks=3, a_tasks=3, **{sys.argv[2]: wrong})
    except harrier_mpid.JobError as error:
        sys.stdout.write(f"told {error}\n")
    return {}


def interrupts():
    """A signal that comes at any time ends the program, wherever it is."""

    def handler(*_):
        raise KeyboardInterrupt

    def o(task):
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.05, 0.3))
        while True:
            yield "key", 1.0

    try:
        harrier_mpid.run(o, lambda task: sys.stdout.write("an answer\n"), value=float, combine=max, a_tasks=3)
    except KeyboardInterrupt:
        sys.stdout.write("raised KeyboardInterrupt\n")
    except harrier_mpid.JobError:
        pass  # Another rank was first.
    return {}


def killed():
    """As crates/mpid-c/tests/killed/mod.rs has it: O task 0 waits to be killed when it runs for the first time."""
    victim, go, ran = (os.path.join(sys.argv[2], name) for name in ("victim", "go", "ran"))

    def note(path, number):
        # In one piece, as others write there, too.
        with open(path, "a") as file:
            file.write(f"{number}\n")

    def o(task):
        if task.rank == 0 and not os.path.exists(victim):
            note(victim, os.getpid())
            while True:
                time.sleep(1)
        while not os.path.exists(go):
            time.sleep(0.002)
        for number in range(1000):
            yield number % 100, task.rank + 1
        note(ran, task.rank)

    def a(task):
        sums = {key: sum(values) for key, values in task.groups()}
        return len(sums), sum(sums.values())

    return harrier_mpid.run(o, a, key=int, value=int, combine="sum")


def objects():
    def o(task):
        return ((number % 10 - 5, {"number": number, "text": "x" * number}) for number in range(100))

    def a(task):
        keys, count = [], 0
        for key, values in task.groups():
            keys.append(key)
            for value in values:
                assert len(value["text"]) == value["number"] and value["number"] % 10 - 5 == key
                count += 1
                if count % 17 == 0:
                    break  # What is not read is passed over.
        assert keys == sorted(keys) and all(key % task.size == task.rank for key in keys)
        return len(keys), 0

    return harrier_mpid.run(o, a, key=int, arrangement="sorted", partition=lambda key, tasks: key % tasks, o_tasks=3, a_tasks=2)


def largest():
    def o(task):
        for number in range(500):
            yield str(number % 7), float(number)

    def a(task):
        found = {key: list(values) for key, values in task.groups()}
        assert all(len(values) == 1 and values[0] >= 493 for values in found.values()), found
        return len(found), int(sum(values[0] for values in found.values()))

    return harrier_mpid.run(o, a, value=float, combine=max, o_tasks=3, a_tasks=3)


def shares():
    """Lines, bytes and numbers that O tasks share. argv: how many tasks, bytes of a split, and files or folders."""
    tasks, split_bytes, paths = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]

    def o(task):
        for line in task.lines(paths, split_bytes):
            yield "line " + line, 1
        for line in task.lines(paths, split_bytes, encoding=None):
            yield "bytes " + line.decode(), 1
        first = task.splits(paths)
        for path, begin, end in task.splits(os.fsencode(path) for path in paths):
            with open(path, "rb") as file:
                file.seek(begin)
                yield "read", len(file.read(end - begin))
        assert list(first) == []
        begin, end = task.part(1000, 1100)
        for number in range(begin, end):
            yield f"number {number}", 1

    def a(task):
        for key, counts in task.groups():
            sys.stdout.write(f"{sum(counts)} {key}\n")

    harrier_mpid.run(o, a, value=int, combine="sum", o_tasks=tasks, a_tasks=2)
    return {}


def no_shares():
    """argv: what cannot be shared."""

    def o(task):
        what = {"missing": lambda: task.lines("/no/such/file"), "bad": lambda: task.lines([sys.argv[3]]), "size": lambda: task.splits([], -1)}
        for line in what[sys.argv[2]]():
            if line == "bad":
                raise ValueError("on purpose")
        yield from ()

    return harrier_mpid.run(o, lambda task: None, o_tasks=2)


def fails():
    def o(task):
        yield "a", 1
        if task.rank == 2:
            raise ValueError("on purpose")

    return harrier_mpid.run(o, lambda task: None, value=int, o_tasks=4)


def other_thread():
    """A pair that a thread of the program's own sends: the job fails, and does not end without it."""

    def o(task):
        yield "a", 1
        sender = threading.Thread(target=lambda: task.send("b", 1))
        sender.start()
        sender.join()

    threading.excepthook = lambda _: None
    return harrier_mpid.run(o, lambda task: None, value=int, o_tasks=2)


def place():
    def o(task):
        task.reads("letters")
        for at, letter in enumerate("abc"):
            task.at(at)
            yield letter, 1
            if task.rank == 1 and letter == "b":
                raise ValueError("on purpose")

    return harrier_mpid.run(o, lambda task: None, value=int, o_tasks=2)


def odd_place():
    """A name of a file that is no text."""

    def o(task):
        task.reads(os.fsdecode(b"caf\xe9"))
        task.reads(b"caf\xe9")
        task.at(7)
        raise ValueError("on purpose")

    return harrier_mpid.run(o, lambda task: None, o_tasks=1)


def fails_at_key():
    """Of keys that are int, an error says the number. argv: how they are received."""

    def a(task):
        for key, _ in task.groups() if sys.argv[2] == "groups" else task.pairs():
            if key == -7:
                raise ValueError("on purpose")

    return harrier_mpid.run(lambda _: [(number, 1) for number in range(-20, 20)], a, int, int, "sorted", o_tasks=1)


def float_sums():
    def o(task):
        return ((str(number % 10), number / 4) for number in range(1000))

    def a(task):
        found = dict(task.pairs())
        assert found == {key: sum(number / 2 for number in range(1000) if number % 10 == int(key)) for key in found}, found
        return len(found), int(sum(found.values()))

    return harrier_mpid.run(o, a, value=float, combine="sum", o_tasks=2, a_tasks=3)


def rounds():
    """Numbers go round: in each, every A task keeps what it gets, one more, and sends it on."""
    found = {}

    def read(task):
        return ((number, number) for number in range(task.rank, 90, task.size))

    def keep(task):
        for key, value in task.pairs():
            task.keep(key, value)

    def on(task):
        return ((key + 1, value + 1) for key, value in task.kept())

    def count(task):
        kept = list(task.kept())
        assert all(key == value for key, value in kept)
        found[task.rank] = len(kept), sum(value for _, value in kept)

    with harrier_mpid.Rounds(kept=(int, int), o_tasks=2, a_tasks=5) as program:
        program.run(read, keep, key=int, value=int, arrangement="sorted")
        for number in range(3):
            program.run(on, keep, key=int, value=int, partition=lambda key, tasks: key % tasks)
            assert program.sum(1.0, number) == [program.sum(1.0)[0], program.sum(number)[0]]
        # What nobody keeps anew stays.
        program.run(lambda task: None, count)
        program.run(lambda task: None, count)
    return found


def fails_in_round():
    def on(task):
        for key, value in task.kept():
            if key == 7:
                raise ValueError("on purpose")
            yield key, value

    def keep(task):
        for key, value in task.pairs():
            task.keep(key, value)

    with harrier_mpid.Rounds(kept=(int, int), o_tasks=1, a_tasks=1) as program:
        program.run(lambda task: ((number, number) for number in range(10)), keep, key=int, value=int, arrangement="sorted")
        for _ in range(100):
            program.run(on, keep, key=int, value=int)
    return {}


def ends_alone():
    """Ranks that do not do the same are told, and none waits for ever."""
    with harrier_mpid.Rounds(a_tasks=4) as program:
        first = program.run(lambda task: None, lambda task: None)
        if len(first) == 4:
            sys.stdout.write("alone\n")
        elif 0 in first:
            program.run(lambda task: None, lambda task: None)
    return {}


def windows():
    found = {}

    def o(task):
        for wrong in (-1, 2**64):
            try:
                task.advance(wrong)
            except OverflowError:
                continue
            raise AssertionError(wrong)
        for time in range(100):
            task.advance(time)
            yield time, str(time % 3), 1
            yield None
        task.advance(200)
        yield 5, "late", 1

    def a(task):
        begin, end = task.window
        assert end == begin + 30
        for key, numbers in task.groups():
            number = sum(numbers)
            assert key != "late" and begin < 120
            count, total = found.get(task.rank, (0, 0))
            found[task.rank] = count + 1, total + number

    late = harrier_mpid.stream(o, a, 30, value=int, combine="sum", a_tasks=2)
    sys.stdout.write(f"late {late}\n")
    return found


def fails_in_window():
    def o(task):
        for time in range(100):
            task.advance(time)
            yield time, "key", 1

    def a(task):
        next(task.pairs())
        if task.window[0] == 40:
            raise ValueError("on purpose")

    harrier_mpid.stream(o, a, 10, value=int)
    return {}


if __name__ == "__main__":
    try:
        for rank, (count, total) in sorted(globals()[sys.argv[1]]().items()):
            # In one piece: ranks share the output.
            sys.stdout.write(f"A {rank} {count} {total}\n")
    except (harrier_mpid.JobError, ValueError) as error:
        sys.stdout.write(f"failed: {error}\n")
