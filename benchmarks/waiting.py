"""Measure handlers that wait: messages whose handler calls an HTTP server that answers after 300 ms, and inserts a row.

    python -m benchmarks.waiting [--messages 3000] [--rounds 3] [--without-peer] [--output FILE]

The contenders take turns, round by round: `async def` handlers, plain ones in threads, and `async def` handlers with leases, all with
`concurrency: 200`, and procrastinate with a concurrency of 200. For each: seconds from the start of the program until the last row is committed, the most
connections of its clients, and the most memory of all its processes together (PSS, which counts a page that several share once).
The server allows 400 connections. It, the HTTP server and the clients share the machine, whose load is part of the result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from benchmarks.handlers.waiting import PORT
from benchmarks.suite import peers
from benchmarks.suite.server import Place, Server, tree, wait_until
from benchmarks.suite.workers import ROOT
from rowpost.settings.environment import QueueSettings

ANSWER_AFTER_S = 0.3
CONNECTIONS = 400
QUEUES = {"async": "Tasks", "threads": "Threads", "leases": "Leases"}
PROCRASTINATE = "procrastinate"


async def serve() -> None:
    """Answer each request after 300 ms."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(ANSWER_AFTER_S)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", PORT, backlog=1000)
    print("ready", flush=True)
    await server.serve_forever()


@contextmanager
def http_server() -> Iterator[None]:
    """Run the HTTP server in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.waiting", "--serve"], stdout=subprocess.PIPE, text=True
    )
    try:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise SystemExit(f"The HTTP server does not start. Is port {PORT} free?")
        yield
    finally:
        process.kill()
        process.wait()


class Watch:
    """The most connections and memory of a program's processes, looked at five times a second."""

    def __init__(self, place: Place, pid: int) -> None:
        self.connections, self.megabytes = 0, 0.0
        self._place, self._pid, self._over = place, pid, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        own = self._place.database.open_second()
        counted = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name <> 'rowpost benchmark'"
        while not self._over.wait(0.2):
            self.connections = max(self.connections, own.driver_connection.execute(counted).fetchone()[0])
            self.megabytes = max(self.megabytes, sum(map(pss, tree(self._pid))) / 1024)
        own.close()


def pss(pid: int) -> int:
    """Return the kilobytes of a process; 0 if it does not exist."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def measure(place: Place, contender: str, messages: int) -> dict[str, float]:
    """Return the figures of one round."""
    place.sql("TRUNCATE charged")
    if contender == PROCRASTINATE:
        peer = _peer()
        peer.run(place, "fill", "waiting", str(messages))
        command, environment = [*peer._command(), place.url, "waiting"], peers._environment()
    else:
        place.fill(QUEUES[contender], messages)
        name = f"benchmarks.handlers.waiting:{contender.replace('async', 'tasks')}"
        command = [sys.executable, "-m", "rowpost", "--env", "waiting", "run", name]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "pycontrol")])}
    with tempfile.TemporaryDirectory() as folder:
        _write_environment(Path(folder), place)
        started = time.monotonic()
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        try:
            with Watch(place, process.pid) as watch:
                wait_until(
                    lambda: place.value("SELECT count(*) FROM charged") >= messages, "all are handled", 300.0, 0.02
                )
                seconds = time.monotonic() - started
        finally:
            process.terminate()
            process.wait(30)
    distinct = place.value("SELECT count(DISTINCT id) FROM charged")
    if distinct != messages:
        raise SystemExit(f"{contender}: {distinct} messages of {messages} were handled.")
    return {"seconds": seconds, "connections": watch.connections, "megabytes": watch.megabytes}


def _peer() -> peers.Peer:
    return next(each for each in peers.PEERS if each.name == PROCRASTINATE)


def _write_environment(folder: Path, place: Place) -> None:
    environments = folder / "deploy" / "environments"
    environments.mkdir(parents=True)
    queues = "".join(
        f"  {queue}: {{lease: {str(queue == 'Leases').lower()}}}\n" for queue in (*QUEUES.values(), "error")
    )
    (environments / "waiting.yml").write_text(f"engine: postgresql\nurl: {place.url}\nqueues:\n{queues}")


def main() -> None:
    """Measure, print a table, and write the data."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--messages", type=int, default=3000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--without-peer", action="store_true")
    options.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "waiting.json")
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        asyncio.run(serve())
        return
    contenders = [*QUEUES, *([] if given.without_peer else [PROCRASTINATE])]
    if PROCRASTINATE in contenders and (reason := peers.install(Console(stderr=True)).get(PROCRASTINATE)):
        raise SystemExit(f"procrastinate cannot be installed: {reason}. Use --without-peer.")
    found: dict[str, list[dict[str, float]]] = {each: [] for each in contenders}
    with tempfile.TemporaryDirectory() as folder, http_server():
        server = _server(Path(folder))
        try:
            queues = [QueueSettings(queue, lease=queue == "Leases") for queue in QUEUES.values()]
            with server.place("waiting", *queues) as place:
                place.sql("CREATE TABLE charged (id text NOT NULL)")
                if PROCRASTINATE in contenders:
                    _peer().run(place, "install")
                for number in range(given.rounds):
                    for contender in contenders[number % len(contenders) :] + contenders[: number % len(contenders)]:
                        found[contender].append(measure(place, contender, given.messages))
        finally:
            server.stop()
    medians = {
        contender: {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        for contender, rounds in found.items()
    }
    print("| contender | seconds | connections | MB |\n|---|---|---|---|")
    for contender, figures in medians.items():
        print(f"| {contender} | {figures['seconds']:.1f} | {figures['connections']:.0f} | {figures['megabytes']:.0f} |")
    data = {"messages": given.messages, "rounds": found, "medians": medians, "load": os.getloadavg()}
    given.output.write_text(json.dumps(data, indent=1) + "\n")


def _server(folder: Path) -> Server:
    """Return a server that allows more connections than by default, which takes effect at its second start."""
    prepare = (
        "import sys; from pathlib import Path; from rowpost.database import embedded; folder = Path(sys.argv[1]);"
        "embedded.start(folder); embedded.stop(folder)"
    )
    subprocess.run([sys.executable, "-c", prepare, str(folder)], check=True)
    with (folder / "postgresql" / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"max_connections = {CONNECTIONS}\n")
    return Server(folder)


if __name__ == "__main__":
    main()
