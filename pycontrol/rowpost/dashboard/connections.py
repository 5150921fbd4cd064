"""A small pool of connections for the pages, with a time limit for each statement, and the rights of their login."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rowpost.database.connection import Connection, connect
from rowpost.errors import DatabaseUnavailable, RowpostError
from rowpost.operations.rights import Right
from rowpost.settings.environment import Settings
from rowpost.wire.address import parse_address, queue_key

__all__ = ["Busy", "Pool", "Rights"]

SIZE = 4
STATEMENT_MS, LOCK_MS = 10_000, 500
WAIT_S, CHECK_AFTER_S, RIGHTS_S = 5.0, 5.0, 30.0


class Busy(DatabaseUnavailable):
    """All connections of the dashboard are in use."""


@dataclass(frozen=True)
class Rights:
    """What the dashboard's login may do, by the rendered names of procedures."""

    engine: str
    executable: frozenset[str]

    def may(self, right: Right, queue: str = "") -> bool:
        """Return whether the login has a right; `queue` is needed for those of a queue."""
        name = f"{right.value}:{queue_key(parse_address(queue), self.engine)}" if right.of_queue else right.value
        return name in self.executable


class Pool:
    """Connections to one database. Thread-safe. A connection is opened when it is first needed."""

    def __init__(self, settings: Settings, size: int = SIZE, statement_ms: int = STATEMENT_MS) -> None:
        self.settings, self.statement_ms = settings, statement_ms
        self._free = threading.BoundedSemaphore(size)
        self._idle: list[tuple[float, Connection]] = []
        self._lock = threading.Lock()
        self._rights: tuple[float, Rights] | None = None
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection in autocommit.

        Raises:
            Busy: none was free within 5 seconds.
            DatabaseUnavailable, LoginRefused, SchemaMissing, SchemaTooNew: as a first connection does.
        """
        if not self._free.acquire(timeout=WAIT_S):
            raise Busy("The dashboard is busy: all its connections are in use. Load the page again in a few seconds.")
        try:
            database = self._take()
            try:
                yield database
            finally:
                self._give_back(database)
        finally:
            self._free.release()

    def rights(self) -> Rights:
        """Return the rights of the login. The server is asked once in 30 seconds. Raises as `connection` does."""
        known = self._rights
        if known is None or time.monotonic() - known[0] > RIGHTS_S:
            with self.connection() as database, database.translated():
                names = database.dialect.executable(database.driver_connection, tuple(right.value for right in Right))
            known = self._rights = (time.monotonic(), Rights(self.settings.engine, frozenset(names)))
        return known[1]

    def close(self) -> None:
        """Close the idle connections, and those in use when they come back."""
        self._closed = True
        with self._lock:
            idle, self._idle = self._idle, []
        for _, database in idle:
            database.close()

    def _take(self) -> Connection:
        while True:
            with self._lock:
                used_at, database = self._idle.pop() if self._idle else (0.0, None)
            if database is None:
                return self._open()
            if time.monotonic() - used_at < CHECK_AFTER_S:
                return database
            with suppress(RowpostError):  # the server may have restarted: another connection is opened
                database.check_schema()
                return database
            database.close()

    def _open(self) -> Connection:
        database = connect(self.settings, application_name="rowpost dashboard")
        try:
            database.check_schema()
            with database.translated():
                database.dialect.limit_statements(database.driver_connection, self.statement_ms)
            database.limit_lock_waits(LOCK_MS)
        except BaseException:
            database.close()
            raise
        return database

    def _give_back(self, database: Connection) -> None:
        if self._closed or database.closed or database.left_open:
            database.close()
            return
        with self._lock:
            self._idle.append((time.monotonic(), database))
