"""The periodic task that moves messages of a partitioned queue to its partitions."""

from __future__ import annotations

from rowpost.database.connection import Connection
from rowpost.endpoint.resolve import resolve_function
from rowpost.settings.environment import Settings
from rowpost.transport.exclusive import SingleActiveConsumer
from rowpost.transport.partitions import BATCH, KeyOf, split
from rowpost.transport.queue import Queue
from rowpost.workers import events
from rowpost.workers.tasks.periodic import Work, periodic_task

__all__ = ["key_of", "make_partition_splitter"]

# Pause after a round: the first value after messages were moved; doubled up to the second while the queue is empty.
MIN_PAUSE_S, MAX_PAUSE_S = 0.02, 1.0


def key_of(by: str) -> KeyOf:
    """Return the function that `by` of the environment's file names: a header's name, or a function as module:function.

    Raises:
        HandlerNotFound: the function does not exist, or it is an Endpoint.
    """
    if ":" in by:
        return resolve_function(by, takes=("message",))
    return lambda message: message.headers.get(by)


class _Splitter:
    """Splits the partitioned queues for which its session is the single active consumer."""

    def __init__(self, settings: Settings, emit: events.Emit) -> None:
        self._queues = {queue.name: queue for queue in settings.queues if queue.partitions}
        self._consumers = {name: SingleActiveConsumer(name) for name in self._queues}
        self._emit = emit
        self._keys: dict[str, KeyOf] = {}
        self._pauses: dict[str, float] = {}

    def __call__(self, database: Connection, name: str) -> float:
        queue = self._queues[name]
        if name not in self._keys:
            self._keys[name] = key_of(queue.partition_by)
        if not self._consumers[name].held(database):
            return MAX_PAUSE_S
        idle = self._pauses.get(name, 0.0) > MIN_PAUSE_S  # an idle queue costs one statement, and no transaction
        if idle and not Queue(name, database).peek(1):
            moved = 0
        else:
            moved = split(
                database, queue, self._keys[name], lambda text: self._emit(events.Warned(queue=name, text=text))
            )
        pause = MIN_PAUSE_S if moved else min(2 * self._pauses.get(name, MIN_PAUSE_S), MAX_PAUSE_S)
        self._pauses[name] = pause
        return 0.0 if moved == BATCH else pause


@periodic_task("rowpost partition splitter", "split")
def make_partition_splitter(settings: Settings, emit: events.Emit) -> Work:
    """Return the task that splits the environment's partitioned queues, each in one of all processes at a time."""
    return [queue.name for queue in settings.queues if queue.partitions], _Splitter(settings, emit)
