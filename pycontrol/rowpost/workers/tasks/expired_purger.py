"""The periodic task that purges expired messages, once at startup or repeatedly. Both are off by default.

A receive removes expired messages anyway. A purge is for queues in which many messages expire while no worker receives.
It works in batches that commit one by one and skip the rows that receivers have locked, so that it never blocks them.
"""

from __future__ import annotations

from collections import Counter

from rowpost.database.connection import Connection
from rowpost.settings.environment import Settings
from rowpost.workers import events
from rowpost.workers.tasks.periodic import Work, periodic_task

__all__ = ["BATCH", "make_expired_purger"]

# At about 5,000 row locks SQL Server may lock the whole table (SQL Server documentation, "Transaction locking and row
# versioning guide", section "Lock escalation"); a batch stays far below that.
BATCH = 1_000
# Pause between two batches of one purge, so that receivers are not held up.
BATCH_PAUSE_S = 0.01


@periodic_task("rowpost expired purger", "purge expired messages of")
def make_expired_purger(settings: Settings, emit: events.Emit) -> Work:
    """Return the purger of a process: for queues whose worker has purge_expired_on_startup or purge_expired_every."""
    workers = {queue.name: queue.worker for queue in settings.queues if queue.worker is not None}
    every = {
        name: worker.purge_expired_every
        for name, worker in workers.items()
        if worker.purge_expired_on_startup or worker.purge_expired_every
    }
    so_far: Counter[str] = Counter()

    def purge(database: Connection, queue: str) -> float | None:
        purged = database.call("purge_expired", queue, count=BATCH)[0].purged
        so_far[queue] += purged
        if purged == BATCH:
            return BATCH_PAUSE_S
        if total := so_far.pop(queue):
            emit(events.ExpiredPurged(queue=queue, count=total))
        return every[queue] or None

    return every, purge
