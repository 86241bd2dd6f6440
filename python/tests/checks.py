"""What the package promises. Prints what the A tasks of this rank found, one line each; the test adds them up."""

import sys

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


if __name__ == "__main__":
    try:
        for rank, (count, total) in sorted(globals()[sys.argv[1]]().items()):
            # In one piece: ranks share the output.
            sys.stdout.write(f"A {rank} {count} {total}\n")
    except (harrier_mpid.JobError, ValueError) as error:
        sys.stdout.write(f"failed: {error}\n")
