"""Count waiting messages once a second for the display.

The supervisor's own counts are not enough, because it does not peek while its workers receive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from rowpost.cli.formats import PEEK_LIMIT
from rowpost.database.connection import Connection
from rowpost.errors import DatabaseUnavailable, RowpostError
from rowpost.settings.environment import Settings
from rowpost.transport.queue import Queue
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.events import Event, Recovered
from rowpost.workers.tasks.periodic import PeriodicTask

__all__ = ["watched_depths"]


@contextmanager
def watched_depths(settings: Settings, queues: Iterable[str], every: float = 1.0) -> Iterator[Mapping[str, int | None]]:
    """Count the messages of queues within the block, in a thread with its own connection.

    Yields the latest count by queue, None for a queue that could not be peeked.
    """
    depths: dict[str, int | None] = dict.fromkeys(queues)

    def peek_all(database: Connection, _: str) -> float:
        for name in depths:
            try:
                depths[name] = Queue(name, database).peek(PEEK_LIMIT)
            except DatabaseUnavailable:
                raise
            except RowpostError:  # the login may not peek this queue, or the queue was dropped
                depths[name] = None
        return every

    def forget(event: Event) -> None:  # the database cannot be reached, which the supervisor reports too
        if not isinstance(event, Recovered):
            depths.update(dict.fromkeys(depths))

    breaker = CircuitBreaker(first_wait=every, armed_wait=every, triggered_wait=every)
    task = PeriodicTask(
        settings,
        ["depths"],
        peek_all,
        name="rowpost display",
        activity="count messages of",
        emit=forget,
        breaker=breaker,
    )
    task.start()
    try:
        yield depths
    finally:
        task.stop()
