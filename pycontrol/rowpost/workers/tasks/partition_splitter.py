"""The periodic task that moves messages of a partitioned queue to its partitions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rowpost.database.connection import Connection
from rowpost.endpoint.resolve import resolve_handler
from rowpost.settings.environment import Settings
from rowpost.transport.partitions import BATCH, KeyOf, split
from rowpost.transport.queue import Queue
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.tasks.periodic import PeriodicTask

__all__ = ["key_of", "make_partition_splitter"]

#: seconds until the next look: after messages were moved, and at most while none come
SOONEST, LATEST = 0.02, 1.0


def key_of(by: str) -> KeyOf:
    """What `by` of the environment's file means: a header's name, or a function as module:function.

    Raises:
        HandlerNotFound: there is no such function.
    """
    if ":" in by:
        return resolve_handler(by)
    return lambda message: message.headers.get(by)


class _Splitter:
    """Visits partitioned queues; splits those that its session has claimed."""

    def __init__(self, settings: Settings, tell: Callable[[events.Event], None]) -> None:
        self._queues = {queue.name: queue for queue in settings.queues if queue.partitions}
        self._tell = tell
        self._keys: dict[str, KeyOf] = {}
        self._claimed: set[str] = set()
        self._database: Connection | None = None
        self._waits: dict[str, float] = {}

    def visit(self, database: Connection, name: str) -> float:
        if self._database is not database:
            self._database, self._claimed = database, set()
        queue = self._queues[name]
        if name not in self._keys:
            self._keys[name] = key_of(queue.partition_by)
        if name not in self._claimed:
            if not database.call("acquire_queue", queue_name=name)[0][0]:
                return LATEST
            self._claimed.add(name)
        rests = self._waits.get(name, 0.0) > SOONEST  # an idle queue costs one statement, and no transaction
        if rests and not Queue(name, database).peek(1):
            moved = 0
        else:
            moved = split(database, queue, self._keys[name], lambda text: self._warn(name, text))
        wait = SOONEST if moved else min(2 * self._waits.get(name, SOONEST), LATEST)
        self._waits[name] = wait
        return 0.0 if moved == BATCH else wait

    def _warn(self, queue: str, text: str) -> None:
        self._tell(events.Warned(queue=queue, at=time.time(), text=text))


def make_partition_splitter(
    settings: Settings, tell: Callable[[events.Event], None], breaker: CircuitBreaker | None = None, **options: Any
) -> PeriodicTask:
    """Splits the environment's partitioned queues, as long as this process is the one that claimed them."""
    splitter = _Splitter(settings, tell)
    names = [queue.name for queue in settings.queues if queue.partitions]
    return PeriodicTask(settings, names, splitter.visit, name="rowpost splitter", duty="split", tell=tell, breaker=breaker, **options)
