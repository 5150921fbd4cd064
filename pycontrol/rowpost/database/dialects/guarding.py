"""Guard a psycopg connection while a handler uses it: what would end the transaction is refused, or at least noticed.

While a `HandlerGuard` is active, the connection's commit, rollback and close are replaced by functions that raise an
error with an explanation. Its cursors check whether a COMMIT or ROLLBACK in plain SQL has ended the transaction, and
record which of the two it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import psycopg
from psycopg.pq import TransactionStatus

__all__ = ["HandlerGuard"]

_GUARD = "rowpost_guard"
_REFUSED = {"commit": "commits", "rollback": "rolls back", "close": "closes"}
_IDLE = TransactionStatus.IDLE


class HandlerGuard:
    """The guard of one connection, which several handlers use one after the other.

    Attributes:
        refuse: called with the verb of what a handler tried; raises an error.
        ended: the command that ended the transaction, COMMIT or ROLLBACK; None if none did, or none was seen.
    """

    def __init__(self, connection: psycopg.Connection, refuse: Callable[[str], NoReturn]) -> None:
        self.connection = connection
        self.refuse = refuse
        self.ended: str | None = None
        self._guarded: dict[str, Any] = {name: _refusal(refuse, verb) for name, verb in _REFUSED.items()}
        self._guarded[_GUARD] = self
        self._factory = connection.cursor_factory
        if self._factory is psycopg.Cursor:
            self._guarded["cursor_factory"] = _GuardedCursor

    def start(self) -> None:
        """Guard the connection, for one handler."""
        self.ended = None
        self.connection.__dict__.update(self._guarded)

    def stop(self) -> None:
        """Stop guarding. Does nothing if the guard is not active."""
        own = self.connection.__dict__
        if own.pop(_GUARD, None) is not None:
            for name in _REFUSED:
                own.pop(name, None)
            own["cursor_factory"] = self._factory


def _refusal(refuse: Callable[[str], NoReturn], verb: str) -> Callable[[], None]:
    return lambda: refuse(verb)


class _GuardedCursor(psycopg.Cursor):
    """Check after each statement whether the transaction is still open."""

    def execute(self, *arguments: Any, **options: Any) -> _GuardedCursor:
        connection = self.connection
        try:
            super().execute(*arguments, **options)
        except psycopg.Error:
            guard = connection.__dict__.get(_GUARD)
            if guard is not None and connection.pgconn.transaction_status == _IDLE:
                guard.ended = "ROLLBACK"  # a COMMIT that failed
            raise
        if connection.pgconn.transaction_status == _IDLE:
            guard = connection.__dict__.get(_GUARD)
            if guard is not None:
                guard.ended = self.statusmessage
                guard.refuse("ended")
        return self
