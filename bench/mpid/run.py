#!/usr/bin/env python3
"""What `harrier bench mpid` runs: the programs in keys and values against Hadoop, Spark and a plain program, and against themselves
over the values of a knob.

    bench/mpid/run.py --bytes 1000000000                          all figures, into .harrier/bench/mpid.json and mpid-*.svg
    bench/mpid/run.py --figures programs,sizes --peers spark      some of them

| figure   | what                                                                          | after                        |
|----------|-------------------------------------------------------------------------------|------------------------------|
| programs | WordCount, TeraSort, AGGREGATE, PageRank, k-means, beside the peers            |                              |
| others   | Grep, the inverted index, the sliding count and JOIN, beside the peers        |                              |
| sizes    | WordCount over the size of its input                                          | mpi-d, figure 6              |
| memory   | AGGREGATE and JOIN over the share of memory for received pairs                | hive-on-datampi, figure 8    |
| queue    | the same over the length of the send queue                                    | hive-on-datampi, figure 8    |
| style    | blocking and non-blocking sends                                               | hive-on-datampi, figure 6    |
| skew     | JOIN over the number of A tasks: time, and the largest part                   | hive-on-datampi, IV-D        |
| spill    | TeraSort of ten times as much data as there is memory for received pairs       |                              |

Every way of a case runs once to warm up, which is when its answer is compared with the others'; then all of them in turn, so often as
--runs says. With --cold nothing warms up, and the first timed run's answer is compared: for inputs that are read for minutes. A peer that
--once names is timed once, which its line says, and does not warm up: for peers that take a quarter of an hour. Told are medians: `wall` of
the whole process from its start to its end, `cpu` of all its processes, and `told`, what a Java peer says that it took without its start.
MR-MPI is not among the peers: no registry has it. Hadoop runs in local mode, as `hadoop`, and as a cluster of this host, as `hadoop-cluster`
(hadoop_cluster.py tells which): its daemons are started once, before its first job, and ended after the last figure with peers; `wall` is then
of the job's client, and `cpu` also of the daemons and the containers until these have ended.

Of the others Hadoop has Grep among its examples: it counts equal lines and sorts them by that, which is more. Spark's index has the numbers of lines,
not their places in a file, so of each word the number of places is compared.

Exit status: 1 if a program failed or answers differ. What cannot be installed is left out, with a line on stderr.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time

import chart
import hadoop_cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
ROUNDS = 10
# Of the sliding count, in the units of its events' times: some thousand windows of all. Each is a file of every part.
WINDOW, SLIDE = 6000, 1000
MISSING = 64
# In about 12 of 1000 lines of generated text.
PATTERN = "tion"
FIGURES = ["programs", "others", "sizes", "memory", "queue", "style", "skew", "spill"]
PEERS = ["plain", "spark", "hadoop", "hadoop-cluster"]
# Figures with peers in them.
BESIDE = {"programs", "others", "sizes"}
# What a program reads, as the generator calls it, and how much of --bytes: a round over much less costs as much as one pass.
INPUT = {
    "wordcount": ("text", 1.0), "terasort": ("records", 1.0), "aggregate": ("uservisits", 1.0), "join": ("uservisits", 1.0),
    "pagerank": ("graph", 0.1), "kmeans": ("points", 0.25), "grep": ("text", 1.0),
    # Their answers are as long as their input, or several times that.
    "index": ("text", 0.1), "sliding": ("events", 0.05),
}


def average(line):
    """Of JOIN: digits of fractions are printed otherwise by each."""
    address, rank, cents = line.split(b"\t")
    return 1, (address, float(rank), cents)


# Answers that are lines, by kind: how often a line of the file stands for one, and what is compared of it.
LINES = {
    "lines": lambda line: (1, line),
    # FILE:PLACE:LINE
    "placed": lambda line: (1, line.split(b":", 2)[2]),
    # COUNT, a tab, LINE
    "counted": lambda line: (int(line.split(b"\t", 1)[0]), line.split(b"\t", 1)[1]),
    # WORD, and a tab before each place
    "postings": lambda line: (1, (line.split(b"\t", 1)[0], line.count(b"\t"))),
    "averages": average,
}


def say(line):
    print(line, flush=True)


class Bench:
    def __init__(self, options):
        self.options = options
        self.programs = options.programs_binary or str(
            pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "mpid-programs"
        )
        self.out = pathlib.Path(options.out)
        self.data = pathlib.Path(options.data)
        self.scratch = self.data / "out"
        self.cluster = hadoop_cluster.Cluster(options.ranks)
        self.peers = [peer for peer in options.peers.split(",") if peer and self.install(peer)]
        self.problems = 0

    def install(self, peer):
        if peer not in PEERS:
            sys.exit(f"{peer} is none of {', '.join(PEERS)}")
        if peer == "hadoop-cluster":
            return self.attempt(self.cluster.install)
        tool = {"spark": [ROOT / "bench/peers/run", "--install", "spark"], "hadoop": [HERE / "hadoop", "--install"]}.get(peer)
        if tool and subprocess.run(tool).returncode != 0:
            print(f"left out: {peer} could not be installed", file=sys.stderr)
            return False
        return True

    def attempt(self, step):
        """Of the cluster: installs or starts it. Whether that worked."""
        try:
            step()
        except (hadoop_cluster.Unavailable, OSError) as error:
            print(f"left out: hadoop-cluster: {error}", file=sys.stderr)
            return False
        return True

    def clustered(self, program, source, *extra):
        """A job of the cluster, which is started if it does not run; None if it cannot be."""
        if not self.cluster.processes and not self.attempt(self.cluster.start):
            self.peers.remove("hadoop-cluster")
            return None
        return hadoop_cluster.Job(self.cluster, program, source, self.options.ranks, *extra)

    def input(self, kind, size):
        """A folder of generated input; kept for the next time."""
        # Uservisits had four columns before they had HiBench's nine.
        folder = self.data / f"{'uservisits-9' if kind == 'uservisits' else kind}-{size}"
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            say(f"generating {size} bytes of {kind}")
            command = [self.programs, "generate", kind, "--bytes", str(size), "--out", str(folder / "in")]
            if kind == "records":
                command.append("--printable")
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            (folder / "done").touch()
        return str(folder / "in")

    def launcher(self, variables):
        ranks = self.options.ranks
        if ranks == 1:
            return []
        words = [os.environ.get("HARRIER_MPIRUN", "mpirun")]
        words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        words += ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE", "--mca", "mpi_yield_when_idle", "1"]
        for name in variables:
            words += ["-x", name]
        return words + ["-n", str(ranks)]

    def mine(self, program, source, size, extra=(), **knobs):
        """A command of this library, and the variables of its environment."""
        variables = {f"HARRIER_MPID_{name}": str(value) for name, value in knobs.items()}
        variables["HARRIER_MPID_PROGRESS"] = "1"
        pattern = [PATTERN] if program == "grep" else []
        command = [self.programs, program, *pattern, "--input", source, "--output", "{out}", *extra]
        if program == "join":
            command += ["--rankings", self.input("rankings", size // 20)]
        if program in ("pagerank", "kmeans"):
            command += ["--rounds", str(ROUNDS)]
        if program == "sliding":
            command += ["--window", str(WINDOW), "--slide", str(SLIDE)]
        return self.launcher(variables) + command, variables

    def ways(self, program, source, size):
        """By name: command, variables, and which answer it leaves."""
        kinds = {"terasort": "records", "pagerank": "numbers", "kmeans": None, "index": "postings", "join": "averages"}
        kind = kinds.get(program, "lines")
        found = {"harrier": (*self.mine(program, source, size), "placed" if program == "grep" else kind)}
        ranks = str(self.options.ranks)
        for peer in self.peers:
            if peer == "plain" and program == "wordcount":
                found["plain, 1 thread"] = ([self.programs, "plain-wordcount", "--input", source], {}, None)
            elif peer == "spark":
                worker = [str(ROOT / ".harrier/peers/spark/bin/python3"), str(HERE / "spark_worker.py")]
                extras = {"grep": lambda: [PATTERN], "join": lambda: [self.input("rankings", size // 20)], "sliding": lambda: [str(WINDOW), str(SLIDE)]}
                extra = extras.get(program, list)()
                found["spark"] = (worker + [program, source, "{out}", ranks, str(ROUNDS), *extra], {}, kind)
            elif peer == "hadoop" and program in ("wordcount", "terasort"):
                found["hadoop"] = ([str(HERE / "hadoop"), program, source, "{out}", ranks], {}, kind)
            elif peer == "hadoop" and program == "grep":
                found["hadoop"] = ([str(HERE / "hadoop"), program, source, "{out}", ranks, f".*{PATTERN}.*"], {}, "counted")
        if "hadoop-cluster" in self.peers and program in ("wordcount", "terasort", "grep"):
            pattern = [f".*{PATTERN}.*"] if program == "grep" else []
            if job := self.clustered(program, source, *pattern):
                found["hadoop-cluster"] = (job, {}, "counted" if program == "grep" else kind)
        return found

    def run(self, command, variables):
        """Runs it once: seconds of the wall, of processors, what it tells, its stderr; or the problem."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        shutil.rmtree(str(self.scratch) + ".tmp", ignore_errors=True)
        job = command if isinstance(command, hadoop_cluster.Job) else None
        if job:
            try:
                job.prepare()
            except (OSError, subprocess.CalledProcessError) as error:
                return {"problem": f"its input could not be put into the HDFS: {error}"}
        words = job.words if job else [str(self.scratch) if word == "{out}" else word for word in command]
        elsewhere = -self.cluster.settle() if job else 0.0
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.monotonic()
        environment = job.environment if job else {**os.environ, **variables}
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wall = time.monotonic() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        elsewhere += self.cluster.settle() if job else 0.0
        if done.returncode != 0:
            return {"problem": f"exit status {done.returncode}: {(done.stderr or done.stdout)[-600:]}"}
        told = re.search(r"^seconds ([0-9.]+)", done.stdout, re.MULTILINE)
        return {
            "wall": wall,
            "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + elsewhere,
            "told": float(told.group(1)) if told else None,
            "stderr": done.stderr,
        }

    def answer(self, kind, source):
        """What can be compared of the answer that lies in the scratch folder; raises ValueError for a wrong one."""
        # Those of windows are called window-END-part-NUMBER.
        names = (path for pattern in ("part-*", "window-*") for path in self.scratch.glob(pattern))
        files = sorted(path for path in names if path.stat().st_size > 0)
        if kind in LINES:
            # How many there are and the sum of their hashes: the same in whatever order they come, and in little memory.
            count = total = 0
            revenue = float("inf")
            for path in files:
                with path.open("rb") as lines:
                    for line in lines:
                        times, what = LINES[kind](line.rstrip(b"\n"))
                        if kind == "averages":
                            if int(what[2]) > revenue:
                                raise ValueError(f"{path.name} is not in the order of revenue")
                            revenue = int(what[2])
                        count += times
                        total += times * hash(what)
            return count, total
        if kind == "numbers":
            rows = (line.split(b"\t") for path in files for line in path.read_bytes().splitlines())
            return {int(name): float(value) for name, value in rows}
        if kind == "records":
            checked = [self.programs, "validate", "--input", source, "--output", str(self.scratch)]
            done = subprocess.run(checked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if done.returncode != 0:
                raise ValueError(done.stderr.strip())
        return None

    @staticmethod
    def same(first, other):
        if isinstance(first, dict):
            # Sums of fractions depend on their order in the last digits.
            close = lambda a, b: abs(a - b) <= 1e-5 * (1 + abs(a))
            return first.keys() == other.keys() and all(close(first[key], other[key]) for key in first)
        return first == other

    def compare(self, command, kind, source, answers):
        """What is wrong with the answer that lies in the scratch folder; `answers` has the first way's, once there is one."""
        try:
            if isinstance(command, hadoop_cluster.Job):
                command.fetch(self.scratch)
            answer = self.answer(kind, source)
        except (ValueError, OSError, subprocess.CalledProcessError) as error:
            return str(error)
        if not answers:
            answers.append(answer)
        return None if self.same(answers[0], answer) else "another answer than the first way's"

    def case(self, name, ways, source):
        """Measures the ways of a case, interleaved. Returns a row for each."""
        rows = {way: {"way": way, "runs": []} for way in ways}
        answers = []
        once = self.options.once.split(",")
        # Behind a comma it says how it is run.
        is_once = lambda way: way.split(",")[0] in once
        for turn in range(-self.options.warm_up, self.options.runs):
            for way, (command, variables, kind) in ways.items():
                row = rows[way]
                if "problem" in row or (is_once(way) and turn != 0):
                    continue
                done = self.run(command, variables)
                if "problem" in done:
                    row["problem"] = done["problem"]
                    continue
                if turn == (0 if is_once(way) else -self.options.warm_up) and kind is not None:
                    if problem := self.compare(command, kind, source, answers):
                        row["problem"] = problem
                if turn >= 0:
                    row["runs"].append({key: done[key] for key in ("wall", "cpu", "told")})
                    row["counters"] = counters(done["stderr"])
        for row in rows.values():
            if "problem" in row:
                self.problems += 1
                say(f"{name:30} {row['way']:24} FAILED: {row['problem']}")
                continue
            for key in ("wall", "cpu", "told"):
                values = [run[key] for run in row["runs"] if run[key] is not None]
                row[key] = statistics.median(values) if values else None
            told = f"   without its start {row['told']:8.2f} s" if row["told"] else ""
            few = "   one run" if len(row["runs"]) < self.options.runs else ""
            say(f"{name:30} {row['way']:24} {row['wall']:8.2f} s   {row['cpu']:8.2f} s of processors{told}{few}")
        shutil.rmtree(self.scratch, ignore_errors=True)
        return {"case": name, "rows": list(rows.values())}

    def programs_figure(self):
        return self.beside_peers("wordcount", "terasort", "aggregate", "pagerank", "kmeans")

    def others_figure(self):
        return self.beside_peers("grep", "index", "sliding", "join")

    def beside_peers(self, *programs):
        cases = []
        only = self.options.only.split(",") if self.options.only else programs
        for program in (program for program in programs if program in only):
            kind, share = INPUT[program]
            size = int(self.options.bytes * share)
            source = self.input(kind, size)
            cases.append(self.case(program, self.ways(program, source, size), source))
        return cases

    def sizes_figure(self):
        cases = []
        for part in (8, 4, 2, 1):
            size = self.options.bytes // part
            source = self.input("text", size)
            cases.append(self.case(f"{size / 1e6:.0f} MB", self.ways("wordcount", source, size), source))
        return cases

    def knob_figure(self, settings):
        """`settings`: by label, the knobs. Of AGGREGATE, without its combiner's table, and of JOIN."""
        size = self.options.bytes
        source = self.input("uservisits", size)
        cases = []
        for label, knobs in settings.items():
            ways = {}
            for program in ("aggregate", "join"):
                # Combined, AGGREGATE has next to nothing to send.
                plain = {"COMBINE": 4096} if program == "aggregate" else {}
                ways[program] = (*self.mine(program, source, size, **plain, **knobs), None)
            cases.append(self.case(label, ways, source))
        return cases

    def memory_figure(self):
        # With as much memory for a rank as its part of the input, a small share has most of the pairs go to disk.
        memory = self.options.bytes // self.options.ranks
        shares = (0.02, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
        return self.knob_figure({str(share): {"MEMORY": memory, "MEMORY_SHARE": share} for share in shares})

    def queue_figure(self):
        return self.knob_figure({str(blocks): {"SEND_QUEUE": blocks} for blocks in (1, 2, 4, 6, 8, 12)})

    def style_figure(self):
        return self.knob_figure({"non-blocking": {"BLOCKING": 0}, "blocking": {"BLOCKING": 1}})

    def skew_figure(self):
        size = self.options.bytes
        source = self.input("uservisits", size)
        cases = []
        few = self.options.ranks
        settings = {f"{tasks} A tasks": {"A": tasks} for tasks in (few, 4 * few, 16 * few)}
        settings["enhanced"] = {"PARALLELISM": "enhanced"}
        for label, knobs in settings.items():
            cases.append(self.case(label, {"join": (*self.mine("join", source, size, **knobs), None)}, source))
        return cases

    def spill_figure(self):
        size = self.options.bytes
        source = self.input("records", size)
        # The share of all ranks together is a tenth of the data.
        little = {"MEMORY": size // 10 // self.options.ranks, "MEMORY_SHARE": 1.0}
        ways = {
            "in memory": (*self.mine("terasort", source, size, MEMORY=4 * size), "records"),
            "a tenth in memory": (*self.mine("terasort", source, size, **little), "records"),
        }
        return [self.case("terasort", ways, source)]


def counters(stderr):
    """Of the last job that told them: skew, and bytes spilled."""
    skew = re.findall(r"skew ([0-9.]+)", stderr)
    spilled = re.findall(r"spilled\s+\d+ runs, (\d+) bytes", stderr)
    return {"skew": max(map(float, skew), default=None), "spilled_bytes": sum(map(int, spilled))}


def draw(figure, cases, options):
    ways = []
    for case in cases:
        ways += [row["way"] for row in case["rows"] if row["way"] not in ways and "problem" not in row]
    if not ways:
        return None
    value = lambda case, way: next((row["wall"] for row in case["rows"] if row["way"] == way and "problem" not in row), None)
    rows = [(case["case"], [value(case, way) for way in ways]) for case in cases]
    size = f"{options.bytes / 1e6:.0f} MB"
    once = f" (one run of {options.once})" if options.once else ""
    subtitle = f"seconds of the whole run, median of {options.runs}{once}, {options.ranks} ranks, {os.cpu_count()} cores"
    if figure == "programs":
        return chart.bars(f"Programs in keys and values, {size}", subtitle, ways, rows)
    if figure == "others":
        return chart.bars(f"More programs in keys and values, {size}", subtitle, ways, rows)
    if figure == "sizes":
        return chart.lines("WordCount over the size of its input", subtitle, ways, rows, "bytes of text")
    if figure == "memory":
        return chart.lines(f"Share of memory for received pairs, {size}", subtitle, ways, rows, "share; a rank has its part of the input as memory")
    if figure == "queue":
        return chart.lines(f"Length of the send queue, {size}", subtitle, ways, rows, "blocks that wait for one rank")
    if figure == "skew":
        rows = [(f"{case['case']}, skew {case['rows'][0].get('counters', {}).get('skew', 0):.2f}", row[1]) for case, row in zip(cases, rows)]
        return chart.bars(f"JOIN of skewed keys over parallelism, {size}", subtitle, ways, rows)
    titles = {"style": "Blocking and non-blocking sends", "spill": "Ten times the memory for received pairs"}
    return chart.bars(f"{titles[figure]}, {size}", subtitle, ways, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", default=",".join(FIGURES))
    parser.add_argument("--only", help="of the figures programs and others, these programs alone")
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--ranks", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cold", dest="warm_up", action="store_const", const=0, default=1, help="no run to warm up")
    parser.add_argument("--once", default="", help="peers of which one run is timed, whatever --runs says")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--out", default=str(ROOT / ".harrier/bench"), help="folder for mpid.json and the charts")
    parser.add_argument("--data", default=str(ROOT / ".harrier/data/mpid"), help="folder for generated input, which is kept")
    parser.add_argument("--programs-binary", help="mpid-programs [default: of the target folder]")
    options = parser.parse_args()
    figures = options.figures.split(",")
    if unknown := [figure for figure in figures if figure not in FIGURES]:
        sys.exit(f"{unknown[0]} is none of {', '.join(FIGURES)}")
    # Whatever ends this, the daemons of the cluster are ended too.
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, _: sys.exit(128 + number))
    bench = Bench(options)
    try:
        measure(bench, figures)
    finally:
        bench.cluster.stop()
    sys.exit(1 if bench.problems else 0)


def measure(bench, figures):
    options = bench.options
    bench.out.mkdir(parents=True, exist_ok=True)
    result = bench.out / "mpid.json"
    measured = json.loads(result.read_text()) if result.exists() else {}
    for at, figure in enumerate(figures):
        if not BESIDE.intersection(figures[at:]):
            bench.cluster.stop()
        say(f"\n{figure}")
        cases = getattr(bench, f"{figure}_figure")()
        measured[figure] = {
            "bytes": options.bytes, "ranks": options.ranks, "runs": options.runs, "warm_up": options.warm_up, "cores": os.cpu_count(),
            "system": platform.release(), "cases": cases,
        }
        # What was measured stays, whatever becomes of the next figure.
        result.write_text(json.dumps(measured, indent=1) + "\n")
        drawing = draw(figure, cases, options)
        if drawing:
            (bench.out / f"mpid-{figure}.svg").write_text(drawing)
            say(f"chart: {bench.out / f'mpid-{figure}.svg'}")


if __name__ == "__main__":
    main()
