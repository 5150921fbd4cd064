"""Maintain queues: read their figures, and keep their tables small and fast.

Called by the periodic task of one elected process, by `rowpost queue maintain`, or directly:

    queue_metrics(database, "Sales").depth
    for step in maintain_queue(database, "Sales"):
        print(step.action, step.state, step.reason)

A queue's table sees only inserts and deletes. The autovacuum settings of the table do the regular work.
`maintain_queue` does the rest: it truncates a file that a backlog has enlarged, rebuilds an index that is mostly empty,
and drops what an interrupted rebuild left behind.

PostgreSQL cannot run VACUUM and REINDEX CONCURRENTLY inside a function. So the queue's procedure returns the statements
that are needed, and they are executed here, one by one. None of them blocks senders or receivers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseError

__all__ = ["MaintenanceStep", "Metrics", "maintain_queue", "queue_metrics", "waiting"]

_COUNTED = 10_000  # above this peek_queue does not count


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of a queue. None means that the engine does not know the value without a scan.

    `enqueued` and `dequeued` count since the server's statistics were reset; `expired` counts up to 1,000.
    `leased`: messages that handlers hold by a lease; None for a queue without a table of leases.
    `measured_at` is in UTC.
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
    leased: int | None = None

    def rates(self, earlier: Metrics) -> tuple[float | None, float | None]:
        """Return the messages enqueued and dequeued per second since an earlier measurement; None if the engine does
        not count.

        >>> from datetime import timedelta
        >>> now = datetime(2026, 11, 20)
        >>> before = Metrics(0, None, 10, 10, 0, 0, 0, 0, now)
        >>> Metrics(5, None, 30, 25, 0, 0, 0, 0, now + timedelta(seconds=2)).rates(before)
        (10.0, 7.5)
        """
        seconds = (self.measured_at - earlier.measured_at).total_seconds()
        return _rate(self.enqueued, earlier.enqueued, seconds), _rate(self.dequeued, earlier.dequeued, seconds)


@dataclass(frozen=True, slots=True)
class MaintenanceStep:
    """One step of maintenance. `state` is done, waits (for a person or a right), todo, or failed with `error`."""

    action: str
    reason: str
    statement: str
    state: str
    error: str | None = None


def queue_metrics(database: Connection, queue: str, after_row_version: int | None = None) -> Metrics:
    """Return the figures of a queue, or of its messages with a higher row version. Raises QueueNotFound."""
    return Metrics(*database.call("queue_metrics", queue, after_row_version=after_row_version)[0])


def waiting(database: Connection, queue: str, limit: int) -> int:
    """Return how many messages wait, without those that receivers have locked.

    Up to `limit` they are counted; above 10,000 it is an estimate.
    """
    estimate = queue_metrics(database, queue).depth if limit >= _COUNTED else None
    return (
        database.call("peek_queue", queue, count=min(limit + 1, _COUNTED))[0].waiting if estimate is None else estimate
    )


def maintain_queue(
    database: Connection, queue: str, *, offline: bool = False, at_most: int | None = None
) -> list[MaintenanceStep]:
    """Execute the maintenance steps that a queue needs, and return them. Call it outside of a transaction.

    If a step fails, its `error` gives the reason, and the next step is executed.

    Args:
        offline: allow steps that lock the table while they run.
        at_most: maximum number of statements to execute; None for all.

    Raises:
        QueueNotFound: no such queue.
        PermissionDenied: the login may not maintain the queue.
    """
    steps = [MaintenanceStep(*row) for row in database.call("maintain_queue", queue, offline=offline)]
    done: list[MaintenanceStep] = []
    ran = 0
    for step in steps:
        if step.state == "todo" and (at_most is None or ran < at_most):
            ran += 1
            done.append(_execute(database, step))
        else:
            done.append(step)
    return done


def _execute(database: Connection, step: MaintenanceStep) -> MaintenanceStep:
    try:
        with database.translated():
            # the login's limit is for statements of handlers: an index that is never rebuilt to its end leaves a new
            # remnant each time
            database.dialect.limit_statements(database.driver_connection, 0)
            database.dialect.script(database.driver_connection, step.statement)
    except DatabaseError as error:
        if database.closed:
            raise
        return replace(step, state="failed", error=str(error))
    return replace(step, state="done")


def _rate(now: int | None, before: int | None, seconds: float) -> float | None:
    return None if now is None or before is None or seconds <= 0 else (now - before) / seconds
