"""Own the transaction in which messages are received: every way out of a block ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseError, RowpostError

__all__ = ["receive_transaction"]


@contextmanager
def receive_transaction(get_database: Callable[[], Connection]) -> Iterator[None]:
    """Own the transaction in which messages are received: no way out of the block leaves it open.

    BEGIN and COMMIT travel with the calls inside the block, so that they cost no round trip of their own. Every
    exception rolls back, also one of rowpost's own code: otherwise the next COMMIT on the connection would commit the
    removal of a message that nobody has handled. If the connection cannot roll back, it is closed: then the server does.

    Args:
        get_database: returns the receiving connection. It is called at the end of the block, because a handler that
            closes its connection makes the pipeline open another one.

    Raises:
        DatabaseError: the block ended without an exception and left the transaction open. It was rolled back.
    """
    try:
        yield
    except BaseException:
        _undo(get_database())
        raise
    database = get_database()
    if database.left_open:
        _undo(database)
        raise DatabaseError(
            "A transaction that received messages was neither committed nor rolled back. It was rolled back now, and its "
            "messages are in their queue again. This is a defect of rowpost: please report it."
        )


def _undo(database: Connection) -> None:
    if database.closed:
        return
    try:
        database.rollback()
    except RowpostError:
        database.close()
