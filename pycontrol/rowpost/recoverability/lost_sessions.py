"""Ask the server what became of a session that is over, and of the message that it had received."""

from __future__ import annotations

import time

from rowpost.database.connection import Connection
from rowpost.database.receive_transaction import ReceiveTransaction
from rowpost.errors import DatabaseUnavailable, RowpostError
from rowpost.wire.message import MessageRow

__all__ = ["check_attempt", "is_waiting", "receive_again"]

#: how long the server may take to end the transaction of a dead session, and the time between two attempts to get its
#: message
NOTICED_WITHIN_SECONDS, POLL_SECONDS = 1.0, 0.02


def receive_again(database: Connection, queue: str, row_version: int) -> list[MessageRow]:
    """Receive the message of a dead session, in a transaction that stays open.

    Returns:
        An empty list if the message is not in its queue, the server does not release it in time, or another worker has
        received it. No transaction is open then.
    """
    end = time.monotonic() + NOTICED_WITHIN_SECONDS
    while True:
        rows = database.call("receive_message", queue, begin=True, row_version=row_version)
        if rows:
            return rows
        database.commit()
        if time.monotonic() >= end:
            return []
        time.sleep(POLL_SECONDS)


def is_waiting(database: Connection, queue: str, row_version: int) -> bool:
    """Return whether a message is in its queue, and no other worker has it. Rolls back whatever transaction is open.

    If the server cannot be asked, the message counts as gone: what stores it then opens another connection, and looks
    for the message there.
    """
    try:
        database.rollback()
        with ReceiveTransaction(database):
            waits = bool(database.call("receive_message", queue, begin=True, row_version=row_version))
            database.rollback()
    except RowpostError:
        return False
    return waits


def check_attempt(
    database: Connection | None, queue: str, row_version: int, error: DatabaseUnavailable, seconds: float
) -> Connection:
    """Check that a message may be the cause that its session was over when it was committed, so that this was a failed
    attempt.

    A handler may work longer than the server lets a transaction be idle, or end its session in another way. If that
    were no attempt, the message would be handled for ever.

    Args:
        database: another connection, without an open transaction; None if none can be opened.
        error: what the commit raised.
        seconds: how long ago the message's handler started.

    Returns:
        The connection.

    Raises:
        DatabaseUnavailable: `error`. The server cannot be reached or was started meanwhile, which is not the message's
            doing; or the message is not in its queue: the commit was carried out and only its reply was lost, or
            another worker has the message.
    """
    if database is None or _was_started(database, seconds):
        raise error
    with ReceiveTransaction(database):
        waits = bool(receive_again(database, queue, row_version))
        database.rollback()
    if not waits:
        raise error
    return database


def _was_started(database: Connection, seconds: float) -> bool:
    with database.translated():
        return database.dialect.was_started(database.raw_connection, seconds)
