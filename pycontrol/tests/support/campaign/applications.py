"""Applications of a site: each writes an order's row and sends the order in a transaction of its own session, which the endpoint joins.

There is a process for each kind of session and connection of `tests.support.joining`. A row in the table `sent` is the application's
own data: an order is there if and only if its message was sent.

As a program, this module is one such process. It ends on SIGTERM between two transactions.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from tests.support import joining
from tests.support.applications import Application
from tests.support.crashing import TYPE, Order
from tests.support.fork_server import Forked, ForkServer

__all__ = ["WAYS", "Applications"]

#: the kinds of sessions and connections, by their names in `tests.support.joining`
WAYS = (
    "session",
    "django_atomic",
    "driver",
    "psycopg_session",
    "asyncpg_session",
    "asyncpg_alone",
    "psycopg_alone",
    "blocking_session",
)
HEADERS = {"NServiceBus.EnclosedMessageTypes": TYPE}
#: what a forked process has imported already
IMPORTED = (
    "rowpost",
    "rowpost.endpoint.endpoint",
    "sqlalchemy.orm",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "django.db.backends.postgresql.base",
)
#: numbers of one process
NUMBERS = 100_000
#: seconds between the end of a block and the commit, at most
LONGEST_PAUSE_S = 0.005
ROLLED_BACK_SHARE = 0.1
MOST_TRANSACTIONS = 10  # of one session
DEADLINE_S = 30.0


class Applications(threading.Thread):
    """Runs an application of each kind, and starts those again that have ended.

    Args:
        folder: for what the applications note.
        url: returns the URL of the database.
    """

    def __init__(self, folder: Path, url: Callable[[], str]) -> None:
        super().__init__(daemon=True, name="applications")
        self._folder, self._url = folder, url
        self._server = ForkServer(*IMPORTED)
        self._running: dict[str, tuple[Forked, Path]] = {}
        self._books: list[Path] = []
        self._numbers = count(step=NUMBERS)
        self._lock, self._ended = threading.Lock(), threading.Event()
        #: what applications said that have ended by themselves
        self.failures: list[str] = []
        #: orders whose application was killed in their transaction, and whether their message was stored then: began, stored
        self.interrupted: list[tuple[int, str]] = []

    def start(self) -> None:
        """Start the applications, and wait until one has committed something."""
        super().start()
        end = time.monotonic() + DEADLINE_S
        while not self.acknowledged:
            assert time.monotonic() < end, (
                f"no application has committed anything in {DEADLINE_S:.0f} s: {self.failures}"
            )
            time.sleep(0.05)

    def run(self) -> None:
        while not self._ended.wait(0.02):
            with self._lock:
                for way in WAYS:
                    self._keep(way)

    def kill_one(self, dice: random.Random) -> str | None:
        """Kill an application that has committed something. Return its kind; None if there is none."""
        with self._lock:
            working = [
                way for way, (process, book) in self._running.items() if process.poll() is None and any(committed(book))
            ]
            if not working:
                return None
            way = dice.choice(working)
            process, book = self._running.pop(way)
            process.kill()
            process.communicate()
        what, number = notes(book)[-1]
        if what in ("began", "stored"):
            self.interrupted.append((number, what))
        return way

    def end(self) -> None:
        """Stop all applications, each behind its transaction."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self.is_alive():
            self.join(DEADLINE_S)
        for process, _ in self._running.values():
            process.terminate()
        for way, (process, _) in self._running.items():
            self._note_end(way, process)
        self._server.stop()

    @property
    def acknowledged(self) -> set[int]:
        """The orders whose commit has returned."""
        return {number for book in self._books for number in committed(book)}

    def _keep(self, way: str) -> None:
        if way in self._running:
            process, _ = self._running[way]
            if process.poll() is None:
                return
            self._note_end(way, process)
        first = next(self._numbers)
        book = self._folder / f"{first}.txt"
        self._books.append(book)
        arguments = {"way": way, "url": self._url(), "first": first, "book": str(book)}
        process = self._server.start(
            ["-m", __name__, json.dumps(arguments)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._running[way] = process, book

    def _note_end(self, way: str, process: Forked) -> None:
        try:
            _, said = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        if process.returncode not in (0, -signal.SIGTERM):  # the signal of `end` may come before an application listens
            self.failures.append(f"{way} ended with {process.returncode}: {' '.join(said.splitlines()[-2:])}")


def notes(book: Path) -> list[tuple[str, int]]:
    """Return what an application has noted: a word, and the order's number."""
    lines = book.read_text(encoding="utf-8").split("\n")[:-1] if book.exists() else []
    return [(what, int(number)) for what, number in map(str.split, lines)]


def committed(book: Path) -> Iterator[int]:
    """Yield the orders whose commit has returned."""
    return (number for what, number in notes(book) if what == "committed")


# ------------------------------------------------------------------ an application
class Stopped(threading.Event):
    """Is set by SIGTERM."""

    def __init__(self) -> None:
        super().__init__()
        signal.signal(signal.SIGTERM, lambda *_: self.set())


def fate() -> Sequence[bool]:
    """Return which transactions of a session commit: all but, perhaps, the last one."""
    commits = [True] * random.randint(1, MOST_TRANSACTIONS)
    return [*commits, False] if random.random() < ROLLED_BACK_SHARE * len(commits) else commits


def place_all(way: Any, application: Application, numbers: count[int], note: Callable[[str, int], object]) -> None:
    """Place orders by a session or connection, until SIGTERM."""
    stopped = Stopped()
    while not stopped.is_set():
        with way(application) as (given, insert, commit):
            for commits in fate():
                number = next(numbers)
                note("began", number)
                insert(number)
                with application.web.open(given) as bus:
                    bus.send(Order(number), to="Sales", headers=HEADERS)
                note("stored", number)
                time.sleep(random.uniform(0, LONGEST_PAUSE_S))
                if not commits:
                    note("left", number)
                    break
                commit()
                note("committed", number)
                if stopped.is_set():
                    break


async def place_all_on_loop(
    way: Any, application: Application, numbers: count[int], note: Callable[[str, int], object]
) -> None:
    """Place orders by a session or connection of the event loop, until SIGTERM."""
    stopped = Stopped()
    while not stopped.is_set():
        async with way(application) as (given, insert, commit):
            for commits in fate():
                number = next(numbers)
                note("began", number)
                await insert(number)
                async with application.web.open(given) as bus:
                    bus.send(Order(number), to="Sales", headers=HEADERS)
                note("stored", number)
                await asyncio.sleep(random.uniform(0, LONGEST_PAUSE_S))
                if not commits:
                    note("left", number)
                    break
                await commit()
                note("committed", number)
                if stopped.is_set():
                    break


def main(way: str, url: str, first: int, book: str) -> None:
    application = Application("postgresql", url, table="sent")
    with open(book, "ab", buffering=0) as written:

        def note(what: str, number: int) -> None:
            written.write(f"{what} {number}\n".encode())

        given = getattr(joining, way), application, count(first), note
        if given[0] in joining.WAYS:
            place_all(*given)
        else:
            asyncio.run(place_all_on_loop(*given))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
