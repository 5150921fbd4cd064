"""Measure `wake_up: everybody`: how long a plain INSERT waits for its handler, and what the trigger costs its sender.

    python -m benchmarks.wake_up [--messages 120] [--rounds 9] [--inserts 400] [--output FILE]

Two queues in one database, one of them with the trigger. `wait`: under `rowpost run`, each queue in turn gets one plain INSERT, so
that each gets about one a second. The pauses vary by half, because a constant pause would always meet the same moment between two
peeks. A wait ends when the handler begins. `sender`: inserts a second, each committed by itself, from one and from eight connections,
while nobody waits for a wake-up and while somebody does. The queues alternate round by round, and a ratio is the median of the
rounds' ratios. `send_message` on the queue without the trigger shows what rowpost's own senders pay for the same notification, and on
the queue with the trigger what checking twice costs them.

The embedded PostgreSQL runs with its durable settings. The load of the machine is part of the result.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.suite.figures import percentile
from benchmarks.suite.server import BODY, HEADERS, Place, Server
from benchmarks.suite.workers import HANDLERS, NOTES, Notes, running
from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.entries import describe_queue
from rowpost.deploy.plan import build_plan
from rowpost.deploy.scripts import load_scripts
from rowpost.settings.environment import QueueSettings
from rowpost.wire.message import encode_headers

OFF, ON = "Plain", "Woken"  # queues without and with the trigger
INSERT = 'INSERT INTO "{}" (id, headers, body, expires) VALUES (gen_random_uuid(), %s, %s, NULL)'
SEND = 'SELECT rowpost."send_message:{}"(%s, %s)'
PEEK_DELAY = 1.0  # seconds
A_DAY_MS = 86_400_000


def measure_waits(place: Place, folder: Path, messages: int) -> dict[str, dict[str, float]]:
    """Insert into both queues in turn under a supervisor. Return the figures in milliseconds by queue."""
    (folder / "notes").mkdir()
    notes, waits = Notes(folder / "notes"), {OFF: [], ON: []}
    pauses = random.Random(1)  # the same pauses in each run
    worker = {"handler": f"{HANDLERS}:timed", "limit": 1, "peek_delay": PEEK_DELAY}
    with running(place, folder, {OFF: worker, ON: worker}, {NOTES: str(folder / "notes")}):
        for number in range(2 * (messages + 1)):
            due = time.monotonic() + pauses.uniform(0.25, 0.75)
            queue = (OFF, ON)[number % 2]
            place.sql(INSERT.format(queue), ["{}", b"%r" % time.monotonic()])
            waits[queue] += notes.take(1)
            time.sleep(max(0.0, due - time.monotonic()))
    return {
        queue: _described([each * 1000 for each in found[1:]]) for queue, found in waits.items()
    }  # without the first


def _described(waits: list[float]) -> dict[str, float]:
    return {
        "messages": len(waits),
        "p50_ms": percentile(waits, 0.5),
        "p95_ms": percentile(waits, 0.95),
        "max_ms": max(waits),
    }


class Senders:
    """Connections that send at once."""

    def __init__(self, url: str, number: int) -> None:
        self._connections = [connect_url("postgresql", url, "rowpost benchmark, sending") for _ in range(number)]

    def rate(self, statement: str, number: int) -> float:
        """Run the statement `number` times on each connection. Return the statements a second of all together."""
        headers = encode_headers(HEADERS)

        def send(execute: Callable[..., object]) -> None:
            for _ in range(number):
                execute(statement, [headers, BODY])

        threads = [threading.Thread(target=send, args=(each.driver_connection.execute,)) for each in self._connections]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return number * len(threads) / (time.monotonic() - started)

    def close(self) -> None:
        for each in self._connections:
            each.close()


def measure_senders(place: Place, senders: int, waiting: bool, rounds: int, inserts: int) -> dict[str, float]:
    """Compare the queues from so many connections, while a supervisor waits for a wake-up or not. Return rates and ratios."""
    ways = {
        "without": INSERT.format(OFF),
        "with": INSERT.format(ON),
        "send_message": SEND.format(OFF),
        "send_message with": SEND.format(ON),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    crowd = Senders(place.url, senders)
    with connect_url("postgresql", place.url, "rowpost benchmark, waiting") as listener:
        if waiting:
            listener.driver_connection.execute("LISTEN rowpost")
        for number in range(rounds + 1):
            place.sql(f'TRUNCATE "{OFF}", "{ON}"')
            for queue in (OFF, ON):  # a request holds until the next peek, and here nobody peeks
                place.database.call("watch_queue", queue, count=1, wake_up_ttl_ms=A_DAY_MS if waiting else 0)
            names = list(ways)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                rates[name].append(crowd.rate(ways[name], inserts))
            if waiting:
                listener.driver_connection.execute("SELECT 1")  # takes the notifications from the socket
    crowd.close()
    of = {name: each[1:] for name, each in rates.items()}  # without the warm-up round
    pairs = (("with", "without"), ("send_message", "without"), ("send_message with", "send_message"))
    ratios = {f"{a} / {b}": [after / before for after, before in zip(of[a], of[b], strict=True)] for a, b in pairs}
    return {
        **{f"{name} a second": round(statistics.median(each)) for name, each in of.items()},
        **{name: round(statistics.median(each), 3) for name, each in ratios.items()},
    }


def give_trigger(place: Place, queue: str) -> None:
    """Make the trigger on one queue's table, and on no other."""
    entry = describe_queue(QueueSettings(queue), "postgresql", wake_up=True)
    features = place.settings.features
    apply(place.database, build_plan("benchmark", load_scripts("postgresql"), [entry], whole=False, features=features))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=120, help="inserts into each queue for its waits")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--inserts", type=int, default=400, help="for each connection and round")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    result: dict[str, object] = {"date": time.strftime("%Y-%m-%d"), "load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="rowpost-wake-up-") as name:
        folder = Path(name)
        server = Server(folder / "server")
        try:
            with server.place("wake_up", OFF, ON) as place:
                give_trigger(place, ON)
                result["server"] = server.version
                result["wait"] = measure_waits(place, folder, options.messages)
                result["sender"] = {
                    f"{senders} senders, {'somebody' if waiting else 'nobody'} waits": measure_senders(
                        place, senders, waiting, options.rounds, options.inserts
                    )
                    for senders in (1, 8)
                    for waiting in (False, True)
                }
        finally:
            server.stop()
    result["load_after"] = os.getloadavg()[0]
    text = json.dumps(result, indent=2)
    print(text)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
