"""The periodic task that maintains the tables of queues."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import PermissionDenied
from rowpost.settings.environment import Settings
from rowpost.transport.maintenance import maintain_queue
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.tasks.periodic import PeriodicTask

__all__ = ["make_queue_maintenance"]


class _Caretaker:
    """Visits queues as long as its session is the elected one; one statement a visit is its budget."""

    def __init__(self, every: float, tell: Callable[[events.Event], None]) -> None:
        self._every, self._tell = every, tell
        self._elected: Connection | None = None

    def visit(self, database: Connection, queue: str) -> float | None:
        if self._elected is not database:
            if not database.call("elect", duty="maintenance")[0].elected:
                return self._every
            self._elected = database
        try:
            steps = maintain_queue(database, queue, at_most=1)
        except PermissionDenied:
            self._warn(queue, "the login may not look after queues: make it a member of rowpost_operator, or set maintenance_every: 0")
            return None
        for step in steps:
            if step.state == "failed":
                self._warn(queue, f"upkeep: {step.action} failed: {step.error}")
            elif step.state == "done" and step.action != "statistics":
                self._tell(events.Maintained(queue=queue, at=time.time(), action=step.action, text=step.reason))
        return self._every

    def _warn(self, queue: str, text: str) -> None:
        self._tell(events.Warned(queue=queue, at=time.time(), text=text))


def make_queue_maintenance(
    settings: Settings, tell: Callable[[events.Event], None], breaker: CircuitBreaker | None = None, **options: Any
) -> PeriodicTask:
    """The caretaker of a process: one of all processes is elected by the database. Off with maintenance_every: 0."""
    every = settings.supervisor.maintenance_every
    queues = [queue.name for queue in settings.queues if queue.kind != "external"] if every > 0 else []
    caretaker = _Caretaker(every, tell)
    return PeriodicTask(
        settings, queues, caretaker.visit, name="rowpost upkeep", duty="look after", tell=tell, breaker=breaker, **options
    )
