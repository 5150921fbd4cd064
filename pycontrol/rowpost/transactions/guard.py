"""Guard the connection that a handler gets: detect a handler that ends the transaction it must not end.

A handler gets the connection on which its message was received, or, with an outbox, the connection to the business database. What
it does there commits together with the message, so it must not commit, roll back or close that connection. The guard refuses these
calls while a handler runs, if the driver allows that, and records a COMMIT or ROLLBACK in plain SQL.
"""

from __future__ import annotations

from typing import NoReturn

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Guard
from rowpost.errors import HandlerBrokeTransaction

__all__ = ["broken_transaction", "connection_guard"]


def connection_guard(database: Connection, queue: str) -> Guard:
    """Return the guard of a connection for the handlers of a queue. Errors name the queue."""

    def refuse(verb: str) -> NoReturn:
        raise broken_transaction(queue, f"{verb} the transaction or connection")

    return database.dialect.guard(database.driver_connection, refuse)


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
