"""The check of the supervisor's queues when it starts: what `rowpost queue check` finds is a warning each, and work goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import QueueNotFound
from rowpost.settings.environment import Settings
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.tasks.periodic import PeriodicTask

__all__ = ["make_startup_check"]


class _Check:
    """Checks each queue once, and emits a warning for each finding with its remedy."""

    def __init__(self, emit: Callable[[events.Event], None]) -> None:
        self._emit = emit

    def __call__(self, database: Connection, queue: str) -> float | None:
        try:
            findings = database.call("check_queue", queue_name=queue)
        except QueueNotFound:  # each peek says so
            return None
        for found in findings:
            self._emit(events.Warned(queue=queue, at=time.time(), text=f"{found.finding}: {found.detail.rstrip('.')}. Remedy: {found.remedy}"))
        return None


def make_startup_check(
    settings: Settings, emit: Callable[[events.Event], None], breaker: CircuitBreaker | None = None, **options: Any
) -> PeriodicTask:
    """Return the check of the queues that have a worker, and of the error queue."""
    names = [queue.name for queue in settings.queues if queue.worker is not None]
    if names and settings.supervisor.error_queue in {queue.name for queue in settings.queues} - set(names):
        names.append(settings.supervisor.error_queue)
    return PeriodicTask(settings, names, _Check(emit), name="rowpost start-up check", activity="check", emit=emit, breaker=breaker, **options)
