"""The way of one message of an endpoint with an outbox: two databases, two local transactions, nothing twice.

    queue      BEGIN, receive the message                                 its row stays locked to the end
    business   BEGIN, find_handled: no               (pessimistic: record_handled, which waits for others)
               the handler works on this connection
               record_handled, store_operations, COMMIT                   from here on it is handled
    queue      record_dispatch, what was sent, COMMIT                     and with that the message is gone
    business   settle_operations                                          together with a later message, or when idle
    queue      forget_dispatch                                            likewise

Whoever dies before the business commit leaves nothing. Whoever dies after it leaves a message that is found handled when
it comes again: what it caused is sent then, and no handler runs. record_dispatch commits with what is sent, so that
two who have the same operations in hand never both send them; one who sends what another stored leaves its dispatch
there for the retention time, since the other may be about to send.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rowpost.database.connection import Connection
from rowpost.errors import (
    AlreadyDispatched,
    AlreadyHandled,
    DatabaseError,
    DatabaseUnavailable,
    Deadlock,
    HandlerBrokeTransaction,
    InvalidMessageId,
    LoginRefused,
    PermissionDenied,
    RowpostError,
    SchemaMissing,
)
from rowpost.outbox.operations import Outbox, decode_operations, encode_operations, named, open_business
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.recoverability.retries import Retries, roll_back
from rowpost.transactions.modes import ConnectionGuard, OneConnection, broke
from rowpost.wire.message import Message
from rowpost.wire.operation import Operation

if TYPE_CHECKING:
    from rowpost.endpoint.endpoint import Endpoint

__all__ = ["OutboxProcessing"]

logger = logging.getLogger("rowpost")

#: what no message is to blame for: it stays in its queue until somebody has mended it
_NOT_THE_MESSAGE = (DatabaseUnavailable, LoginRefused, PermissionDenied, SchemaMissing)
DEADLOCKED = Outcome(Kind.DEADLOCKED)

Call = tuple[str, str | None, dict[str, Any]]


class OutboxProcessing(OneConnection):
    """Handles the messages of one endpoint, one after the other, with one connection to the business database.

    `urls` are the environment's business databases by name; `step` is told how far a message has come.
    """

    def __init__(
        self, endpoint: Endpoint, outbox: Outbox, queue: str, urls: Mapping[str, str], retries: Retries, step: Callable[[str], None]
    ) -> None:
        super().__init__(endpoint.transaction_mode, {})
        self._endpoint, self._outbox, self._queue = endpoint, outbox, queue
        self._url = outbox.find_url(urls)
        self._retries, self._step = retries, step
        self._lender = ConnectionGuard(queue)
        self._business: Connection | None = None
        self._claimed = False
        #: messages whose operations have left, and those of them that are settled in the business database too
        self._dispatched: list[str] = []
        self._settled: list[str] = []

    # -------------------------------------------------------------- what a handler is given
    def home(self, database: Connection) -> Connection:
        """The business database: a handler's connection."""
        return self._business or database

    def enlist(self, participant: Any, database: Connection) -> Any:
        """The business connection, where somebody asks for it by its name."""
        if participant == self._outbox.database and self._business is not None:
            return self._business.driver_connection
        return super().enlist(participant, database)

    # -------------------------------------------------------------- one message
    def handle(self, message: Message, database: Connection) -> Outcome:
        """Handle a message that was received in the open transaction of `database`, which is over afterwards.

        Raises:
            DatabaseUnavailable, SchemaMissing, …: the business database cannot be worked with; the message is back.
        """
        try:
            with named(self._outbox.database):
                business = self._open()
                known = self._find(business, message)
            if known is not None:
                return self._repeat(message, database, business, *known)
            if message.expired:
                business.commit()
                database.commit()
                return Outcome(Kind.EXPIRED, message.row_version, message.id)
            return self._first(message, database, business)
        except InvalidMessageId as error:
            self._undo()
            return self._retries.failed(database, message, error)
        except (Deadlock, AlreadyDispatched):
            self._undo(database)
            return DEADLOCKED
        except BaseException:
            self._undo(database)
            raise

    def _find(self, business: Connection, message: Message) -> tuple | None:
        """Begin the business transaction; what is known of the message, None if nobody has handled it."""
        self._claimed = False
        key = self._key(message.message_id)
        if self._outbox.pessimistic and not message.expired:
            try:
                business.call("record_handled", begin=True, **key)
            except AlreadyHandled:
                business.rollback()
            else:
                self._claimed = True
                self._step("claimed")
                return None
        rows = business.call("find_handled", begin=True, **key)
        self._step("looked up")
        return rows[0] if rows else None

    def _first(self, message: Message, database: Connection, business: Connection) -> Outcome:
        guarded = self._retries.guard(database)
        operations, error, committed = self._run(message, database, business)
        if error is not None:
            roll_back(business)
            return self._retries.failed(database, message, error, guarded=guarded, gone=committed)
        self._step("handled")
        try:
            with named(self._outbox.database):
                self._store(business, message, operations)
        except AlreadyHandled:  # by another worker, meanwhile: what it stored counts
            business.rollback()
            return self._repeat(message, database, business, *business.call("find_handled", begin=True, **self._key(message.message_id))[0])
        except _NOT_THE_MESSAGE:
            raise
        except RowpostError as trouble:  # a deferred constraint, a serialization failure: it cannot be kept
            roll_back(business)
            return self._retries.failed(database, message, trouble, guarded=guarded)
        self._step("stored")
        failed = self._send(message, database, operations)
        if failed is None and operations:
            self._dispatched.append(message.message_id)
        return failed or self._handled(message)

    def _run(
        self, message: Message, database: Connection, business: Connection
    ) -> tuple[list[Operation], BaseException | None, bool]:
        """What the handler wants sent; or what it failed with, and whether it may have committed something."""
        operations: list[Operation] = []
        failure: BaseException | None = None
        self._lender.lend(business)
        try:
            operations = self._endpoint.handle(message, database, self)
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever a handler raises is a failed attempt
            failure = error
        finally:
            self._lender.take_back()
        return operations, *self._judge(business, failure)

    def _judge(self, business: Connection, error: BaseException | None) -> tuple[BaseException | None, bool]:
        """What became of the business transaction in the handler's hands."""
        if business.closed:
            if getattr(business.driver_connection, "broken", False):
                text = f"The connection to the business database {self._outbox.database!r} was lost while a handler ran."
                raise DatabaseUnavailable(text) from error
            return self._broken("closed the connection", error), False
        if self._lender.ended is None and business.in_transaction:
            if error is None and business.engine == "postgresql" and business.driver_connection.info.transaction_status.name == "INERROR":
                return self._broken("returned as if nothing had happened after a statement failed, which doomed the transaction"), False
            return error, False
        if business.engine == "sqlserver" and isinstance(error, (DatabaseError, business.dialect.driver_error())):
            return error, False  # an error of SQL Server often rolls back by itself
        broken = error if isinstance(error, HandlerBrokeTransaction) else self._broken("ended the transaction", error)
        return broken, self._lender.ended != "ROLLBACK"

    def _broken(self, what: str, error: BaseException | None = None) -> HandlerBrokeTransaction:
        broken = broke(self._queue, what)
        broken.__cause__ = error
        return broken

    def _store(self, business: Connection, message: Message, operations: list[Operation]) -> None:
        key = self._key(message.message_id)
        calls: list[Call] = [] if self._claimed else [("record_handled", None, key)]
        if operations:
            calls.append(("store_operations", None, {**key, "operations": encode_operations(operations)}))
        self._settle(business, calls)

    def _repeat(self, message: Message, database: Connection, business: Connection, stored: str | None, age_ms: int) -> Outcome:
        """It was handled before. What has not left is sent now; its row in the outbox is locked meanwhile."""
        if stored is None or message.message_id in self._dispatched:
            business.commit()
            logger.info("%s: message %s was handled before: the duplicate is dropped", self._queue, message.message_id)
            return self._send(message, database, []) or self._handled(message)
        self._step("repeating")
        try:
            failed = self._send(message, database, decode_operations(stored, age_ms))
        except AlreadyDispatched:
            roll_back(database)
            self._settle(business, [("settle_operations", None, self._key(message.message_id))])
            return DEADLOCKED
        if failed is None:
            self._settle(business, [("settle_operations", None, self._key(message.message_id))])
            logger.info("%s: message %s was handled before: what it caused was sent now", self._queue, message.message_id)
            return self._handled(message)
        roll_back(business)
        return failed

    def _send(self, message: Message, database: Connection, operations: list[Operation]) -> Outcome | None:
        """Send and remove the message, in one transaction of the queue's database; the outcome only where that failed."""
        forget = [("forget_dispatch", None, self._key(each)) for each in self._settled]
        try:
            self._retries.forget(database, message)
            if operations:
                record = ("record_dispatch", None, self._key(message.message_id))
                self._endpoint.dispatch(database, operations, commit=True, also=[*forget, record])
            else:
                database.call_all(forget, commit=True) if forget else database.commit()
        except (AlreadyDispatched, *_NOT_THE_MESSAGE):
            raise
        except RowpostError as error:  # no such destination: tried again, without the handler
            return self._retries.failed(database, message, error)
        self._settled = []
        self._step("sent")
        return None

    def _handled(self, message: Message) -> Outcome:
        return Outcome(Kind.HANDLED, message.row_version, message.id)

    def _key(self, message_id: str) -> dict[str, str]:
        return {"endpoint": self._queue, "message_id": message_id}

    # -------------------------------------------------------------- afterwards
    def _settle(self, business: Connection, calls: list[Call], *, begin: bool = False) -> None:
        """Commit, together with what earlier messages have to settle."""
        calls = [*calls, *(("settle_operations", None, self._key(each)) for each in self._dispatched)]
        if calls:
            business.call_all(calls, begin=begin, commit=True)
        else:
            business.commit()
        self._settled += self._dispatched
        self._dispatched = []

    def settle(self, database: Connection) -> None:
        """When idle: settle the last messages in the business database, then forget their dispatches in the queue's."""
        if self._dispatched and self._business is not None:
            with named(self._outbox.database):
                self._settle(self._business, [], begin=True)
            self._step("settled")
        if self._settled:
            database.call_all([("forget_dispatch", None, self._key(each)) for each in self._settled], begin=True, commit=True)
            self._settled = []
            self._step("forgotten")

    def close(self, database: Connection) -> None:
        """Settle if that is still possible, and close the business connection."""
        try:
            if not database.closed and not database.in_transaction:
                self.settle(database)
        except RowpostError:
            logger.debug("%s: the outbox settles later", self._queue, exc_info=True)
        finally:
            if self._business is not None:
                self._business.close()

    # -------------------------------------------------------------- connection
    def _open(self) -> Connection:
        if self._business is not None and self._business.closed:
            self._business = None
        if self._business is None:
            business = open_business(self._url, f"rowpost outbox {self._queue}")
            try:
                self._rehearse(business)
            except BaseException:
                business.close()
                raise
            self._business = business
        return self._business

    def _rehearse(self, business: Connection) -> None:
        """All that a message does to the outbox, undone: what is missing or altered shows before a handler runs."""
        key = self._key(f"rehearsal {uuid4()}")
        calls = [("record_handled", None, key), ("store_operations", None, {**key, "operations": "[]"})]
        business.call_all([*calls, ("find_handled", None, key), ("settle_operations", None, key)], begin=True)
        business.rollback()

    def _undo(self, database: Connection | None = None) -> None:
        """Roll back; a business connection in an unknown state is given up."""
        for each in (self._business, database):
            if each is not None:
                try:
                    roll_back(each)
                except RowpostError:
                    each.close()
