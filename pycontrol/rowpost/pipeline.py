"""The way of one message: receive, handle, commit; or what happens instead.

    begin -> receive_messages -> (expired: drop) (headers corrupt: move unchanged) -> handler -> commit
    handler raises -> roll back -> record_failure in a transaction of its own -> try again, or move to the error queue

Everything a handler does on the connection it is lent commits or rolls back with the message (seed 001, "Sends atomic
with Receive"). The connection stays ours: a handler that commits, rolls back or closes it has failed, visibly.

Works in any process, no supervisor needed:

    pipeline = Pipeline(connect(settings), "Sales", resolve_handler("shop.handlers:place_order"))
    while pipeline.process_one().kind is not Kind.EMPTY: ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from uuid import UUID

from rowpost.address import parse_address, queue_key
from rowpost.database import Database
from rowpost.errors import (
    DatabaseError,
    DatabaseUnavailable,
    Deadlock,
    HandlerBrokeTransaction,
    MessageCorrupt,
    RowpostError,
)
from rowpost.handlers import Handler
from rowpost.message import Message, decode_headers
from rowpost.queue import Queue
from rowpost.recoverability import Decision, Host, decide, failure_headers

__all__ = ["Kind", "Outcome", "Pipeline"]

CONTROL_MESSAGE = "NServiceBus.ControlMessage"
# How many messages seen failing are remembered, to drop their counts when they succeed (reference I10).
REMEMBERED_FAILURES = 10_000


class Kind(Enum):
    """What became of one receive."""

    HANDLED = "handled"
    EMPTY = "empty"
    FAILED = "failed"
    MOVED_TO_ERROR = "moved_to_error"
    EXPIRED = "expired"
    POISON = "poison"
    # a deadlock victim on receive: try again, nothing is wrong (statement 39)
    VICTIM = "victim"
    # it should have moved to the error queue and could not: somebody has to look (statement 69)
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One receive. `attempts` counts failed attempts so far, `error` says in words what went wrong."""

    kind: Kind
    row_version: int | None = None
    id: UUID | None = None
    attempts: int = 0
    error: str | None = None


EMPTY = Outcome(Kind.EMPTY)
VICTIM = Outcome(Kind.VICTIM)


