"""Measure the maintenance of a queue with a million dead rows while receivers work.

    python -m benchmarks.upkeep [--rows 1000000] [--receivers 2] [--output benchmarks/results/upkeep.json]

The exit code is 1 if a pair (one send and one receive) takes a second or longer, or if the queue does not shrink to 1 MB.

Uses the embedded PostgreSQL, or the server of ROWPOST_TEST_POSTGRESQL. The queue is filled and emptied with autovacuum off,
which is the worst case. Then receivers send and receive one message after the other, and each pair is timed, while
maintain_queue runs until it has nothing left to do.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from rowpost.database import embedded
from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.transport.maintenance import maintain_queue, queue_metrics
from rowpost.transport.queue import Queue

NAME = "Upkeep"
MAX_PAIR_S = 1.0
MAX_BYTES_AFTER = 1_000_000  # table and indexes
FILL = (
    f"INSERT INTO \"{NAME}\" (id, headers, body) SELECT gen_random_uuid(), repeat('h', 300),"
    " convert_to(repeat('b', 500), 'UTF8') FROM generate_series(1, %s)"
)


@dataclass
class Load:
    """Running receivers. `pairs` has the end time and the seconds of each pair."""

    url: str
    receivers: int
    pairs: list[tuple[float, float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._threads = [threading.Thread(target=self._work) for _ in range(self.receivers)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        with connect_url("postgresql", self.url) as database:
            queue, last = Queue(NAME, database), None
            while not self.ended.is_set():
                started = time.perf_counter()
                queue.send(b"x")
                queue.receive(after_row_version=last)
                now = time.perf_counter()
                self.pairs.append((now, now - started))

    def median_ms(self, seconds: float = 2.0) -> float:
        """Wait `seconds`, and return the median pair of that time in milliseconds."""
        start = time.perf_counter()
        self.ended.wait(seconds)
        taken = [each for at, each in self.pairs if at > start]
        return statistics.median(taken) * 1000 if taken else float("inf")

    def stop(self) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join()


def new_database(server: str) -> str:
    with connect_url("postgresql", server) as admin:
        name = f"rowpost_upkeep_{os.getpid()}"
        admin.driver_connection.execute(f"CREATE DATABASE {name}")
    return re.sub(r"^(postgres(?:ql)?://[^/]*/)[^?]*", rf"\g<1>{name}", server)


def measure(url: str, rows: int, receivers: int) -> dict[str, object]:
    """Fill, empty and maintain the queue. Return the figures."""
    result: dict[str, object] = {"rows": rows, "receivers": receivers}
    with connect_url("postgresql", url) as database:
        apply(database, plan(Settings(url=url, queues=(QueueSettings(NAME),))))
        database.driver_connection.execute(f'ALTER TABLE "{NAME}" SET (autovacuum_enabled = off)')
        load = Load(url, receivers)
        result["pair_ms_fresh"] = load.median_ms()
        load.stop()
        database.driver_connection.execute(FILL, [rows])
        database.driver_connection.execute(f'DELETE FROM "{NAME}"')
        while (queue_metrics(database, NAME).dead_rows or 0) < rows:
            time.sleep(0.1)  # the server updates its statistics after about a second
        before = queue_metrics(database, NAME)
        result["bytes_before"] = (before.table_bytes or 0) + (before.index_bytes or 0)
        load = Load(url, receivers)
        result["pair_ms_dead"] = load.median_ms()
        started = time.perf_counter()
        steps = maintain(database, started)
        result["upkeep_seconds"] = time.perf_counter() - started
        result["steps"] = steps
        during = [each for at, each in load.pairs if at >= started]
        result["pairs_during_upkeep"] = len(during)
        result["longest_pair_ms"] = max(during) * 1000
        result["pair_ms_after"] = load.median_ms()
        load.stop()
        after = queue_metrics(database, NAME)
        result["bytes_after"] = (after.table_bytes or 0) + (after.index_bytes or 0)
    return result


def maintain(database, started: float) -> list[dict[str, object]]:
    """Run maintain_queue until it has nothing left to do. Return its steps with their times in seconds."""
    steps: list[dict[str, object]] = []
    while time.perf_counter() - started < 300:
        found = maintain_queue(database, NAME, at_most=1)
        ran = [step for step in found if step.state in ("done", "failed")]
        if not ran:
            now = queue_metrics(database, NAME)
            if (now.table_bytes or 0) + (now.index_bytes or 0) < MAX_BYTES_AFTER:
                break
        for step in ran:
            at = round(time.perf_counter() - started, 2)
            steps.append({"at": at, "action": step.action, "statement": step.statement, "state": step.state})
        time.sleep(1.0)  # the server updates its statistics after about a second
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--receivers", type=int, default=2)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rowpost-upkeep-") as folder:
        server = os.environ.get("ROWPOST_TEST_POSTGRESQL")
        url = new_database(server or embedded.start(Path(folder)))
        try:
            result = measure(url, options.rows, options.receivers)
        finally:
            if server is None:
                embedded.stop(Path(folder))
            else:
                with connect_url("postgresql", server) as admin:
                    admin.driver_connection.execute(
                        f"DROP DATABASE {url.rpartition('/')[2].partition('?')[0]} WITH (FORCE)"
                    )
    text = json.dumps(result, indent=2)
    print(text)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text + "\n", encoding="utf-8")
    passed = result["longest_pair_ms"] < MAX_PAIR_S * 1000 and result["bytes_after"] < MAX_BYTES_AFTER
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
