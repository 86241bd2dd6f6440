"""k-means: mpirun -n 2 python3 kmeans.py CLUSTERS ROUNDS FILE... of points (numbers with spaces between them) prints the centres.

The points stay in memory; a round sends each one's coordinates to the nearest centre. It ends when no centre moves."""

import sys

import harrier_mpid

clusters, last, files = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]


def points(path, task=None):
    with open(path) as text:
        for number, line in enumerate(text, 1):
            if task is not None:
                task.at(number)
            yield tuple(float(word) for word in line.split())


def read(task):
    for path in files[task.rank :: task.size]:
        task.reads(path)
        for number, point in enumerate(points(path, task)):
            yield number, point


def keep(task):
    for number, point in task.pairs():
        task.keep(number, point)


def nearest(point):
    return min(range(clusters), key=lambda at: sum((a - b) ** 2 for a, b in zip(point, centres[at])))


def send(task):
    for _, point in task.kept():
        yield nearest(point), (1, point)


def add(left, right):
    return left[0] + right[0], tuple(a + b for a, b in zip(left[1], right[1]))


def means(task):
    for at, sums in task.groups():
        count, total = next(sums)
        # Of other centres this rank adds nothing, so that the sums over all ranks are the centres.
        moved[at] = (1.0, *(number / count for number in total))


def write(task):
    if task.rank == 0:
        for at, centre in enumerate(centres):
            print(at, *(f"{number:.6f}" for number in centre))


first = points(files[0])
centres = [next(first) for _ in range(clusters)]
with harrier_mpid.Rounds(kept=(int, object)) as rounds:
    rounds.run(read, keep, key=int, arrangement="plain")
    for _ in range(last):
        moved = [(0.0,) * (1 + len(centre)) for centre in centres]
        rounds.run(send, means, key=int, combine=add)
        sums = rounds.sum(*(number for row in moved for number in row))
        rows = [sums[at : at + len(moved[0])] for at in range(0, len(sums), len(moved[0]))]
        before, centres = centres, [tuple(row[1:]) if row[0] else centre for row, centre in zip(rows, centres)]
        if before == centres:
            break
    rounds.run(lambda task: None, write)
