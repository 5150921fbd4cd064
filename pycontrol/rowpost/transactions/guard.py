"""Guard the connection that a handler gets: detect a handler that ends the transaction it must not end.

A handler gets the connection on which its message was received, or, with an outbox, the connection to the business database. What
it does there commits together with the message, so it must not commit, roll back or close that connection. `ConnectionGuard` refuses these
calls while a handler runs, if the driver allows that, and records a COMMIT or ROLLBACK in plain SQL.
"""

from __future__ import annotations

from typing import Any, NoReturn

from rowpost.database.connection import Connection
from rowpost.errors import HandlerBrokeTransaction

__all__ = ["ConnectionGuard", "broken_transaction"]


class ConnectionGuard:
    """Guards one connection after the other while handlers run, and tells how a handler ended the transaction.

    Args:
        queue: named in error messages.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._guard: Any = None
        self._connection: Any = None

    def start(self, database: Connection) -> None:
        """Start to guard a connection, until `stop`."""
        connection = database.driver_connection
        if self._connection is not connection:
            self._connection = connection
            self._guard = database.dialect.guard(connection, self._refuse)
        if self._guard is not None:
            self._guard.start()

    def stop(self) -> None:
        """Stop, because the handler has ended. Has no effect if the guard is not active."""
        if self._guard is not None:
            self._guard.stop()

    @property
    def ended(self) -> str | None:
        """Return COMMIT or ROLLBACK if the handler's SQL was seen to end the transaction, else None."""
        return None if self._guard is None else self._guard.ended

    def _refuse(self, verb: str) -> NoReturn:
        raise broken_transaction(self._queue, f"{verb} the transaction or connection")


def broken_transaction(queue: str, what: str, cause: BaseException | None = None) -> HandlerBrokeTransaction:
    """Return the error for a handler that did something to its connection that it must not do.

    Args:
        queue: the handler's queue.
        what: a verb with its object, such as "closed the connection".
        cause: the error that the handler raised.
    """
    error = HandlerBrokeTransaction(
        f"The handler of queue {queue!r} {what} that it was given. What it does on that connection commits together with the "
        "message. Let the handler return or raise instead, and open another connection for anything else."
    )
    error.__cause__ = cause
    return error
