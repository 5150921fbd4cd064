"""Queues that one session at a time works off, of all processes on all machines."""

from __future__ import annotations

from rowpost.database.connection import Connection

__all__ = ["SingleActiveConsumer"]


class SingleActiveConsumer:
    """One process's claim to a queue, for as long as its connection lives: a lock that ends after its transaction.

    Where no claim is `wanted`, it is held by everybody.
    """

    def __init__(self, queue: str, *, wanted: bool) -> None:
        self.wanted = wanted
        self._queue = queue
        self._holder: Connection | None = None

    def held(self, database: Connection) -> bool:
        """Whether the queue is ours alone; asks for it where it is not. Raises DatabaseError."""
        if self.wanted and self._holder is not database and database.call("acquire_queue", queue_name=self._queue)[0].acquired:
            self._holder = database
        return not self.wanted or self._holder is database
