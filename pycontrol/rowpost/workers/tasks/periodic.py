"""A thread with a connection of its own that visits queues when their time has come: movers and sweepers.

It survives the loss of the database with a breaker of its own, and holds nobody up: neither peeks nor signals.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rowpost.database.connection import Connection, connect
from rowpost.errors import DatabaseUnavailable, RowpostError
from rowpost.settings.environment import Settings
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker, arms_circuit_breaker

__all__ = ["PeriodicTask", "Visit"]

#: called with database and queue; returns the seconds until the queue wants the next visit, None for never again
Visit = Callable[[Connection, str], float | None]


class PeriodicTask:
    """Visits each of the queues, one after the other: when its last visit said so, or when somebody else has since.

    Args:
        name: of the thread, and of its session at the server.
        duty: what fails when a visit fails, as in "Failed to move due messages of Sales: …".
        tell: called with each Event, in the patrol's thread.
        choose: narrows the queues on each new connection, for what only the database can tell.
    """

    def __init__(
        self,
        settings: Settings,
        queues: Iterable[str],
        visit: Visit,
        *,
        name: str,
        duty: str,
        tell: Callable[[events.Event], None],
        breaker: CircuitBreaker | None = None,
        choose: Callable[[Connection, list[str]], list[str]] | None = None,
        connect: Callable[..., Connection] = connect,
    ) -> None:
        self._settings = settings
        self._queues = list(queues)
        self._visit, self._name, self._duty, self._tell = visit, name, duty, tell
        self._breaker = replace(breaker or CircuitBreaker(), seconds=settings.supervisor.breaker_seconds)
        self._choose = choose or (lambda _, queues: queues)
        self._connect = connect
        self._database: Connection | None = None
        self._due: dict[str, float] = {}
        self._expected: dict[str, tuple[float, float]] = {}
        self._sleeps_until = float("-inf")  # whoever expects a visit earlier rings
        self._ended = False
        self._bell = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; without queues there is nothing to do."""
        if self._queues:
            self._thread.start()

    def stop(self) -> None:
        """End after the visit in hand; a hanging database is not waited for."""
        self._ended = True
        self._bell.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def expect(self, queue: str, seconds: float) -> None:
        """Visit the queue in so many seconds, neither before nor after that. May be called from any thread.

        It changes nothing while a visit is due or goes on, nor after one that failed: those know better.
        """
        now = time.monotonic()
        self._expected[queue] = now, now + seconds
        if now + seconds < self._sleeps_until:
            self._bell.set()

    def _run(self) -> None:
        while not self._ended:
            self._sleeps_until = float("-inf")
            try:
                until = self._round()
            except RowpostError as error:  # no connection
                until = time.monotonic() + self._record_failure(self._queues[0], error)
            else:
                if until is None:
                    break
                self._sleeps_until = until
            self._bell.wait(max(0.0, until - time.monotonic()))
            self._bell.clear()
        self._disconnect()

    def _round(self) -> float | None:
        """Visit every queue whose time has come; returns the next one's time, None when there is none."""
        database = self._open()
        self._sleeps_until = float("inf")
        self._plan()
        for queue in [queue for queue, due in self._due.items() if due <= time.monotonic()]:
            if self._ended:
                break
            try:
                wait = self._visit(database, queue)
            except RowpostError as error:
                self._due[queue] = time.monotonic() + self._record_failure(queue, error)
                if self._database is None:
                    break
                continue
            self._record_success(queue)
            self._expected.pop(queue, None)
            if wait is None:
                del self._due[queue]
            else:
                self._due[queue] = time.monotonic() + wait
        return min(self._due.values(), default=None)

    def _plan(self) -> None:
        """Take over what was expected since the last round."""
        while self._expected:
            queue, (said, at) = self._expected.popitem()
            if self._due.get(queue, said) > said and queue not in self._breaker.failing:
                self._due[queue] = at

    def _open(self) -> Connection:
        if self._database is None:
            self._database = self._connect(self._settings, application_name=self._name)
            for queue in self._choose(self._database, self._queues):
                self._due.setdefault(queue, 0.0)
        return self._database

    def _record_failure(self, queue: str, error: RowpostError) -> float:
        """Tell, and return how long to wait."""
        database = self._database
        if database is not None:
            if isinstance(error, DatabaseUnavailable) or database.closed:
                self._disconnect()
            else:
                with suppress(RowpostError):
                    database.rollback()
        if not arms_circuit_breaker(error):
            return 0.05  # a deadlock victim: again at once, but not in a spin
        text = f"Failed to {self._duty} {queue}: {error}"
        known = queue in self._breaker.failing
        self._breaker = self._breaker.after_failure(time.monotonic(), queue)
        if self._breaker.change == "triggered":
            self._emit(events.Critical, queue, error=text)
        elif not known:
            self._emit(events.Trouble, queue, error=text)
        return self._breaker.wait

    def _record_success(self, queue: str) -> None:
        self._breaker = self._breaker.after_success(queue)
        if self._breaker.change == "recovered":
            self._emit(events.Recovered, queue)

    def _emit(self, kind: type[events.Event], queue: str, **fields: Any) -> None:
        self._tell(kind(queue=queue, at=time.time(), **fields))

    def _disconnect(self) -> None:
        if self._database is not None:
            with suppress(RowpostError):
                self._database.close()
            self._database = None
