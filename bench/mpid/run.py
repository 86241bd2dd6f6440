#!/usr/bin/env python3
"""Compares the programs in keys and values with a plain program of one thread, Spark from PyPI, and Hadoop's own examples.

    bench/mpid/run.py --program wordcount --bytes 1000000000 --json out.json [--peer plain] [--peer spark] [--peer hadoop]
    bench/mpid/run.py --knob MEMORY_SHARE=0,0.2,0.4,0.8 --program aggregate        (also SEND_QUEUE, BLOCKING, PARALLELISM)

Every configuration runs once to warm up, then all of them in turn, so often as --runs says; medians are printed. What is timed is the
whole process from its start to its end, and for the Java peers also what they say of themselves. A figure from a machine that does
something else at the same time is none.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
DATA = {"wordcount": "text", "grep": "text", "index": "text", "terasort": "records", "aggregate": "uservisits"}
HADOOP = {"wordcount": "wordcount", "terasort": "terasort"}
# What Java 17 does not let a library do unless it is told to.
JAVA = ["--add-opens=java.base/java.lang=ALL-UNNAMED", "-Xmx4g", "-Dhadoop.root.logger=ERROR,console"]


def programs():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return str(target / "release" / "mpid-programs")


def launcher(ranks):
    if ranks == 1:
        return []
    mpirun = os.environ.get("HARRIER_MPIRUN", "mpirun")
    words = [mpirun, "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE", "--mca", "mpi_yield_when_idle", "1", "-n", str(ranks)]
    return words[:1] + ["--allow-run-as-root"] + words[1:] if os.geteuid() == 0 else words


def spark_python():
    python = ROOT / ".harrier" / "peers" / "mpid-spark" / "bin" / "python3"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "pyspark==4.3.0"], check=True)
    return str(python)


def hadoop_jars():
    folder = ROOT / ".harrier" / "peers" / "mpid-hadoop"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "hadoop-pom.xml", folder / "pom.xml")
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"]
        subprocess.run(command, cwd=folder, check=True)
        (folder / "done").touch()
    return str(folder / "jars" / "*")


def commands(arguments, source, out):
    """By name: the command, and the variables of its environment."""
    pattern = ["ing "] if arguments.program == "grep" else []
    mine = [programs(), arguments.program, *pattern, "--input", source, "--output", out]
    found = {}
    if arguments.knob:
        name, values = arguments.knob.split("=", 1)
        for value in values.split(","):
            found[f"mpid {name}={value}"] = (launcher(arguments.ranks) + mine, {f"HARRIER_MPID_{name}": value})
    else:
        found[f"mpid {arguments.ranks} ranks"] = (launcher(arguments.ranks) + mine, {})
        found["mpid alone, 1 thread"] = (mine, {"HARRIER_MPID_THREADS": "1"})
    for peer in arguments.peer:
        if peer == "plain" and arguments.program == "wordcount":
            found["plain, 1 thread"] = ([programs(), "plain-wordcount", "--input", source], {})
        elif peer == "spark" and arguments.program in ("wordcount", "terasort", "aggregate"):
            worker = [spark_python(), str(HERE / "spark_worker.py"), arguments.program, source, out, str(arguments.ranks)]
            found["spark"] = (worker, {})
        elif peer == "hadoop" and arguments.program in HADOOP:
            main = ["java", *JAVA, "-cp", hadoop_jars(), "org.apache.hadoop.examples.ExampleDriver"]
            found["hadoop local"] = (main + [HADOOP[arguments.program], source, out], {})
        else:
            print(f"{peer} has no {arguments.program}", file=sys.stderr)
    return found


def run(command, variables, out):
    shutil.rmtree(out, ignore_errors=True)
    begin = time.monotonic()
    done = subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-4000:]}")
    told = re.search(r"^seconds ([0-9.]+)", done.stdout, re.MULTILINE)
    return seconds, float(told.group(1)) if told else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", choices=sorted(DATA), default="wordcount")
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--ranks", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer", action="append", default=[], choices=["plain", "spark", "hadoop"])
    parser.add_argument("--knob", help="NAME=VALUE,VALUE…: compares the library with itself")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="harrier-mpid-") as folder:
        source, out = os.path.join(folder, "in"), os.path.join(folder, "out")
        generate = [programs(), "generate", DATA[arguments.program], "--bytes", str(arguments.bytes), "--out", source]
        subprocess.run(generate, check=True, stdout=subprocess.DEVNULL)
        found = commands(arguments, source, out)
        for command, variables in found.values():
            run(command, variables, out)
        seconds = {name: [] for name in found}
        for _ in range(arguments.runs):
            for name, (command, variables) in found.items():
                seconds[name].append(run(command, variables, out))
    answer = {"program": arguments.program, "bytes": arguments.bytes, "ranks": arguments.ranks, "configurations": []}
    for name, measured in seconds.items():
        wall = statistics.median(wall for wall, _ in measured)
        told = [told for _, told in measured if told is not None]
        entry = {"name": name, "wall_s": wall, "runs_s": [wall for wall, _ in measured]}
        if told:
            entry["told_s"] = statistics.median(told)
        answer["configurations"].append(entry)
        print(f"{name:32} {wall:9.3f} s" + (f"   of it without the start {entry['told_s']:.3f} s" if told else ""))
    if arguments.json:
        arguments.json.write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()
