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

from dataclasses import dataclass, replace
from datetime import datetime

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseError

__all__ = ["Metrics", "Step", "maintain_queue", "queue_metrics"]


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


def queue_metrics(database: Connection, queue: str, anchor: int | None = None) -> Metrics:
    """The figures of a queue. Raises QueueNotFound."""
    return Metrics(*database.call("queue_metrics", queue, after_row_version=anchor)[0])


def maintain_queue(
    database: Connection, queue: str, *, offline: bool = False, at_most: int | None = None
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


def _ran(database: Connection, step: Step) -> Step:
    try:
        with database.translated():
            database.dialect.script(database.driver_connection, step.statement)
    except DatabaseError as error:
        if database.closed:
            raise
        return replace(step, state="failed", error=str(error))
    return replace(step, state="done")


def _rate(now: int | None, before: int | None, seconds: float) -> float | None:
    return None if now is None or before is None or seconds <= 0 else (now - before) / seconds


