"""Handle the messages of an endpoint with an outbox: two databases, two local transactions, and each message is handled
once.

`OutboxProcessing` is the transaction mode of such an endpoint (see `pipeline.modes.Mode`). One message takes these
steps:

    queue      BEGIN, receive the message                      its row stays locked until the end
    business   BEGIN, find_handled                             pessimistic: record_handled, which waits for other workers
               the handler runs on this connection
               record_handled, what sagas store,
               store_operations, COMMIT                        from here on the message is handled
    queue      record_dispatch, what was sent, COMMIT          this removes the message
    business   settle_operations                               together with a later message, or when the queue is empty
    queue      forget_dispatch                                 together with a later message, or when the queue is empty

If a worker dies before the business commit, nothing has happened. If it dies after it, the message is received again
and is found to be handled: its outgoing messages are sent, and no handler runs. `record_dispatch` commits together with
the sent messages, so that two workers with the same outgoing messages never both send them. A worker that sends what
another one stored keeps the dispatch for the retention time, because the other one may be about to send.
"""  # noqa: E501

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Begin
from rowpost.errors import (
    AlreadyDispatched,
    AlreadyHandled,
    DatabaseUnavailable,
    Deadlock,
    InvalidMessage,
    InvalidMessageId,
    LoginRefused,
    PermissionDenied,
    RowpostError,
    SchemaMissing,
)
from rowpost.handling.processor import Caused, Receiver
from rowpost.outbox.business import BusinessDatabase
from rowpost.outbox.declaration import decode_outgoing, encode_outgoing, named, open_business
from rowpost.recoverability.outcome import DEADLOCKED, Outcome, RowState
from rowpost.recoverability.policy import in_words
from rowpost.recoverability.retries import roll_back
from rowpost.recoverability.stopping import STOP
from rowpost.transactions.judgement import Fate, HandlerTransaction
from rowpost.wire.headers import RETRY_SUCCESSFUL
from rowpost.wire.message import Message
from rowpost.wire.outgoing import Call, Outgoing

__all__ = ["OutboxProcessing"]

logger = logging.getLogger("rowpost")

#: errors that no message causes: the message stays in its queue until an operator has removed the cause
_NOT_THE_MESSAGE = (DatabaseUnavailable, LoginRefused, PermissionDenied, SchemaMissing)
#: the same while its outgoing messages are sent: there a right that is missing is one to the destination
_NOT_THE_DESTINATION = (DatabaseUnavailable, LoginRefused, SchemaMissing)


