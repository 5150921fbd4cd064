"""Own the transaction in which messages are received: every way out of a block ends it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseError, RowpostError

__all__ = ["ReceiveTransaction", "Receiving"]


class Receiving(Protocol):
    """Whatever receives messages on a connection, which may be replaced."""

    database: Connection


@dataclass
class _Fixed:
    database: Connection


class ReceiveTransaction(AbstractContextManager["ReceiveTransaction", None]):
    """Owns the transaction in which messages are received: no way out of a `with` block leaves it open.

    The first call of the block begins the transaction: BEGIN and COMMIT travel with calls, so that they cost no round
    trip of their own. Every exception rolls back, also one of rowpost's own code: otherwise the next COMMIT on the
    connection would commit the removal of a message that nobody has handled. If the connection cannot roll back, it is
    closed: then the server does. The object can be entered again and again.

    Args:
        receiving: a connection, or what has the receiving connection at the end of the block: a handler that closes its
            connection makes the pipeline open another one.

    Raises:
        DatabaseError: the block ended without an exception and left the transaction open. It was rolled back.
    """

    def __init__(self, receiving: Receiving | Connection) -> None:
        self._receiving = _Fixed(receiving) if isinstance(receiving, Connection) else receiving

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        database = self._receiving.database
        if kind is not None:
            _undo(database)
        elif database.left_open:
            _undo(database)
            raise DatabaseError(
                "A transaction that received messages was neither committed nor rolled back. It was rolled back now, "
                "and its messages are in their queue again. This is a defect of rowpost: please report it."
            )


def _undo(database: Connection) -> None:
    if database.closed:
        return
    try:
        database.rollback()
    except RowpostError:
        database.close()
