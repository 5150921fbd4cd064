"""Handle a message within the transaction that received it: run the handler, then commit or treat the failed attempt.

`WithinTransaction` is what the modes with a receiving transaction share. It runs the handler on the guarded connection
and finds out whether its transaction can be committed. Then it commits, or leaves the failed attempt to
`recoverability.retries`. Its subclasses say what is sent when. The caller's `ReceiveTransaction` owns the transaction:
no exception leaves it open.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Begin
from rowpost.errors import DatabaseUnavailable, Deadlock, SagaConflict
from rowpost.handling.processor import Caused, Receiver
from rowpost.recoverability.lost_sessions import is_waiting
from rowpost.recoverability.outcome import DEADLOCKED, InterruptedAttempt, Outcome, RowState
from rowpost.recoverability.policy import in_words
from rowpost.recoverability.retries import roll_back
from rowpost.recoverability.stopping import STOP
from rowpost.transactions.guard import broken_transaction
from rowpost.transactions.judgement import Fate, HandlerTransaction
from rowpost.transactions.scope import OneDatabase, Scope
from rowpost.wire.message import Message
from rowpost.wire.outgoing import Outgoing

__all__ = ["LONG_SECONDS", "ReceiveOnly", "SendsAtomicWithReceive", "WithinTransaction"]

logger = logging.getLogger("rowpost")

#: a handler that holds its transaction for longer is warned of
LONG_SECONDS = 30.0


class WithinTransaction:
    """The modes in which the removal of a message commits together with the SQL of its handler.

    Subclasses say what is sent when. `attempt` serves `pipeline.batches` too.
    """

    name: str
    begin: Begin = True
    row = RowState.HELD
    takes_expired = False
    connections: Sequence[Connection] = ()
    #: whether what was sent commits before the removal of the message does
    sends_first = False

    def __init__(self, receiver: Receiver, scope: Scope | None = None) -> None:
        self._receiver = receiver
        self._scope = scope or OneDatabase(self.name)
        self._transaction = HandlerTransaction(receiver.database, receiver.queue)
        self.handler_seconds = 0.0

    # -------------------------------------------------------------- success
    def handle(self, message: Message) -> Outcome:
        """Run the handler and commit, or treat the failed attempt."""
        receiver = self._receiver
        row = receiver.retries.set_savepoint(receiver.database) if self.begin is True else RowState.RETURNED
        result = self.attempt(message, row)
        return result if isinstance(result, Outcome) else self.commit(message, result)

    def attempt(self, message: Message, row: RowState, *, batched: bool = False) -> Caused | Outcome:
        """Run the handler on the guarded connection.

        Args:
            message: the message.
            row: the state of its row if the handler fails: HELD with a savepoint, else RETURNED.
            batched: the transaction is commit-guarded and contains other messages too.

        Returns:
            What the handler caused, if its transaction can be committed. Else the outcome of the failed attempt; then
            the transaction is over.
        """
        receiver, database = self._receiver, self._receiver.database
        if database is not self._transaction.database:  # a handler closed the one before
            self._transaction = HandlerTransaction(database, receiver.queue)
        self._transaction.start(message)
        started = time.perf_counter()
        try:
            with STOP:
                caused = receiver.processor.handle(message, database, self._scope)
            if caused.outgoing:  # in a batch, the next message may belong to the same saga
                caused.outgoing = (receiver.processor.store if batched else self._before_send)(
                    database, caused.outgoing
                )
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever a handler raises is a failed attempt
            self._handler_ended(batched)
            return self._failed(message, error, row, batched)
        except BaseException:
            self._handler_ended(batched)
            roll_back(database)
            raise
        self.handler_seconds = time.perf_counter() - started
        if self.handler_seconds > LONG_SECONDS:
            self._warn(message)
        lost = self._handler_ended(batched)
        for step in receiver.steps:
            step("handled")
        sure = batched or (self.sends_first and bool(caused.outgoing))
        if self._transaction.can_commit("commit_guarded" if batched else self.begin, sure=sure):
            return caused
        return self._failed(message, lost, row, batched)

    def commit(self, message: Message, caused: Caused) -> Outcome:
        """Commit the removal, the handler's SQL and, depending on the mode, what was sent."""
        receiver, database = self._receiver, self._receiver.database
        try:
            if message.id in receiver.retries.counted:
                receiver.retries.forget(database, message)
            outgoing = self._before_commit(database, caused.outgoing)
            for step in receiver.steps:
                step("before commit")
            if outgoing:
                receiver.processor.dispatch(database, [outgoing], commit=True)
            else:
                database.commit()
        except DatabaseUnavailable as lost:
            return self._session_ended(message, lost)
        except Exception as error:  # noqa: BLE001 whatever a message makes the commit raise is a failed attempt at it
            return self._commit_failed(message, error)
        for step in receiver.steps:
            step("committed")
        self._after_commit()
        return Outcome.done(message, caused.discard)

    def _warn(self, message: Message) -> None:
        """Warn of a handler that has held its transaction for long."""
        logger.warning(
            "The handler of message %s of queue %r has held its transaction for %.0f s. Meanwhile, dead rows that are "
            "newer than it stay in every table of the database. Give the endpoint receive='lease', which holds no "
            "transaction while a handler works.",
            message.message_id,
            self._receiver.queue,
            self.handler_seconds,
        )

    # -------------------------------------------------------------- what differs by mode
    def _before_send(self, database: Connection, outgoing: list[Outgoing]) -> list[Outgoing]:
        """Make calls that must not wait for the commit. Part of the attempt: if it fails, the attempt has failed."""
        return outgoing

    def _before_commit(self, database: Connection, outgoing: list[Outgoing]) -> list[Outgoing]:
        """Do what comes before the commit, and return what is sent together with it."""
        return outgoing

    def _after_commit(self) -> None: ...

    def _handler_ended(self, batched: bool) -> DatabaseUnavailable | None:
        """Stop guarding the connection. Return the error if the session was over when it was reset."""
        return self._transaction.stop(everything=batched)

    # -------------------------------------------------------------- failure
    def _failed(self, message: Message, error: BaseException | None, row: RowState, batched: bool) -> Outcome:
        """Find out what the handler did to its transaction, and treat the failed attempt.

        Args:
            message: the message.
            error: what the handler raised; None if it returned, but its transaction cannot be committed.
            row: the state of the row, if the handler left the transaction open.
            batched: the transaction is commit-guarded and contains other messages too.
        """
        receiver, database = self._receiver, self._receiver.database
        if (
            batched
            and error is not None
            and not database.closed
            and self._transaction.ended != "COMMIT"
            and self._is_conflict(error)
        ):
            roll_back(database)  # the locks of the batch's other messages may be the cause: alone it may succeed
            return DEADLOCKED
        fate, error = self._transaction.judge(error, "commit_guarded" if batched else self.begin)
        if fate is Fate.LOST or error is None:
            raise self._lost(message, error) from error
        if fate is Fate.CLOSED:
            return self._closed(message, error)
        if fate is Fate.ROLLED_BACK:
            row = RowState.RETURNED
        elif fate is Fate.ENDED:
            row = RowState.GONE
            if batched:
                receiver.broken = error  # its messages may be in no queue
                row = RowState.RETURNED if is_waiting(database, receiver.queue, message.row_version) else RowState.GONE
        outcome = receiver.retries.failed(database, message, error, row)
        if database.closed:  # the roll back has found that the server had ended the session
            self._replace(database)
        return outcome

    def _lost(self, message: Message, error: BaseException | None) -> DatabaseUnavailable:
        """Return the error for a lost connection, which cannot count the attempt.

        The worker does that on its next connection, because the message itself may be the cause: a query can end its
        server process.
        """
        said = "" if error is None else f" {in_words(self._translated(error))}"
        lost = DatabaseUnavailable(
            f"The connection was lost while a message of queue {self._receiver.queue!r} was handled.{said}"
        )
        self._receiver.interrupted = InterruptedAttempt(message.id, message.row_version, lost)
        return lost

    def _closed(self, message: Message, broken: BaseException) -> Outcome:
        """Treat a message whose handler closed the connection: the server has rolled back."""
        receiver = self._receiver
        if receiver.reconnect is None:
            raise broken
        receiver.database = receiver.reconnect()
        return receiver.retries.failed(receiver.database, message, broken)

    def _session_ended(self, message: Message, lost: DatabaseUnavailable) -> Outcome:
        """Treat a message whose commit found no session, because the server has ended it.

        Raises `lost` if the message is not the cause.
        """
        receiver, database = self._receiver, self._receiver.database
        if receiver.reconnect is None or (database.engine == "postgresql" and not database.closed):
            raise lost
        outcome = receiver.retries.session_ended(message, lost, self.handler_seconds)
        self._replace(database)
        return outcome

    def _replace(self, database: Connection) -> None:
        """Open another receiving connection instead of one that is lost."""
        if self._receiver.reconnect is not None:
            database.close()
            self._receiver.database = self._receiver.reconnect()

    def _commit_failed(self, message: Message, error: Exception) -> Outcome:
        """Treat a message that could not be committed: a deferred constraint, a serialization failure, or what cannot
        be sent.
        """
        database, retries = self._receiver.database, self._receiver.retries
        if database.in_transaction or self._rolled_back_by_server(error):
            roll_back(database)  # before counting: forget_failure may hold a lock on the count's row
            return retries.failed(database, message, error)
        return retries.failed(
            database, message, broken_transaction(self._receiver.queue, "ended the transaction", error), RowState.GONE
        )

    def _rolled_back_by_server(self, error: Exception) -> bool:
        """Return whether a failed commit has rolled back the transaction that the handler left open.

        On PostgreSQL it was open, because `_can_commit` has asked. SQL Server rolls back a batch that fails, such as a
        send to a missing queue. Its error 3902 says that COMMIT found no transaction.
        """
        return not self._receiver.database.dialect.found_no_transaction(error.__cause__)

    def _is_conflict(self, error: BaseException) -> bool:
        return isinstance(self._translated(error), (Deadlock, SagaConflict))

    def _translated(self, error: BaseException) -> BaseException:
        dialect = self._receiver.database.dialect
        return dialect.translate(error) if isinstance(error, dialect.driver_error()) else error

    # -------------------------------------------------------------- outside of messages
    def settle(self) -> None: ...
    def recover(self) -> None: ...
    def close(self) -> None: ...


class SendsAtomicWithReceive(WithinTransaction):
    """Mode `sends_atomic_with_receive`: the removal, the handler's SQL and what was sent commit together."""

    name = "sends_atomic_with_receive"


class ReceiveOnly(WithinTransaction):
    """Mode `receive_only`: what was sent commits on a second connection, just before the removal of the message."""

    name = "receive_only"
    sends_first = True

    def _before_send(self, database: Connection, outgoing: list[Outgoing]) -> list[Outgoing]:
        return self._receiver.processor.store(database, outgoing)

    def _before_commit(self, database: Connection, outgoing: list[Outgoing]) -> list[Outgoing]:
        if outgoing:
            self._receiver.processor.dispatch(database.second_connection(), [outgoing], begin=True, commit=True)
            for step in self._receiver.steps:
                step("sent")
        return []
