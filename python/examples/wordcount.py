"""WordCount: mpirun -n 2 python3 wordcount.py FILE... prints every word with how often it occurs."""

import sys

import harrier_mpid

files = sys.argv[1:]
sys.stdout.reconfigure(line_buffering=True)  # Other ranks print, too: in whole lines.


def words(task):
    for line in task.lines(files):  # The task's share of them, however few and large they are.
        for word in line.split():
            yield word, 1


def counts(task):
    for word, numbers in task.groups():
        sys.stdout.write(f"{word}\t{sum(numbers)}\n")


harrier_mpid.run(words, counts, key=str, value=int, combine="sum")
