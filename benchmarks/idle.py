"""Measure environments whose queues are idle: what they cost, and how soon the first message of one is handled.

    python -m benchmarks.idle [--queues 1 100 1000] [--messages 300] [--output FILE]

For each number of queues: the seconds of `rowpost apply` and `rowpost verify` and from the start of `rowpost run` until a first message is
handled; then, with all queues idle, processes and memory (PSS, which counts a page that several share once) of `rowpost run`, its connections,
calls of procedures a second, and processor time of clients and server; then the milliseconds from the commit of a message to its handler,
for one queue after the other. The server and the clients share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from benchmarks.suite.server import Place, Server, cpu_of, tree, wait_until
from benchmarks.suite.workers import ROOT
from benchmarks.waiting import pss
from rowpost.transport.queue import Queue

IDLE_S = 10.0
#: seconds for each queue until the checks of the start are over
CHECKED_S = 0.05
#: between two messages, so that the supervisor is idle again
PAUSE_S = 0.1
CALLS = "SELECT coalesce(sum(calls), 0)::float8 FROM pg_stat_user_functions"
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name <> 'rowpost benchmark'"


def rowpost(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start the command line."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "pycontrol")])}
    return subprocess.Popen(
        [sys.executable, "-m", "rowpost", "--env", "idle", *arguments], cwd=folder, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def timed(folder: Path, *arguments: str) -> float:
    """Return the seconds of a command."""
    started = time.monotonic()
    if rowpost(folder, *arguments).wait():
        raise SystemExit(f"rowpost {' '.join(arguments)} has failed.")
    return time.monotonic() - started


class Sender:
    """Sends one message at a time, and waits for its handler."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def milliseconds(self, queue: str) -> float:
        """Return the milliseconds from the commit of a message to its handler."""
        body = uuid4().hex
        Queue(queue, self._place.database).send(body.encode())
        sent = time.time()
        found = f"SELECT at FROM noted WHERE id = '{body}'"
        wait_until(lambda: self._place.value(f"SELECT EXISTS ({found})"), "the message is handled", 120.0, 0.002)
        return (self._place.value(found) - sent) * 1000


def measure(server: Server, place: Place, folder: Path, count: int, messages: int) -> dict[str, float]:
    """Return the figures of an environment with so many queues."""
    names = [f"Queue{number:04d}" for number in range(count)]
    workers = "".join(f'  {name}: {{worker: {{handler: "benchmarks.handlers.idle:note"}}}}\n' for name in names)
    environments = folder / "deploy" / "environments"
    environments.mkdir(parents=True)
    (environments / "idle.yml").write_text(f"engine: postgresql\nurl: {place.url}\nqueues:\n{workers}  error: {{}}\n")
    figures = {"apply_s": timed(folder, "apply"), "verify_s": timed(folder, "verify")}
    place.sql(f"ALTER DATABASE {place.database.driver_connection.info.dbname} SET track_functions = 'pl'")
    started = time.monotonic()
    process = rowpost(folder, "run")
    try:
        sender = Sender(place)
        sender.milliseconds(names[-1])
        figures["start_s"] = time.monotonic() - started
        time.sleep(5.0 + count * CHECKED_S)
        processes = tree(process.pid)
        calls, client, of_server = place.value(CALLS), sum(map(cpu_of, processes)), server.cpu()
        time.sleep(IDLE_S)
        figures |= {
            "calls_per_s": (place.value(CALLS) - calls) / IDLE_S,
            "client_cpu": (sum(map(cpu_of, processes)) - client) / IDLE_S,
            "server_cpu": (server.cpu() - of_server) / IDLE_S,
            "processes": len(processes),
            "connections": place.value(CONNECTIONS),
            "megabytes": sum(map(pss, processes)) / 1024,
        }
        times = []
        for number in range(messages):
            time.sleep(PAUSE_S)
            times.append(sender.milliseconds(names[(number * 37) % count]))
        figures |= {"p50_ms": statistics.median(times), "p99_ms": statistics.quantiles(times, n=100)[98]}
    finally:
        process.terminate()
        process.wait(60)
    return figures


def main() -> None:
    """Measure, print a table, and write the data."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--queues", type=int, nargs="+", default=[1, 100, 1000])
    options.add_argument("--messages", type=int, default=300)
    options.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "idle.json")
    given = options.parse_args()
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as data:
        server = Server(Path(data))
        try:
            for count in given.queues:
                with server.place(f"idle{count}") as place, tempfile.TemporaryDirectory() as folder:
                    place.sql("CREATE TABLE noted (id text PRIMARY KEY, at float8 NOT NULL)")
                    found[count] = measure(server, place, Path(folder), count, given.messages)
        finally:
            server.stop()
    names = list(next(iter(found.values())))
    print(f"| queues | {' | '.join(map(str, found))} |\n|---|{'---|' * len(found)}")
    for name in names:
        print(f"| {name} | {' | '.join(f'{figures[name]:.4g}' for figures in found.values())} |")
    given.output.write_text(json.dumps({"figures": found, "load": os.getloadavg()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
