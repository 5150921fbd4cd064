"""Expired messages, purged before anybody receives them: once at the start, or again and again. Both are off by default.

A receive drops expired messages anyway (reference F1); a purge is for queues where many expire while nobody receives.
It works in batches that commit one by one and step over what receivers hold, so that it never blocks them: batches
stay below the 5,000 row locks at which SQL Server would lock a whole table (reference F2, F3, pain #396).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rowpost.database.connection import Connection
from rowpost.settings.environment import Settings
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.tasks.periodic import PeriodicTask

__all__ = ["BATCH", "make_expired_purger"]

BATCH = 1_000
#: seconds between two batches of one purge: receivers come first
BREATH = 0.01


class _Sweep:
    """Purges batch by batch, and says so when a purge is complete."""

    def __init__(self, every: dict[str, float], tell: Callable[[events.Event], None], batch: int) -> None:
        self._every, self._tell, self._batch = every, tell, batch
        self._purged: dict[str, int] = {}

    def visit(self, database: Connection, queue: str) -> float | None:
        purged = database.call("purge_expired", queue, count=self._batch)[0].purged
        total = self._purged.pop(queue, 0) + purged
        if purged == self._batch:
            self._purged[queue] = total
            return BREATH
        if total:
            self._tell(events.ExpiredPurged(queue=queue, at=time.time(), count=total))
        return self._every[queue] or None


def make_expired_purger(
    settings: Settings,
    tell: Callable[[events.Event], None],
    breaker: CircuitBreaker | None = None,
    *,
    batch: int = BATCH,
    **options: Any,
) -> PeriodicTask:
    """The sweeper of a process: for the queues whose worker has purge_expired_on_startup or purge_expired_every."""
    workers = {queue.name: queue.worker for queue in settings.queues if queue.worker is not None}
    every = {
        name: worker.purge_expired_every
        for name, worker in workers.items()
        if worker.purge_expired_on_startup or worker.purge_expired_every
    }
    sweep = _Sweep(every, tell, batch)
    return PeriodicTask(
        settings, every, sweep.visit, name="rowpost sweeper", duty="purge expired messages of", tell=tell, breaker=breaker,
        **options,
    )  # fmt: skip
