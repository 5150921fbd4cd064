"""A small pool of connections for work that holds no connection between its transactions: `Connections`.

    connections = Connections(partial(connect, settings), limit=8)
    with connections.borrow() as database:
        database.call("renew_leases", ...)

Several threads share one pool. A connection is returned without an open transaction, or it is closed. A connection that
nobody has borrowed for some seconds is closed too, so that a process whose handlers work for hours holds none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseUnavailable, RowpostError

__all__ = ["DEFAULT_LIMIT", "Connections"]

DEFAULT_LIMIT = 8
#: a connection that was not borrowed for so long is closed
IDLE_S = 5.0
#: how long to wait for a free connection
WAIT_S = 60.0


class Connections:
    """Lends connections to one database. Thread-safe.

    Args:
        connect: opens a connection.
        limit: how many are open at most; who wants one more waits.
        idle_seconds: how long a connection stays open that nobody borrows.
    """

    def __init__(
        self, connect: Callable[[], Connection], limit: int = DEFAULT_LIMIT, *, idle_seconds: float = IDLE_S
    ) -> None:
        self._connect, self._limit, self._idle_seconds = connect, limit, idle_seconds
        self._free = threading.BoundedSemaphore(limit)
        self._changed = threading.Condition()
        #: the connections that nobody has borrowed, with the time of their return; the last one is borrowed first
        self._idle: list[tuple[Connection, float]] = []
        self._closer: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        """Lend a connection for a block. Waits until one is free.

        If the block leaves a transaction open, it is rolled back. A connection that is lost is closed.

        Raises:
            DatabaseUnavailable: no connection can be opened, or none is free for a minute.
        """
        if not self._free.acquire(timeout=WAIT_S):
            raise DatabaseUnavailable(
                f"All {self._limit} connections of this process were in use for {WAIT_S:g} s, such as by blocks of "
                "context.commit(). Keep these blocks short."
            )
        try:
            database = self._take() or self._connect()
            try:
                yield database
            except DatabaseUnavailable:  # pyodbc calls a lost connection open
                database.close()
                raise
            finally:
                self._give_back(database)
        finally:
            self._free.release()

    @property
    def idle(self) -> int:
        """How many open connections nobody has borrowed."""
        with self._changed:
            return len(self._idle)

    def close(self) -> None:
        """Close the connections that nobody has borrowed; the others are closed when they are returned."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for database, _ in idle:
            database.close()

    def _take(self) -> Connection | None:
        with self._changed:
            while self._idle:
                database, _ = self._idle.pop()
                if not database.closed:
                    return database
        return None

    def _give_back(self, database: Connection) -> None:
        if database.closed:
            return
        if _is_open(database):
            with suppress(RowpostError):
                database.rollback()
            if database.closed or _is_open(database):
                database.close()
                return
        with self._changed:
            if not self._closed:
                self._idle.append((database, time.monotonic()))
                self._start_closer()
                return
        database.close()

    # -------------------------------------------------------------- closing what is idle
    def _start_closer(self) -> None:
        if self._closer is None:
            self._closer = threading.Thread(target=self._close_idle, name="rowpost idle connections", daemon=True)
            self._closer.start()

    def _close_idle(self) -> None:
        """Close connections when they were idle for too long; end when there is none."""
        while True:
            with self._changed:
                if not self._idle:
                    self._closer = None
                    return
                wait = self._idle[0][1] + self._idle_seconds - time.monotonic()
                if wait > 0:
                    self._changed.wait(wait)
                    continue
                database, _ = self._idle.pop(0)
            database.close()


def _is_open(database: Connection) -> bool:
    """Return whether a transaction is open, or the connection is lost. SQL Server's driver has to ask the server."""
    if database.engine == "postgresql":
        return database.left_open
    try:
        return database.in_transaction
    except RowpostError:
        database.close()
        return True
