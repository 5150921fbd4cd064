"""Guard the connection that a handler gets: detect a handler that ends the transaction it must not end.

A handler gets the connection on which its message was received, or, with an outbox, the connection to the business
database. What it does there commits together with the message, so it must not commit, roll back or close that
connection. The guard refuses these calls while a handler runs, if the driver allows that, and records a COMMIT or
ROLLBACK in plain SQL. When the handler has ended, what it got refuses to be used.
"""

from __future__ import annotations

from typing import NoReturn

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Guard
from rowpost.errors import HandlerBrokeTransaction, HandlerEnded
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES
from rowpost.wire.message import Message
from rowpost.wire.message_types import first_type

__all__ = ["broken_transaction", "connection_guard", "used_late"]


def connection_guard(database: Connection, queue: str, *, own_transactions: bool = False) -> Guard:
    """Return the guard of a connection for the handlers of a queue. Errors name the queue.

    Args:
        own_transactions: handlers may commit, roll back and close.
    """

    def refuse(verb: str) -> NoReturn:
        raise broken_transaction(queue, f"{verb} the transaction or connection")

    def refuse_late(message: Message | None) -> NoReturn:
        raise used_late("The connection", message, queue)

    return database.dialect.guard(database.raw_connection, None if own_transactions else refuse, refuse_late)


def used_late(what: str, message: Message | None, queue: str) -> HandlerEnded:
    """Return the error for something of a handler's that was used after the handler had ended.

    Args:
        what: such as "The context".
        message: the handler's message; None if it is not known.
        queue: the queue's name.
    """
    kind = "" if message is None else first_type(message.headers.get(ENCLOSED_MESSAGE_TYPES))
    of = "a message" if message is None else f"the message {message.message_id} ({kind or 'no type'})"
    return HandlerEnded(
        f"{what} of {of} of queue {queue!r} was used after its handler had ended, such as by a thread, a generator or "
        "a callback. Nothing was sent or executed. Do this within the handler. For what must happen later, open a "
        "connection and a bus of your own: endpoint.open(…)."
    )


def broken_transaction(queue: str, what: str, cause: BaseException | None = None) -> HandlerBrokeTransaction:
    """Return the error for a handler that did something to its connection that it must not do.

    Args:
        queue: the handler's queue.
        what: a verb with its object, such as "closed the connection".
        cause: the error that the handler raised.
    """
    error = HandlerBrokeTransaction(
        f"The handler of queue {queue!r} {what} that it was given. What it does on that connection commits together "
        "with the message. Let the handler return or raise instead, and open another connection for anything else."
    )
    error.__cause__ = cause
    return error
