"""Treat a failed attempt to handle a message: count it, then retry the message, delay it, or move it to the error
queue.

`Retries` does this for one queue. Its way of a failed message is, from top to bottom:

    failed          undo the handler's work, count the attempt
    _treat          ask the policy: retry, delay, or error queue
    _move           store a copy where the policy says, remove the row and its count, in one transaction

Attempts are counted in the database, because all workers of a queue share the count. The count is written in a
transaction of its own on a second connection, which is open only while messages fail. For a minute after a failure,
handlers run behind a savepoint. Then a failed handler's work can be undone while the message stays locked, and no other
worker takes a message between its last attempt and its move. `RowState` says in which state the row is.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from uuid import UUID

from rowpost.database.connection import Connection
from rowpost.database.receive_transaction import ReceiveTransaction
from rowpost.errors import (
    DatabaseError,
    DatabaseUnavailable,
    InvalidMessage,
    MessageCorrupt,
    QueueNotFound,
    RowpostError,
)
from rowpost.recoverability.copies import Copy, FailedCopies
from rowpost.recoverability.lost_sessions import check_attempt, receive_again
from rowpost.recoverability.outcome import Kind, Outcome, RowState
from rowpost.recoverability.policy import (
    Decision,
    Failure,
    Host,
    Recoverability,
    Treatment,
    delayed_rounds,
    in_words,
)
from rowpost.recoverability.stopping import STOP
from rowpost.wire.message import Message, decode_headers
from rowpost.wire.outgoing import Call

__all__ = ["Retries", "roll_back"]

logger = logging.getLogger("rowpost")

#: how many failed messages a worker remembers, so that their counts are dropped when they succeed
REMEMBERED_FAILURES = 10_000
#: how long handlers run behind a savepoint after a failure; it costs one more round trip for each message
SAVEPOINTS_FOR_SECONDS = 60.0
#: random, so that no handler rolls back to it by accident or on purpose
SAVEPOINT = f"rowpost_{secrets.token_hex(8)}"
#: states in which the message may exist only in memory, so that a store that fails loses it
_IN_MEMORY = frozenset({RowState.REMOVED, RowState.GONE})


class Retries:
    """Treats the failed messages of one queue.

    Args:
        queue: the queue's name.
        key: names the queue in the counts of failed attempts.
        address: the queue's address in canonical form, for the header FailedQ.
        recoverability: decides whether a message is retried.
        error_queue: where messages go that are not retried.
        host: who handles the messages; None for the queue's endpoint on this machine.
        open_second: opens a second connection to count failures. Without it, a failure is counted after the rollback,
            and other workers may make some attempts too many.
        clock: monotonic time in seconds.
        observers: are called with the error of each failed attempt, before it is counted.
    """

    def __init__(
        self,
        queue: str,
        key: str,
        *,
        address: str,
        recoverability: Recoverability,
        error_queue: str,
        host: Host | None = None,
        open_second: Callable[[], Connection] | None = None,
        clock: Callable[[], float] = time.monotonic,
        observers: Iterable[Callable[[BaseException], None]] = (),
    ) -> None:
        self._queue, self._key = queue, key
        self._observers = tuple(observers)
        self._recoverability, self._error_queue = recoverability, error_queue
        #: builds what is stored of a failed message
        self.copies = FailedCopies(queue, address, error_queue, host)
        self._open_second = open_second
        self._second: Connection | None = None
        self._clock = clock
        self._savepoints_until = float("-inf")
        #: the ids of messages of which a failure was counted, the oldest first
        self.counted: dict[UUID, None] = {}

    # -------------------------------------------------------------- on the way of every message
    def set_savepoint(self, database: Connection) -> RowState:
        """Set a savepoint before a handler runs, if messages failed recently.

        Returns:
            The state of the row if the handler fails now: HELD with a savepoint, else RETURNED.
        """
        if self._clock() >= self._savepoints_until:
            return RowState.RETURNED
        with database.translated():
            database.dialect.savepoint(database.raw_connection, SAVEPOINT)
        return RowState.HELD

    def forget(self, database: Connection, message: Message) -> None:
        """Delete the count of a message that is among `counted` and succeeded, within the receiving transaction."""
        database.call("forget_failure", queue_key=self._key, id=message.id)
        del self.counted[message.id]

    def forget_calls(self, messages: Iterable[Message]) -> list[Call]:
        """Return the calls that `forget` would make for a batch. Call `forgot` when they are committed."""
        return [self._forget_call(message) for message in messages if message.id in self.counted]

    def forgot(self, messages: Iterable[Message]) -> None:
        """Note that the counts of these messages are deleted."""
        for message in messages if self.counted else ():
            self.counted.pop(message.id, None)

    def _forget_call(self, message: Message) -> Call:
        return Call("forget_failure", None, {"queue_key": self._key, "id": message.id})

    # -------------------------------------------------------------- a failed attempt
    def failed(
        self, database: Connection, message: Message, error: BaseException, row: RowState = RowState.RETURNED
    ) -> Outcome:
        """Count a failed attempt and treat the message accordingly. The receiving transaction is over afterwards.

        If the message may exist only in memory (REMOVED, GONE), the attempt is not counted, because nothing depends on
        the count and a count that fails must not lose the message. It moves to the error queue at once.

        Args:
            database: the receiving connection.
            message: the message as it was received.
            error: what the handler raised, or what it did wrong.
            row: where the message's row is. HELD if a savepoint was set before the handler ran.

        Raises:
            DatabaseError: the attempt could not be counted. If `row` is HELD, the receiving transaction is still open.
                The caller's `ReceiveTransaction` rolls it back, so that the message is in its queue again.
        """
        for failed in self._observers:
            failed(error)
        self._savepoints_until = self._clock() + SAVEPOINTS_FOR_SECONDS
        if row in _IN_MEMORY:
            with suppress(RowpostError):  # what stores the message opens another connection if this one is not usable
                roll_back(database)
            failure = self._failure(message, error, 1)
            return self._move(database, message, failure, self.copies.for_error_queue(message, failure), row)
        second = self._get_second()
        if row is RowState.HELD and not (second is not None and self._undo_handler(database)):
            row = RowState.RETURNED
        if second is None:
            roll_back(database)
        attempts = self._count(second or database, message.id, error)
        if row is RowState.RETURNED:
            try:
                roll_back(database)
                lost = database.closed
            except DatabaseUnavailable:  # pyodbc calls the connection open even now
                lost = True
            if lost:  # the server ended the session while the handler ran: the row is in its queue again
                database = second or database
        return self._treat(database, message, self._failure(message, error, attempts), row)

    def session_ended(self, message: Message, error: DatabaseUnavailable, seconds: float) -> Outcome:
        """Treat a message whose commit found that the session was over. Its connection is of no use any more.

        Args:
            message: the message as it was received.
            error: what the commit raised.
            seconds: how long ago its handler started.

        Raises:
            DatabaseUnavailable: `error`, because that was no failed attempt: see `check_attempt`.
        """
        second = check_attempt(self._get_second(), self._queue, message.row_version, error, seconds)
        attempts = self._count(second, message.id, error)
        return self._treat(second, message, self._failure(message, error, attempts), RowState.RETURNED)

    def crashed(self, database: Connection, row_id: UUID, row_version: int, error: BaseException) -> Outcome:
        """Treat a message whose worker process died, or whose connection was lost, while its handler ran.

        That counts as a failed attempt. Otherwise the message would kill one worker or one server process after the
        other.

        Args:
            database: a connection without an open transaction.
            row_id: the id of the message's row.
            row_version: the message's place in its queue.
            error: says how the process died, or that the connection was lost.
        """
        attempts = self._count(database, row_id, error)
        if attempts > self._recoverability.immediate_retries:
            with ReceiveTransaction(database):
                rows = receive_again(database, self._queue, row_version)
                if rows:
                    message = Message.of_row(rows[0])
                    return self._treat(database, message, self._failure(message, error, attempts), RowState.HELD)
        return Outcome(Kind.FAILED, row_version, row_id, attempts, in_words(error))

    def _failure(self, message: Message, error: BaseException, attempts: int) -> Failure:
        headers = decode_headers(message.raw_headers)  # as they arrived: the handler may have changed message.headers
        return Failure(error, attempts, delayed_rounds(headers), headers)

    def _count(self, database: Connection, row_id: UUID, error: BaseException) -> int:
        """Count a failed attempt, and return how many there are.

        Raises:
            DatabaseError: it could not be counted. A deadlock or a lock timeout is raised as DatabaseError too, because
                those are retried without a report, and a message that fails must not be retried unseen.
        """
        try:
            return int(database.call_atomically("record_failure", queue_key=self._key, id=row_id)[0].attempts)
        except RowpostError as trouble:
            self.close_second()
            kind = DatabaseUnavailable if isinstance(trouble, DatabaseUnavailable) else DatabaseError
            raise kind(
                f"A failed attempt at message {row_id} of queue {self._queue!r} could not be counted: "
                f"{in_words(trouble)} The message stays in its queue and is tried again. The attempt had failed with "
                f"{in_words(error)}"
            ) from trouble

    def _undo_handler(self, database: Connection) -> bool:
        """Roll back to the savepoint. Return False if an error of SQL Server doomed or ended the whole transaction."""
        try:
            with database.translated():
                database.dialect.rollback_to(database.raw_connection, SAVEPOINT)
        except RowpostError:
            return False
        return True

    # -------------------------------------------------------------- what to do with the message
    def _treat(self, database: Connection, message: Message, failure: Failure, row: RowState) -> Outcome:
        """Ask the policy what to do with a message whose failed attempt is counted, and do it."""
        treatment = self._ask(message, failure)
        if isinstance(treatment, Outcome):
            roll_back(database)
            return treatment
        return self._move(database, message, failure, self.copies.treated(message, failure, treatment), row)

    def _ask(self, message: Message, failure: Failure) -> Treatment | Outcome:
        """Ask the policy. Return the outcome if the message stays in its queue: it is retried, or the policy fails."""
        try:
            with STOP:
                treatment = self._recoverability.decide(failure)
        except Exception as trouble:  # noqa: BLE001 a user's policy may raise anything
            words = (
                f"Failed to execute recoverability policy for message with native ID: `{message.id}` of queue "
                f"{self._queue!r}: {in_words(trouble)}"
            )
            return Outcome.failed(Kind.UNMOVABLE, message, failure.attempts, words, trouble)
        if treatment.decision is Decision.RETRY:
            self._remember(message.id)
            return Outcome.failed(Kind.FAILED, message, failure.attempts, in_words(failure.error), failure.error)
        return treatment

    # -------------------------------------------------------------- moving the message
    def _move(self, database: Connection, message: Message, failure: Failure, copy: Copy, row: RowState) -> Outcome:
        """Store a copy of the message, and remove its row and its count, in one transaction."""
        try:
            stored = self._store(database, message, copy, row)
        except RowpostError as trouble:
            other = self._other_copy(message, failure, copy, trouble)
            if other is not None:
                roll_back(database)
                return self._move(database, message, failure, other, RowState.RETURNED if row is RowState.HELD else row)
            if row not in _IN_MEMORY:
                return self._unmovable(database, message, trouble, failure.attempts)
            stored = self._rescue(database, message, copy, row, trouble)
            if not stored:
                return self._unmovable(database, message, trouble, failure.attempts)
        self.counted.pop(message.id, None)
        return self._moved(message, failure, copy if stored else Copy(Kind.FAILED))

    def _moved(self, message: Message, failure: Failure, copy: Copy) -> Outcome:
        if copy.discard is not None:
            return Outcome.done(message, copy.discard)._replace(attempts=failure.attempts, exception=failure.error)
        return Outcome.failed(copy.kind, message, failure.attempts, in_words(failure.error), failure.error)

    def _store(self, database: Connection, message: Message, copy: Copy, row: RowState) -> bool:
        """Store a copy, and remove the row, which is received again unless the open transaction holds it.

        Returns:
            False if another worker has received the message meanwhile. Then nothing is stored.
        """
        calls = [*copy.calls, self._forget_call(message)]
        if row is RowState.REMOVED:
            database.call_all(calls, begin=True, commit=True)
            return True
        if row is not RowState.HELD:
            received = database.call("receive_message", self._queue, begin=True, row_version=message.row_version)
            if not received and row is RowState.RETURNED:
                database.commit()
                return False
        database.call_all(calls, commit=True)
        return True

    def _other_copy(self, message: Message, failure: Failure, copy: Copy, trouble: RowpostError) -> Copy | None:
        """Return what to store instead of a copy that the server refused; None if nothing else can be stored."""
        usual = self.copies.for_error_queue(message, failure)
        if isinstance(trouble, QueueNotFound) and _queue_of(copy) != _queue_of(usual):
            return usual  # the queue has no delayed table, or there is no error queue of the policy's name
        unchanged = self.copies.unchanged(message)
        if isinstance(trouble, InvalidMessage) and copy != unchanged:
            self.copies.warn(message, trouble)
            return unchanged
        return None

    def _rescue(self, database: Connection, message: Message, copy: Copy, row: RowState, trouble: RowpostError) -> bool:
        """Try once more to store a message that may exist only in memory, on a new connection; log it if that fails
        too.
        """
        with suppress(RowpostError):
            roll_back(database)
        self.close_second()
        try:
            second = self._get_second()
            if second is not None:
                return self._store(second, message, copy, row)
        except RowpostError as again:
            trouble = again
        finally:
            self.close_second()
        logger.critical(
            "Message %s of queue %r may be lost: its handler failed, the message is no longer in its queue for "
            "certain, and it could not be stored in %r: %s. Store it by hand. Headers: %s Body: %d bytes.",
            message.id, self._queue, self._error_queue, in_words(trouble), message.raw_headers, len(message.body),
        )  # fmt: skip
        return False

    def _unmovable(self, database: Connection, message: Message, trouble: RowpostError, attempts: int) -> Outcome:
        if isinstance(trouble, DatabaseUnavailable):
            raise trouble
        roll_back(database)
        words = (
            f"Message {message.id} of queue {self._queue!r} cannot be moved to {self._error_queue!r}: {trouble} It "
            "stays in its queue, unless its removal was committed, and is tried again."
        )
        return Outcome.failed(Kind.UNMOVABLE, message, attempts, words, trouble)

    # -------------------------------------------------------------- messages with corrupt headers
    def move_corrupt(
        self, database: Connection, message: Message, error: MessageCorrupt, row: RowState = RowState.HELD
    ) -> Outcome:
        """Move a message whose headers cannot be read to the error queue, unchanged.

        Args:
            database: the receiving connection.
            message: the message.
            error: why its headers cannot be read.
            row: HELD in the receiving transaction; REMOVED if the removal is committed already.
        """
        call = self.copies.unchanged(message).call
        try:
            database.call_all([call], begin=row is RowState.REMOVED, commit=True)
        except RowpostError as trouble:
            copy = Copy(Kind.CORRUPT, (call,))
            if not (row is RowState.REMOVED and self._rescue(database, message, copy, row, trouble)):
                return self._unmovable(database, message, trouble, 1)
        return Outcome.failed(Kind.CORRUPT, message, 1, in_words(error), error)

    # -------------------------------------------------------------- the second connection
    def close_second(self) -> None:
        """Close the second connection, which failures opened."""
        if self._second is not None:
            self._second.close()
            self._second = None

    def _get_second(self) -> Connection | None:
        if self._second is not None and self._second.closed:
            self._second = None
        if self._second is None and self._open_second is not None:
            with suppress(RowpostError):  # without a second connection, the receiving connection counts
                self._second = self._open_second()
        return self._second

    def _remember(self, row_id: UUID) -> None:
        if len(self.counted) >= REMEMBERED_FAILURES:
            del self.counted[next(iter(self.counted))]
        self.counted[row_id] = None


def _queue_of(copy: Copy) -> tuple[str, str | None] | None:
    """Return what a copy calls, and for which queue; None if the message is dropped."""
    return (copy.call.procedure, copy.call.queue) if copy.calls else None


def roll_back(database: Connection) -> None:
    """Roll back the open transaction, if any. A closed connection is left alone: the server has rolled back."""
    if not database.closed:
        database.rollback()
