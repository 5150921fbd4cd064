"""Say that a queue is gone: its procedures are missing, and without a look at the queues this looks like a missing feature."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rowpost.database.connection import Connection
from rowpost.errors import QueueNotFound, RowpostError

__all__ = ["naming_what_is_gone"]


@contextmanager
def naming_what_is_gone(database: Connection, queue: str | None) -> Iterator[None]:
    """Raise QueueNotFound with a text of its own if the block raises it, and the database does not have the queue.

    The block contains the transactions in which it calls, so that the queues can be listed after an error.
    """
    try:
        yield
    except QueueNotFound as error:
        if queue is None or _exists(database, queue):
            raise
        raise QueueNotFound(
            f"No queue named {queue!r} is in this database: it was dropped or removed, or its name is misspelt. `rowpost queue list` shows the queues. "
            "What a stream of a removed queue has read is kept. If the queue is created again, a stream does not continue by itself, and says how to start."
        ) from error


def _exists(database: Connection, queue: str) -> bool:
    """Whether the queue is registered. True if that cannot be told: then the first error is the better one."""
    try:
        return queue in {row.queue_name for row in database.call("list_queues")}
    except RowpostError:
        return True
