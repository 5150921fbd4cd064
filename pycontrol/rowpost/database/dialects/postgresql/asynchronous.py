"""Lend another object for the session of a psycopg connection: an `AsyncConnection` to code on an event loop, and one
with types and cursors of its own to what maps objects to rows.

    lent = lend(connection, guard, cursors)         # of a handler
    ...
    take_back(lent, refuse_late, message)

The thread that owns the connection waits meanwhile, so that the two are never used at once. What a handler gets
refuses to commit, to roll back and to close, its cursors tell the guard what they have executed, and after the
handler's end every use of it raises an error, as in `lending`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import psycopg

from rowpost.database.dialects.postgresql.lending import GUARD, Over, asked_by_handler

__all__ = ["blocking_view", "lend", "lend_mapped", "take_back", "view"]


def view(connection: psycopg.Connection) -> psycopg.AsyncConnection:
    """Return an AsyncConnection on the session of a connection."""
    made: psycopg.AsyncConnection = _on_session_of(connection, _View)
    return made


def blocking_view(connection: psycopg.AsyncConnection) -> psycopg.Connection:
    """Return a Connection on the session of an AsyncConnection, which nobody uses meanwhile."""
    made: psycopg.Connection = _on_session_of(connection, _BlockingView)
    return made


def lend(
    connection: psycopg.Connection, guard: Any, cursors: type[psycopg.AsyncCursor[Any]]
) -> psycopg.AsyncConnection:
    """Return an AsyncConnection on the session of a connection for one handler.

    Args:
        guard: the connection's guard.
        cursors: the class of its cursors.
    """
    lent: psycopg.AsyncConnection = _on_session_of(connection, _Lent)
    lent.__dict__[GUARD] = guard
    if guard.refuse is not None:
        lent.cursor_factory = cursors
    return lent


def lend_mapped(connection: psycopg.Connection, guard: Any, *, types: Any, cursors: type[Any], is_async: bool) -> Any:
    """Return an object of psycopg on the session of a connection for one handler.

    Args:
        guard: the connection's guard.
        types: the object's own adapters of types, which the connection does not get; None: the connection's.
        cursors: the class of its cursors.
        is_async: whether it is for an event loop.
    """
    lent = _on_session_of(connection, _Lent if is_async else _LentMapped)
    lent.__dict__[GUARD] = guard
    lent._adapters = psycopg.adapt.AdaptersMap(connection.adapters if types is None else types)
    lent.cursor_factory = cursors
    return lent


def take_back(lent: Any, refuse: Callable[[Any], NoReturn] | None, message: Any) -> None:
    """End the loan. Every use raises what `refuse` raises when it is called with `message`."""
    lent.__dict__["pgconn"] = Over(refuse, message)


def _on_session_of(connection: Any, kind: type[Any]) -> Any:
    session = connection.pgconn
    handlers = session.notice_handler, session.notify_handler
    made = kind(session)
    session.notice_handler, session.notify_handler = handlers
    made._autocommit = connection.autocommit
    made._prepared = connection._prepared  # the names of prepared statements belong to the session
    return made


class _View(psycopg.AsyncConnection[Any]):
    """Closes nothing when it is forgotten: the session belongs to another object."""

    __module__ = "psycopg"  # by which drivers are told apart

    def __del__(self, *_: Any) -> None: ...


class _BlockingView(psycopg.Connection[Any]):
    __module__ = "psycopg"

    def __del__(self, *_: Any) -> None: ...


class _Lent(_View):
    __module__ = "psycopg"

    @property
    def pgconn(self) -> Any:
        if GUARD in self.__dict__ and asked_by_handler(2):
            self.__dict__[GUARD].raw_handle_taken()
        return self.__dict__["pgconn"]

    @pgconn.setter
    def pgconn(self, session: Any) -> None:
        self.__dict__["pgconn"] = session

    def __repr__(self) -> str:
        return "<AsyncConnection lent to a handler>"

    async def commit(self) -> None:
        self._refuse("commits")
        await super().commit()

    async def rollback(self) -> None:
        self._refuse("rolls back")
        await super().rollback()

    async def close(self) -> None:
        self._refuse("closes")
        await super().close()

    def _refuse(self, verb: str) -> None:
        self.__dict__["pgconn"].status  # noqa: B018 -- raises if the handler has ended
        guard = self.__dict__[GUARD]
        if guard.refuse is not None:
            guard.refuse(verb)


class _LentMapped(_BlockingView):
    __module__ = "psycopg"

    def __repr__(self) -> str:
        return "<Connection lent to a handler>"

    def commit(self) -> None:
        _Lent._refuse(self, "commits")  # type: ignore[arg-type]

    def rollback(self) -> None:
        _Lent._refuse(self, "rolls back")  # type: ignore[arg-type]

    def close(self) -> None:
        _Lent._refuse(self, "closes")  # type: ignore[arg-type]
