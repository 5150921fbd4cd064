"""Find out what a handler did to the transaction that it was given.

    transaction.start(message)
    ...                                         # the handler runs
    transaction.stop()
    if not transaction.can_commit(begin):
        judgement = transaction.judge(error, begin)

All transaction modes with a transaction for the handler use this, on the connection that received the message, and the
outbox uses it on the connection to the business database. A handler must neither end that transaction nor close the
connection, see `transactions.guard`.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Begin
from rowpost.errors import CatalogueError, DatabaseError, DatabaseUnavailable, HandlerBrokeTransaction
from rowpost.transactions.guard import broken_transaction, connection_guard
from rowpost.wire.message import Message

__all__ = ["Fate", "HandlerTransaction", "Judgement"]


class Fate(Enum):
    """What has become of the transaction of a handler that failed, or whose transaction cannot be committed."""

    #: it is open, or the server has rolled it back because of an error; nothing of it is committed
    OPEN = "open"
    #: the handler has rolled it back
    ROLLED_BACK = "rolled back"
    #: the handler has ended it, so that what it did may be committed
    ENDED = "ended"
    #: the handler has closed the connection; the server has rolled back
    CLOSED = "closed"
    #: the connection was lost; the server has rolled back
    LOST = "lost"


class Judgement(NamedTuple):
    """What a handler did to its transaction.

    Attributes:
        fate: what has become of the transaction.
        error: why the attempt has failed. None if the connection was lost and the handler raised nothing.
    """

    fate: Fate
    error: BaseException | None


class HandlerTransaction:
    """The transaction on one connection that handlers of a queue are given, one after the other.

    Args:
        database: the connection.
        queue: the queue's name, for errors.
    """

    def __init__(self, database: Connection, queue: str) -> None:
        self.database = database
        self._queue = queue
        self._guard = connection_guard(database, queue)
        #: whether any handler asked for the driver's connection so far
        self._used = False

    @property
    def ended(self) -> str | None:
        """The command with which the handler ended the transaction, COMMIT or ROLLBACK; None if no such command was
        seen.
        """
        return self._guard.ended

    def start(self, message: Message) -> None:
        """Begin to guard the connection for the handler of a message."""
        database = self.database
        self._guard.start(message, in_place=database.handed_out)
        database.guard = self._guard
        database.lent = False

    def stop(self, *, everything: bool = False) -> DatabaseUnavailable | None:
        """Stop guarding, and undo what the handler changed in its session.

        What it set until the transaction's end stays for its commit, unless `everything` is to be undone, because other
        messages share the transaction.

        Returns:
            The error if the session was over when it was reset.
        """
        database, guard = self.database, self._guard
        self._used |= database.lent
        guard.stop()
        database.guard = None
        changed = guard.changed
        if database.engine == "sqlserver" and not self._used:
            return None  # its guard sees nothing, and takes each handler for one that changed something
        if changed and (everything or changed != {"transaction"}) and not database.closed:
            try:
                database.reset_session(changed)
            except DatabaseUnavailable as lost:
                return lost
        return None

    def can_commit(self, begin: Begin, *, sure: bool) -> bool:
        """Return whether the transaction of a handler that returned is still open and can be committed.

        PostgreSQL's driver knows that. SQL Server must be asked, which costs a round trip. Its COMMIT fails if the
        transaction is not open or another one, so it is asked only if a handler ever used the connection, and only to
        be `sure`: messages share the transaction, or something leaves before its COMMIT.
        """
        if self._guard.ended is not None:
            return False
        if self.database.engine == "sqlserver" and not (sure and self._used):
            return not self.database.closed
        return self.database.is_intact(begin)

    def judge(self, error: BaseException | None, begin: Begin) -> Judgement:
        """Find out what the handler did to its transaction.

        Args:
            error: what the handler raised; None if it returned, but its transaction cannot be committed.
            begin: how the transaction began.
        """
        database, ended = self.database, self._guard.ended
        if database.closed and ended != "COMMIT":
            if getattr(database.raw_connection, "broken", False):
                return Judgement(Fate.LOST, error)
            return Judgement(Fate.CLOSED, broken_transaction(self._queue, "closed the connection", error))
        if ended is None and self._is_open(error, begin):
            what = "returned as if nothing had happened after a statement failed, which doomed the transaction"
            return Judgement(Fate.OPEN, error or broken_transaction(self._queue, what))
        if not isinstance(error, HandlerBrokeTransaction):
            error = broken_transaction(self._queue, "ended the transaction", error)
        return Judgement(Fate.ROLLED_BACK if ended == "ROLLBACK" else Fate.ENDED, error)

    def _is_open(self, error: BaseException | None, begin: Begin) -> bool:
        """Return whether the handler left its transaction open. An error of SQL Server often rolls back by itself."""
        database = self.database
        if database.engine != "sqlserver":
            return database.in_transaction and not (begin == "commit_guarded" and self._was_replaced())
        if error is None or self._was_replaced():
            return False
        from_database = (DatabaseError, CatalogueError, database.dialect.driver_error())
        return isinstance(error, from_database) or database.in_transaction

    def _was_replaced(self) -> bool:
        """Return whether the transaction is another one, which a handler has begun."""
        try:
            with self.database.translated():
                return self._used and self.database.dialect.was_replaced(self.database.raw_connection)
        except DatabaseUnavailable:
            return False  # the server has rolled back
