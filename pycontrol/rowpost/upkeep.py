"""Looking after queues: figures, and what keeps a table small and fast. By hand, or by one elected process.

    queue_metrics(database, "Sales").depth
    for step in maintain_queue(database, "Sales"):
        print(step.action, step.state, step.reason)

A queue is all inserts and deletes. Its table's own autovacuum settings do the daily work; maintain_queue does what
they cannot: cut a file that a backlog has left long, renew an index that is mostly air, take away what an interrupted
renewal left behind. PostgreSQL runs VACUUM and REINDEX CONCURRENTLY in no function, so that the queue's procedure says
what is needed and the statements run here, one by one. None of them stops senders or receivers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from rowpost import events
from rowpost.breaker import Breaker
from rowpost.database import Database
from rowpost.errors import DatabaseError, PermissionDenied
from rowpost.patrol import Patrol
from rowpost.settings import Settings

__all__ = ["Metrics", "Step", "maintain_queue", "make_caretaker", "queue_metrics"]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of a queue, as queue_metrics returns them. Null is what the engine does not know without a scan.

    `enqueued` and `dequeued` count since the server began to; `expired` up to 1,000. `measured_at` is UTC.
    """

    depth: int | None
    oldest_age_ms: int | None
    enqueued: int | None
    dequeued: int | None
    expired: int
    table_bytes: int | None
    index_bytes: int | None
    dead_rows: int | None
    measured_at: datetime

    def rates(self, earlier: Metrics) -> tuple[float | None, float | None]:
        """Messages enqueued and dequeued a second since an earlier measurement; None where the engine does not count.

        >>> from datetime import timedelta
        >>> now = datetime(2026, 11, 20)
        >>> before = Metrics(0, None, 10, 10, 0, 0, 0, 0, now)
        >>> Metrics(5, None, 30, 25, 0, 0, 0, 0, now + timedelta(seconds=2)).rates(before)
        (10.0, 7.5)
        """
        seconds = (self.measured_at - earlier.measured_at).total_seconds()
        return _rate(self.enqueued, earlier.enqueued, seconds), _rate(self.dequeued, earlier.dequeued, seconds)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of upkeep. `state` is done, waits (for a person or a right), todo, or failed with `error`."""

    action: str
    reason: str
    statement: str
    state: str
    error: str | None = None


def queue_metrics(database: Database, queue: str, anchor: int | None = None) -> Metrics:
    """The figures of a queue. Raises QueueNotFound."""
    return Metrics(*database.call("queue_metrics", queue, anchor=anchor)[0])


def maintain_queue(
    database: Database, queue: str, *, offline: bool = False, at_most: int | None = None
) -> list[Step]:
    """Look after a queue: every step that it needs, `at_most` so many of those that run here.

    `offline` allows what keeps everybody out while it runs. A step that fails is told in its `error`, and the next
    one runs. Call it outside of a transaction.

    Raises:
        QueueNotFound, PermissionDenied.
    """
    steps = [Step(*row) for row in database.call("maintain_queue", queue, offline=offline)]
    done: list[Step] = []
    ran = 0
    for step in steps:
        if step.state == "todo" and (at_most is None or ran < at_most):
            ran += 1
            done.append(_ran(database, step))
        else:
            done.append(step)
    return done


def _ran(database: Database, step: Step) -> Step:
    try:
        with database.translated():
            database.dialect.script(database.connection, step.statement)
    except DatabaseError as error:
        if database.closed:
            raise
        return replace(step, state="failed", error=str(error))
    return replace(step, state="done")


def _rate(now: int | None, before: int | None, seconds: float) -> float | None:
    return None if now is None or before is None or seconds <= 0 else (now - before) / seconds


class _Caretaker:
    """Visits queues as long as its session is the elected one; one statement a visit is its budget."""

    def __init__(self, every: float, tell: Callable[[events.Event], None]) -> None:
        self._every, self._tell = every, tell
        self._elected: Database | None = None

    def visit(self, database: Database, queue: str) -> float | None:
        if self._elected is not database:
            if not database.call("elect_upkeep")[0][0]:
                return self._every
            self._elected = database
        try:
            steps = maintain_queue(database, queue, at_most=1)
        except PermissionDenied:
            self._warn(queue, "the login may not look after queues: make it a member of rowpost_operator, or set upkeep_every: 0")
            return None
        for step in steps:
            if step.state == "failed":
                self._warn(queue, f"upkeep: {step.action} failed: {step.error}")
            elif step.state == "done" and step.action != "statistics":
                self._tell(events.Maintained(queue=queue, at=time.time(), action=step.action, text=step.reason))
        return self._every

    def _warn(self, queue: str, text: str) -> None:
        self._tell(events.Warned(queue=queue, at=time.time(), text=text))


def make_caretaker(
    settings: Settings, tell: Callable[[events.Event], None], breaker: Breaker | None = None, **options: Any
) -> Patrol:
    """The caretaker of a process: one of all processes is elected by the database. Off with upkeep_every: 0."""
    every = settings.supervisor.upkeep_every
    queues = [queue.name for queue in settings.queues if queue.kind != "external"] if every > 0 else []
    caretaker = _Caretaker(every, tell)
    return Patrol(
        settings, queues, caretaker.visit, name="rowpost upkeep", duty="look after", tell=tell, breaker=breaker, **options
    )
