"""Single active consumer: at most one session, of all processes on all machines, receives from a queue."""

from __future__ import annotations

from rowpost.database.connection import Connection

__all__ = ["SingleActiveConsumer"]


class SingleActiveConsumer:
    """The right of one session to receive from a queue, as long as its connection lives.

    The right is a lock of the session. The server releases it after the session's transaction has ended, never before.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._holder: Connection | None = None

    def held(self, database: Connection) -> bool:
        """Return whether this session may receive; requests the lock if it does not have it. Raises DatabaseError."""
        if self._holder is not database and database.call("acquire_queue", queue_name=self._queue)[0].acquired:
            self._holder = database
        return self._holder is database
