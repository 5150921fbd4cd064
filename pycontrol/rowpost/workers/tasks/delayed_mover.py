"""The periodic task that moves due delayed messages into their queues."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rowpost.database.connection import Connection
from rowpost.recoverability.policy import Host
from rowpost.settings.environment import HostSettings, Settings
from rowpost.transport.delayed import move_due
from rowpost.transport.directory import Directory
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.tasks.periodic import PeriodicTask

__all__ = ["make_delayed_mover"]


def make_delayed_mover(
    settings: Settings,
    emit: Callable[[events.Event], None],
    breaker: CircuitBreaker | None = None,
    **options: Any,
) -> PeriodicTask:
    """Return the delayed mover of a process: for all queues that have a worker and a delayed table."""
    queues = [queue.name for queue in settings.queues if queue.worker is not None and queue.delayed]
    action = partial(
        _move,
        lateness=settings.supervisor.delayed_lateness,
        error_queue=settings.supervisor.error_queue,
        directory=Directory(),
        host_of=settings.host_of,
        emit=emit,
    )
    return PeriodicTask(
        settings,
        queues,
        action,
        name="rowpost delayed mover",
        activity="move due messages of",
        emit=emit,
        breaker=breaker,
        select=_with_delayed_table,
        **options,
    )


def _with_delayed_table(database: Connection, queues: list[str]) -> list[str]:
    delayed = {row.queue_name for row in database.call("list_queues") if row.delayed}
    return [queue for queue in queues if queue in delayed]


def _move(
    database: Connection,
    queue: str,
    *,
    lateness: float,
    error_queue: str,
    directory: Directory,
    host_of: Callable[[str], HostSettings],
    emit: Callable[[events.Event], None],
) -> float:
    done = move_due(database, queue, error_queue=error_queue, directory=directory, host=Host.here(queue, host_of(queue)))
    if done.moved or done.forwarded or done.failed:
        emit(events.DelayedMoved(queue=queue, at=time.time(), count=done.moved, forwarded=done.forwarded, failed=done.failed))
    return done.wait(lateness)