class Pipeline:
    """Takes messages of one queue through one handler on one connection.

    `attempts` tries before a message moves to `error_queue`. `reconnect` gives a new Database: a second one to
    count failures on, closed when the queue is empty, and another first one after a handler closed it. Without it
    attempts may be exceeded when several workers share the queue, and a closed connection raises
    HandlerBrokeTransaction.
    """

    def __init__(
        self,
        database: Database,
        queue: str,
        handler: Handler,
        *,
        attempts: int = 6,
        error_queue: str = "error",
        reconnect: Callable[[], Database] | None = None,
    ) -> None:
        self.database = database
        self.queue = queue
        self._handler = handler
        self._attempts = attempts
        self._error_queue = error_queue
        self._reconnect = reconnect
        self._key = queue_key(parse_address(queue), database.engine)
        self._host = Host.here(queue)
        self._failed: dict[UUID, None] = {}
        self._aside: Database | None = None

    def process_one(self, anchor: int | None = None) -> Outcome:
        """Receive and handle at most one message, the oldest free one above `anchor` (None: from the start).

        Raises DatabaseUnavailable when the connection is lost (the message is back then) and other RowpostError when
        the queue cannot be received from; an error of the handler is an Outcome, never raised.
        """
        database = self.database
        try:
            rows = database.call("receive_messages", self.queue, begin=True, count=1, anchor=anchor)
        except Deadlock:
            return VICTIM
        if not rows:
            database.commit()
            self.close_aside()
            return EMPTY
        key, row_version, expired, headers, body = rows[0]
        message = Message(key, row_version, expired, headers, body or b"")
        if expired:
            database.commit()
            return Outcome(Kind.EXPIRED, row_version, key)
        try:
            control = message.headers.get(CONTROL_MESSAGE) == "True"
        except MessageCorrupt as error:
            return self._poisoned(message, error)
        return self._handled(message) if control else self._handle(message)

    def _handle(self, message: Message) -> Outcome:
        database = self.database
        try:
            self._handler(message, database.connection)
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever a handler raises is a failed attempt
            return self._raised(message, error)
        except BaseException:
            self._roll_back()
            raise
        if database.closed:
            return self._closed(message, None)
        # SQL Server refuses to commit what is not open; PostgreSQL does not mind, so that it has to be asked before
        if database.engine == "postgresql":
            if not database.in_transaction:
                return self._failed_by(message, self._broken("ended the transaction"), gone=True)
            if database.connection.info.transaction_status.name == "INERROR":
                what = "returned as if nothing had happened after a statement failed, which doomed the transaction"
                return self._failed_by(message, self._broken(what))
        return self._handled(message)

    def _handled(self, message: Message) -> Outcome:
        database = self.database
        try:
            if message.id in self._failed:
                database.call("forget_failure", queue_key=self._key, id=message.id)
                del self._failed[message.id]
            database.commit()
        except DatabaseUnavailable:
            raise
        except RowpostError as error:
            # a deferred constraint, a serialization failure: what the handler did cannot be kept
            if database.in_transaction or isinstance(error, Deadlock):
                self._roll_back()  # before counting: forget_failure may hold the count's row
                return self._failed_by(message, error)
            return self._failed_by(message, self._broken("ended the transaction", error), gone=True)
        return Outcome(Kind.HANDLED, message.row_version, message.id)

    def _raised(self, message: Message, error: BaseException) -> Outcome:
        """The handler raised. An error of SQL Server often rolls back by itself: that is no fault of the handler."""
        database = self.database
        if database.closed:
            return self._closed(message, error)
        if database.in_transaction or (database.engine == "sqlserver" and self._from_database(error)):
            return self._failed_by(message, error)
        return self._failed_by(message, self._broken("ended the transaction", error), gone=True)

    def _from_database(self, error: BaseException) -> bool:
        return isinstance(error, (DatabaseError, self.database.dialect.driver_error()))

    def _closed(self, message: Message, error: BaseException | None) -> Outcome:
        """The connection is gone: lost, or closed by the handler. Either way the server has rolled back."""
        if getattr(self.database.connection, "broken", False):
            text = f"the connection was lost while a message of queue {self.queue!r} was handled"
            raise DatabaseUnavailable(text) from error
        broken = self._broken("closed the connection", error)
        if self._reconnect is None:
            raise broken
        self.database = self._reconnect()
        return self._failed_by(message, broken)

    def _broken(self, what: str, error: BaseException | None = None) -> HandlerBrokeTransaction:
        broken = HandlerBrokeTransaction(
            f"the handler of queue {self.queue!r} {what} that it was lent: what it does on that connection commits "
            "together with the message; let it return or raise, and open a connection of its own for anything else"
        )
        broken.__cause__ = error
        return broken

    def _failed_by(self, message: Message, error: BaseException, *, gone: bool = False) -> Outcome:
        """Count the attempt in a transaction of its own; `gone`: the row may be, so do not wait for another attempt."""
        attempts = self._count_failure(message)
        if gone or decide(attempts, self._attempts, error) is Decision.ERROR:
            return self._move_to_error(message, error, attempts, copy_if_gone=gone)
        self._remember(message.id)
        return Outcome(Kind.FAILED, message.row_version, message.id, attempts, _words(error))

    def _count_failure(self, message: Message) -> int:
        """Attempts with this one; the receiving transaction is rolled back.

        Counted on a second connection while the row is still locked: rolled back first, another worker would have the
        message in hand before it is known that it had its last attempt.
        """
        try:
            if self._aside is None and self._reconnect is not None:
                self._aside = self._reconnect()
            if self._aside is not None:
                return self._record(self._aside, message)
        except DatabaseUnavailable:
            self.close_aside()  # no second connection to be had: then with the first
        finally:
            self._roll_back()
        return self._record(self.database, message)

    def _record(self, database: Database, message: Message) -> int:
        return database.call("record_failure", queue_key=self._key, id=message.id)[0][0]

    def close_aside(self) -> None:
        """Close the second connection, which failures opened."""
        if self._aside is not None:
            self._aside.close()
            self._aside = None

    def _move_to_error(self, message: Message, error: BaseException, attempts: int, *, copy_if_gone: bool) -> Outcome:
        """Take the row again and store it, with the failure's headers, in the error queue: one transaction.

        `copy_if_gone`: the handler ended the transaction itself, so that the row may be gone for good; the error
        queue then gets the copy that is still in memory. Otherwise a row that is gone is with another worker.
        """
        headers = failure_headers(
            decode_headers(message.raw_headers),  # as they came: the handler may have changed message.headers
            error,
            queue=self.queue,
            host=self._host,
            at=datetime.now(UTC),
            message_id=message.message_id,
        )
        database = self.database
        try:
            taken = database.call("receive_message", self.queue, begin=True, row_version=message.row_version)
            if taken or copy_if_gone:
                Queue(self._error_queue, database).send(message.body, headers)
                database.call("forget_failure", queue_key=self._key, id=message.id)
            database.commit()
        except RowpostError as trouble:
            return self._stuck(message, trouble, attempts)
        self._failed.pop(message.id, None)
        kind = Kind.MOVED_TO_ERROR if taken or copy_if_gone else Kind.FAILED
        return Outcome(kind, message.row_version, message.id, attempts, _words(error))

    def _poisoned(self, message: Message, error: MessageCorrupt) -> Outcome:
        """Headers that cannot be read: the row as it is to the error queue, in the receiving transaction (I8)."""
        try:
            Queue(self._error_queue, self.database).send(message.body, message.raw_headers, id=message.id)
            self.database.commit()
        except RowpostError as trouble:
            return self._stuck(message, trouble, 1)
        return Outcome(Kind.POISON, message.row_version, message.id, 1, _words(error))

    def _stuck(self, message: Message, trouble: RowpostError, attempts: int) -> Outcome:
        if isinstance(trouble, DatabaseUnavailable):
            raise trouble
        self._roll_back()
        words = f"message {message.id} of queue {self.queue!r} cannot be moved to {self._error_queue!r}: {trouble}"
        return Outcome(Kind.STUCK, message.row_version, message.id, attempts, words)

    def _roll_back(self) -> None:
        if not self.database.closed:
            self.database.rollback()

    def _remember(self, key: UUID) -> None:
        if len(self._failed) >= REMEMBERED_FAILURES:
            del self._failed[next(iter(self._failed))]
        self._failed[key] = None


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
