"""How often each key occurs in windows of time: mpirun -n 2 python3 windows.py WIDTH STREAM... prints the begin of every window with its keys,
as soon as all streams are past it. A stream is a file or a named pipe of lines with a time, a tab and a key, in the order of their times."""

import sys

import harrier_mpid

width, streams = int(sys.argv[1]), sys.argv[2:]
sys.stdout.reconfigure(line_buffering=True)  # Other ranks print, too: in whole lines, and at once.


def events(task):
    if len(streams) > task.size:
        raise ValueError("more streams than ranks")
    for path in streams[task.rank : task.rank + 1]:
        task.reads(path)
        with open(path) as lines:
            for number, line in enumerate(lines, 1):
                task.at(number)
                time, key = line.rstrip("\n").split("\t")
                task.advance(int(time))
                yield int(time), key, 1


def counts(task):
    for key, numbers in task.groups():
        sys.stdout.write(f"{task.window[0]}\t{key}\t{sum(numbers)}\n")


harrier_mpid.stream(events, counts, width, key=str, value=int, combine="sum")
