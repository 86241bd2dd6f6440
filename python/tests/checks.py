"""What the package promises. Prints what the A tasks of this rank found, one line each; the test adds them up."""

import os
import random
import signal
import sys
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
            yield str(number % 70), float(number)

    def a(task):
        list(task.pairs())
        sys.stdout.write("an answer\n")

    kinds = {kind.__name__: kind for kind in (KeyboardInterrupt, SystemExit, ValueError)}
    returned = {"none": None, "float": 1.5, "large": 2**64, "below": -1, "early": 1}
    try:
        harrier_mpid.run(o, a, value=float, arrangement="sorted", o_tasks=3, a_tasks=3, **{which: wrong})
    except BaseException as error:
        sys.stdout.write(f"raised {type(error).__name__} from {type(error.__cause__).__name__}\n")
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


def fails():
    def o(task):
        yield "a", 1
        if task.rank == 2:
            raise ValueError("on purpose")

    return harrier_mpid.run(o, lambda task: None, value=int, o_tasks=4)


def place():
    def o(task):
        task.reads("letters")
        for at, letter in enumerate("abc"):
            task.at(at)
            yield letter, 1
            if task.rank == 1 and letter == "b":
                raise ValueError("on purpose")

    return harrier_mpid.run(o, lambda task: None, value=int, o_tasks=2)


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
