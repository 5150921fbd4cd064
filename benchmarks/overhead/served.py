"""`rowpost run` empties a queue that got a backlog in one transaction: messages a second, by two workers with a plain function.

In contrast to `endpoint`, the supervisor takes part. With metrics, a program scrapes it once a second, which is 15 times as often as Prometheus
does by default.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from benchmarks.suite import figures
from benchmarks.suite.figures import OURS, Contender, Line, Paced, Scale
from benchmarks.suite.server import Server, wait_until
from benchmarks.suite.workers import HANDLERS, NOTES, Notes, running

__all__ = ["measure"]

CASE = "rowpost run, 2 workers"
LIMIT = 2
GUESS = 4_000
SCRAPE_EVERY_S = 1.0
MARK = "metrics at "


class _Scraper:
    """Scrapes an address until the block ends."""

    def __init__(self, url: str) -> None:
        self._url, self._ended = url, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.scrapes = 0

    def __enter__(self) -> _Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(SCRAPE_EVERY_S):
            with suppress(OSError), urlopen(self._url, timeout=10) as answer:
                self.scrapes += bool(answer.read())


def measure(server: Server, scale: Scale) -> list[Line]:
    """Measure with metrics if the place's settings serve them."""
    with server.place("served", "Bench") as place, TemporaryDirectory() as name, ExitStack() as stack:
        folder, on = Path(name), place.settings.supervisor.metrics is not None
        # no worker stops between two rounds
        supervisor = {"idle_timeout": 600.0, "maintenance_every": 0.0, **({"metrics": 0} if on else {})}
        worker = {"handler": f"{HANDLERS}:timed", "limit": LIMIT, "peek_delay": 0.2}
        stack.enter_context(running(place, folder, {"Bench": worker}, supervisor=supervisor))
        if on:
            stack.enter_context(_Scraper(_url_in(folder / "run.log")))
        notes, paced = (
            Notes(Path(os.environ[NOTES])),
            Paced(scale.rows(GUESS, least=100), 4 * scale.seconds, 100, scale.rows(200_000, least=1000)),
        )

        def once() -> float:
            count = paced.count
            place.sql("CHECKPOINT")
            begun = time.monotonic()
            place.fill("Bench", count, str(begun).encode())
            # what the sender's INSERT took is no part of it: the workers see the messages at its commit
            committed = time.monotonic()
            notes.take(count)
            return paced.note(count / (time.monotonic() - committed))

        return figures.take_turns(CASE, [Contender(OURS, once, "exactly once")], scale.rounds)


def _url_in(log: Path) -> str:
    def found() -> str:
        line = next((line for line in log.read_text().splitlines() if MARK in line), "")
        return line.partition(MARK)[2].strip()

    return str(wait_until(found, "rowpost run names the address of its metrics"))
