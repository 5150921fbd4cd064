"""The connection that code on an event loop gets, in the session and transaction of the message or of the bus.

psycopg has a class for it. pyodbc has none: `AwaitedConnection` has the methods of its connection, to be awaited, and
executes each in the thread that waits for the handler.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

from rowpost.database.connection import Connection
from rowpost.handling.event_loop import in_thread

__all__ = ["AwaitedConnection", "AwaitedCursor", "async_connection"]


def async_connection(database: Connection) -> Any:
    """Return the connection for SQL on an event loop: psycopg's `AsyncConnection`, or an `AwaitedConnection`."""
    made = database.async_connection
    return AwaitedConnection(database.driver_connection) if made is None else made


class AwaitedCursor:
    """A cursor of pyodbc whose methods are awaited. `async for` yields its rows."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    async def execute(self, sql: str, *parameters: Any) -> AwaitedCursor:
        """Execute a statement, and return this cursor."""
        await in_thread(self._cursor.execute, sql, *parameters)
        return self

    async def executemany(self, sql: str, parameters: Any) -> None:
        """Execute a statement for each set of parameters."""
        await in_thread(self._cursor.executemany, sql, parameters)

    async def fetchone(self) -> Any:
        """Return the next row; None if there is none."""
        return await in_thread(self._cursor.fetchone)

    async def fetchmany(self, size: int) -> list[Any]:
        """Return the next rows, at most `size`."""
        return await in_thread(self._cursor.fetchmany, size)

    async def fetchall(self) -> list[Any]:
        """Return all rows that are left."""
        return await in_thread(self._cursor.fetchall)

    async def fetchval(self) -> Any:
        """Return the first column of the next row; None if there is none."""
        return await in_thread(self._cursor.fetchval)

    async def nextset(self) -> bool:
        """Go on to the next result. Return whether there is one."""
        return bool(await in_thread(self._cursor.nextset))

    async def close(self) -> None:
        """Close the cursor."""
        await in_thread(self._cursor.close)

    @property
    def description(self) -> Any:
        """The columns of the result, as DB API has them."""
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        """How many rows the last statement changed; -1 if that is not known."""
        return int(self._cursor.rowcount)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (row := await self.fetchone()) is not None:
            yield row

    async def __aenter__(self) -> AwaitedCursor:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.close()


class AwaitedConnection:
    """A connection of pyodbc for code on an event loop. It does not commit: the message's transaction does."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def cursor(self) -> AwaitedCursor:
        """Return a cursor."""
        return AwaitedCursor(self._connection.cursor())

    async def execute(self, sql: str, *parameters: Any) -> AwaitedCursor:
        """Execute a statement, and return its cursor."""
        return AwaitedCursor(await in_thread(self._connection.execute, sql, *parameters))
