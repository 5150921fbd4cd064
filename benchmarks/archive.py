"""Measure the two archivers as users run them: `rowpost archive`, and `rowpost spark archive`.

    python -m benchmarks.archive [--messages 1000000] [--rounds 3] [--without-spark] [--output FILE]

Each command is a process of its own, so that its start counts: for an empty queue, for 200 messages, and for all of them, as a tail. `drain` is
measured without Spark only. Rounds alternate between the two. `s` is the median of the seconds from start to exit. `cpu_s`, of
`rowpost archive` only, is that of its processor time, without the server: Java does not report its own to the command. `messages_per_s` counts the start too. The messages and the server are those
of benchmarks/spark.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.spark import CONSOLE, fill, server

SOME = 200


def run(environment: Path, command: list[str], queue: str, out: Path, *options: str) -> dict[str, float]:
    """Run a command to its end, and return its messages, its seconds and its processor seconds."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    called = [sys.executable, "-m", "rowpost", "--env", str(environment), *command, queue, str(out), *options]
    process = subprocess.Popen(called, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    printed, said = process.communicate()
    took, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise RuntimeError(f"{' '.join(called)} ended with {process.returncode}: {said}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"messages": json.loads(printed.splitlines()[-1])["messages"], "s": took, "cpu_s": cpu}


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    with server(folder / "data") as (url, _):
        os.environ["ROWPOST_BENCH_URL"] = url
        environment = folder / "bench.yml"
        environment.write_text('engine: postgresql\nurl: "${ROWPOST_BENCH_URL}"\n')
        for queue, count in (("None", 0), ("Some", SOME), ("Bench", arguments.messages)):
            fill(url, queue, count)
        found: dict[str, list[dict[str, float]]] = defaultdict(list)
        commands = (
            {"archive": ["archive"]}
            if arguments.without_spark
            else {"archive": ["archive"], "spark_archive": ["spark", "archive"]}
        )
        for number in range(arguments.rounds):
            for queue in ("None", "Some", "Bench"):
                for name, command in commands.items():
                    found[f"{name}_{queue.lower()}"].append(
                        run(environment, command, queue, folder / f"{name}-{queue}-{number}")
                    )
            drained = f"Drain{number}"
            fill(url, drained, arguments.messages)
            found["archive_drain"].append(run(environment, ["archive"], drained, folder / drained, "--drain"))
    return {
        "messages": arguments.messages,
        "cores": os.cpu_count(),
        **{name: summary(rounds, with_cpu=name.startswith("archive")) for name, rounds in found.items()},
    }


def summary(rounds: list[dict[str, float]], *, with_cpu: bool) -> dict[str, float]:
    """Return the medians of the rounds."""
    messages, took = rounds[0]["messages"], statistics.median(each["s"] for each in rounds)
    found = {"messages": messages, "s": round(took, 2)}
    if with_cpu:
        found["cpu_s"] = round(statistics.median(each["cpu_s"] for each in rounds), 2)
    return found | ({"messages_per_s": round(messages / took)} if messages > SOME else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-spark", action="store_true", help="do not run `rowpost spark archive`")
    parser.add_argument("--output", type=Path, help="a JSON file with a list of runs, to which this one is added")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rowpost-archive-bench-"))
    try:
        found = {"machine": platform.machine(), "python": platform.python_version(), **measure(arguments, folder)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.output:
        runs = json.loads(arguments.output.read_text(encoding="utf-8")) if arguments.output.exists() else []
        arguments.output.write_text(json.dumps([*runs, found], indent=2) + "\n", encoding="utf-8")
    CONSOLE.print_json(data=found)


if __name__ == "__main__":
    main()