class OutboxProcessing:
    """Handles the messages of one endpoint, one after the other, with one connection to the business database.

    Args:
        receiver: what the pipeline and this mode share.
        urls: URLs of the environment's business databases, by name.
    """

    begin: Begin = True
    row = RowState.HELD
    takes_expired = True
    handler_seconds = 0.0

    def __init__(self, receiver: Receiver, urls: Mapping[str, str]) -> None:
        self._processor, self._outbox, self._queue = receiver.processor, receiver.processor.outbox, receiver.queue
        self._url = self._outbox.find_url(urls)
        self._retries, self._step = receiver.retries, receiver.step
        self._database = receiver.database
        self._transaction: HandlerTransaction  # set with the connection to the business database
        self._scope = BusinessDatabase(self._outbox.database, self._processor.transaction_mode)
        #: whether record_handled was called before the handler (pessimistic)
        self._recorded = False
        #: ids of messages whose outgoing messages were sent, and of those that are settled in the business database too
        self._dispatched: list[str] = []
        self._settled: list[str] = []

    @property
    def connections(self) -> Sequence[Connection]:
        """The connection to the business database."""
        return () if self._scope.connection is None else (self._scope.connection,)

    # -------------------------------------------------------------- one message
    def handle(self, message: Message) -> Outcome:
        """Handle a message that was received in the open transaction of the queue's database. It is over afterwards.

        Raises:
            DatabaseError: the business database cannot be reached, or not be used. The message is in its queue again.
        """
        database = self._database
        try:
            with named(self._outbox.database):
                business = self._open()
                known = self._find(business, message)
            if known is not None:
                return self._repeat(message, database, business, *known)
            if message.expired:
                business.commit()
                database.commit()
                return Outcome.expired(message)
            return self._first(message, database, business)
        except (InvalidMessage, InvalidMessageId) as error:
            self._undo()
            return self._retries.failed(database, message, error)
        except (Deadlock, AlreadyDispatched):
            self._undo(database)
            return DEADLOCKED
        except BaseException:
            self._undo(database)
            raise

    def _find(self, business: Connection, message: Message) -> tuple[Any, ...] | None:
        """Begin the business transaction.

        Return the stored outgoing messages and their age, or None if the message was not handled.
        """
        self._recorded = False
        key = self._key(message.message_id)
        if self._outbox.pessimistic and not message.expired:
            try:
                business.call("record_handled", begin=True, **key)
            except AlreadyHandled:
                business.rollback()
            else:
                self._recorded = True
                self._step("claimed")
                return None
        rows = business.call("find_handled", begin=True, **key)
        self._step("looked up")
        return rows[0] if rows else None

    def _first(self, message: Message, database: Connection, business: Connection) -> Outcome:
        row = self._retries.set_savepoint(database)
        caused, error, ended = self._run(message, database, business)
        calls = [each for each in caused.outgoing if isinstance(each, Call)]
        outgoing: list[Outgoing] = [each for each in caused.outgoing if not isinstance(each, Call)]
        if error is not None:
            roll_back(business)
            return self._retries.failed(database, message, error, RowState.GONE if ended else row)
        self._step("handled")
        try:
            with named(self._outbox.database):
                self._store(business, message, calls, outgoing)
        except AlreadyHandled:  # another worker was faster: what it stored is valid
            business.rollback()
            known = business.call("find_handled", begin=True, **self._key(message.message_id))[0]
            return self._repeat(message, database, business, *known)
        except DatabaseUnavailable as trouble:
            return self._session_ended(message, database, business, trouble)
        except _NOT_THE_MESSAGE:
            raise
        except Exception as trouble:  # noqa: BLE001 a deferred constraint, a serialization failure, or what cannot be stored
            roll_back(business)
            return self._retries.failed(database, message, trouble, row)
        self._step("stored")
        failed = self._send(message, database, outgoing)
        if failed is None and outgoing:
            self._dispatched.append(message.message_id)
        return failed or Outcome.done(message, caused.discard)

    def _run(
        self, message: Message, database: Connection, business: Connection
    ) -> tuple[Caused, BaseException | None, bool]:
        """Run the handler.

        Return what it caused, or its error and whether it has ended the business transaction, which may be committed.
        """
        caused, failure = Caused([]), None
        self._transaction.start(message)
        try:
            with STOP:
                caused = self._processor.handle(message, database, self._scope)
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever a handler raises is a failed attempt
            failure = error
        finally:
            self._transaction.stop()  # if the session is over, the commit finds that
        try:
            if failure is None and self._transaction.can_commit(True, sure=True):
                return caused, None, False
            fate, reason = self._transaction.judge(failure, True)
            if fate is Fate.OPEN:
                roll_back(business)
        except DatabaseUnavailable:  # pyodbc learns only now that the connection is lost
            fate, reason = Fate.LOST, failure
        return caused, self._lost(business, failure) if fate is Fate.LOST else reason, fate is Fate.ENDED

    def _lost(self, business: Connection, error: BaseException | None) -> DatabaseUnavailable:
        """Return the error for a lost connection, if another one can be opened: the message itself may have ended the
        first one.

        Raises:
            DatabaseUnavailable: the business database cannot be reached. That is no attempt at the message.
        """
        business.close()
        with named(self._outbox.database):
            self._open()
        said = f"was lost while a handler ran.{f' {in_words(error)}' if error else ''}"
        lost = DatabaseUnavailable(f"The connection to the business database {self._outbox.database!r} {said}")
        lost.__cause__ = error
        return lost

    def _session_ended(
        self, message: Message, database: Connection, business: Connection, trouble: DatabaseUnavailable
    ) -> Outcome:
        """Treat a message whose business transaction found no session at its commit. Raises as `_lost`."""
        lost = self._lost(business, trouble)
        with named(self._outbox.database):
            business = self._open()
            known = self._find(business, message)
        if known is not None:  # the commit was carried out, and only its reply was lost
            return self._repeat(message, database, business, *known)
        self._undo()
        return self._retries.failed(database, message, lost)

    def _store(self, business: Connection, message: Message, sagas: list[Call], outgoing: list[Outgoing]) -> None:
        """Commit what sagas store and the outgoing messages. Of duplicates, one records itself before it stores."""
        key = self._key(message.message_id)
        calls = [*([] if self._recorded else [Call("record_handled", None, key)]), *sagas]
        if outgoing:
            calls.append(Call("store_operations", None, {**key, "operations": encode_outgoing(outgoing)}))
        self._settle(business, calls)

    def _repeat(
        self, message: Message, database: Connection, business: Connection, stored: str | None, age_ms: int
    ) -> Outcome:
        """Treat a message that was handled before: send its outgoing messages now if they were not sent.

        Its outbox row is locked meanwhile.
        """
        acknowledged = self._processor.acknowledge(message.headers)
        if stored is None or message.message_id in self._dispatched:
            business.commit()
            logger.info("%s: message %s was handled before. The duplicate is dropped.", self._queue, message.message_id)
            return self._send(message, database, [], acknowledged) or Outcome.done(message, None)
        self._step("repeating")
        messages = decode_outgoing(stored, age_ms)
        outgoing: list[Outgoing] = [*messages]
        if any(RETRY_SUCCESSFUL in each.headers for each in messages):
            acknowledged = []
        settle = [Call("settle_operations", None, self._key(message.message_id))]
        try:
            failed = self._send(message, database, outgoing, acknowledged)
        except AlreadyDispatched:
            roll_back(database)
            self._settle(business, settle)
            return DEADLOCKED
        if failed is None:
            self._settle(business, settle)
            logger.info(
                "%s: message %s was handled before. Its outgoing messages were sent now.",
                self._queue,
                message.message_id,
            )
            return Outcome.done(message, None)
        roll_back(business)
        return failed

    def _send(
        self, message: Message, database: Connection, outgoing: list[Outgoing], more: Sequence[Outgoing] = ()
    ) -> Outcome | None:
        """Send the outgoing messages, and more that no record is kept of, and remove the message, in one transaction of
        the queue's database.

        Return an outcome if that failed.
        """
        calls = [Call("forget_dispatch", None, self._key(each)) for each in self._settled]
        try:
            if message.id in self._retries.counted:
                self._retries.forget(database, message)
            if outgoing:
                calls.append(Call("record_dispatch", None, self._key(message.message_id)))
            self._processor.dispatch(database, [[*outgoing, *more]], commit=True, also=calls)
        except (AlreadyDispatched, *_NOT_THE_DESTINATION):
            raise
        except Exception as error:  # noqa: BLE001 such as a destination that is missing or not granted: retried without the handler
            return self._retries.failed(database, message, error)
        self._settled = []
        self._step("sent")
        return None

    def _key(self, message_id: str) -> dict[str, str]:
        return {"endpoint": self._queue, "message_id": message_id}

    # -------------------------------------------------------------- afterwards
    def _settle(self, business: Connection, calls: list[Call], *, begin: bool = False) -> None:
        """Commit calls, and settle the outgoing messages of earlier messages with them."""
        calls = [*calls, *(Call("settle_operations", None, self._key(each)) for each in self._dispatched)]
        if calls:
            business.call_all(calls, begin=begin, commit=True)
        else:
            business.commit()
        self._settled += self._dispatched
        self._dispatched = []

    def settle(self) -> None:
        """Settle the last messages in the business database, then delete their dispatches in the queue's database."""
        business = self._scope.connection
        if self._dispatched and business is not None:
            with named(self._outbox.database):
                self._settle(business, [], begin=True)
            self._step("settled")
        if self._settled:
            calls = [Call("forget_dispatch", None, self._key(each)) for each in self._settled]
            self._database.call_all(calls, begin=True, commit=True)
            self._settled = []
            self._step("forgotten")

    def recover(self) -> None: ...

    def close(self) -> None:
        """Settle if that is still possible, and close the connection to the business database."""
        try:
            if not self._database.closed and not self._database.in_transaction:
                self.settle()
        except RowpostError:
            logger.debug("%s: the outbox settles later", self._queue, exc_info=True)
        finally:
            if self._scope.connection is not None:
                self._scope.connection.close()

    # -------------------------------------------------------------- connection
    def _open(self) -> Connection:
        business = self._scope.connection
        if business is None or business.closed:
            business = open_business(self._url, f"rowpost outbox {self._queue}")
            try:
                self._rehearse(business)
            except BaseException:
                business.close()
                raise
            self._scope.connection = business
            self._transaction = HandlerTransaction(business, self._queue)
        return business

    def _rehearse(self, business: Connection) -> None:
        """Make all calls of the outbox and roll back, so that missing or altered objects are found before a handler
        runs.
        """
        key = self._key(f"rehearsal {uuid4()}")
        calls = [Call("record_handled", None, key), Call("store_operations", None, {**key, "operations": "[]"})]
        business.call_all([*calls, Call("find_handled", None, key), Call("settle_operations", None, key)], begin=True)
        business.rollback()

    def _undo(self, database: Connection | None = None) -> None:
        """Roll back both transactions. A connection that cannot roll back is closed."""
        for each in (self._scope.connection, database):
            if each is not None:
                try:
                    roll_back(each)
                except RowpostError:
                    each.close()
