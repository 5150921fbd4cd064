"""PostgreSQL through asyncpg's connection, which belongs to an event loop and is the caller's.

    Connection.share(LoopBound(connection, loop))        # in another thread than the loop's

Each call waits in its thread until the loop has carried it out. Calls that travel together elsewhere take a round trip
each. Errors become psycopg's, by their SQLSTATE, so that they are explained as all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from rowpost.database.dialects.postgresql.dialect import PostgreSQL
from rowpost.database.dialects.protocol import Begin, Commit, Statement

__all__ = ["LoopBound"]


class LoopBound:
    """A connection of asyncpg that a thread may use.

    Args:
        connection: the connection.
        loop: the event loop to which it belongs, which runs in another thread.
    """

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.connection, self._loop = connection, loop
        self.dialect = LOOP_BOUND

    def run(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        """Wait until the loop has run what `work` makes of the connection.

        Raises:
            psycopg.Error: what the server said, or the loop runs in this thread.
        """
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                raise psycopg.InterfaceError(
                    "A call of asyncpg's connection cannot wait in the thread of its event loop"
                )
        try:
            return asyncio.run_coroutine_threadsafe(work(self.connection), self._loop).result()
        except Exception as error:
            raise _as_psycopg(error) from error

    def execute(self, command: str) -> None:
        """Execute a command without parameters and rows."""
        self.run(lambda connection: connection.execute(command))


class _LoopBoundPostgreSQL(PostgreSQL):
    def session(self, connection: Any) -> Any:
        return connection

    def execute(self, session: Any, statement: Statement, arguments: dict[str, Any], begin: Begin) -> list[Any]:
        if begin:
            self.begin(session)
        values = _values(statement, arguments)
        found = session.run(lambda connection: connection.fetch(statement.text, *values))
        rows = [statement.make_row(record.values()) for record in found] if statement.result_types else []
        if statement.order is not None:
            rows.sort(key=statement.order)
        return rows

    def execute_all(
        self,
        session: Any,
        calls: Sequence[tuple[Statement, dict[str, Any]]],
        begin: Begin,
        commit: Commit,
    ) -> list[list[Any]]:
        if begin:
            self.begin(session)
        found = []
        for place, (statement, arguments) in enumerate(calls):
            try:
                found.append(self.execute(session, statement, arguments, False))
            except psycopg.Error as error:
                error.failed_call = place  # type: ignore[attr-defined]
                raise
        if commit:
            self.commit(session)
        return found

    def join(self, connection: Any) -> bool:
        return self.in_transaction(connection)

    def in_transaction(self, connection: Any) -> bool:
        inside: bool = connection.connection.is_in_transaction()
        return inside

    def begin(self, connection: Any) -> None:
        connection.execute("BEGIN")

    def commit(self, connection: Any) -> None:
        connection.execute("COMMIT")

    def rollback(self, connection: Any) -> None:
        if self.in_transaction(connection):
            connection.execute("ROLLBACK")

    def is_closed(self, connection: Any) -> bool:
        closed: bool = connection.connection.is_closed()
        return closed

    def database_name(self, connection: Any) -> str:
        name: str = connection.run(lambda lent: lent.fetchval("SELECT pg_catalog.current_database()"))
        return name


LOOP_BOUND = _LoopBoundPostgreSQL()


def _values(statement: Statement, arguments: dict[str, Any]) -> list[Any]:
    values: list[Any] = []
    for name, kind in statement.parameters:
        value: Any = arguments.get(name)
        if kind == "messages":
            values += [
                [each.raw_headers for each in value],
                [each.body for each in value],
                _or_none([each.id for each in value]),
                _or_none([each.time_to_be_received_ms for each in value]),
            ]
        else:
            values.append(value)
    return values


def _or_none(values: list[Any]) -> list[Any] | None:
    return values if any(each is not None for each in values) else None


def _as_psycopg(error: Exception) -> Exception:
    """Return an error of asyncpg as psycopg's. Others stay as they are."""
    state = getattr(error, "sqlstate", None)
    if state is None and not isinstance(error, OSError) and not type(error).__module__.startswith("asyncpg"):
        return error
    try:
        kind: type[psycopg.Error] = psycopg.errors.lookup(state or "")
    except KeyError:
        kind = psycopg.DatabaseError if state else psycopg.OperationalError
    hint = getattr(error, "hint", None)
    made = kind(str(error) + (f". {hint}" if hint else ""))
    made.sqlstate = state
    return made
