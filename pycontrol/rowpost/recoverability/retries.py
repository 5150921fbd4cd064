"""What follows a failed attempt, against the database: count it, then let the message go back or move it.

Attempts are counted in the database, shared by all workers, in a transaction of their own: on a second connection,
which is open only while messages fail. For a while after a failure the handler runs behind a savepoint, so that its
work can be undone while the message stays locked: no other worker takes a message that just had its last attempt.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from rowpost.database.connection import Connection
from rowpost.database.receive_transaction import receive_transaction
from rowpost.errors import (
    DatabaseError,
    DatabaseUnavailable,
    InvalidMessage,
    MessageCorrupt,
    QueueNotFound,
    RowpostError,
)
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.recoverability.policy import (
    Decision,
    Failure,
    Host,
    Recoverability,
    delayed_headers,
    delayed_rounds,
    failure_headers,
    in_words,
)
from rowpost.wire.message import Message, decode_headers, encode_headers

__all__ = ["Retries", "roll_back"]

logger = logging.getLogger("rowpost")

# How many messages seen failing are remembered, to drop their counts when they succeed (reference I10).
REMEMBERED_FAILURES = 10_000
# Seconds after a failure during which handlers run behind a savepoint: one more round trip per message.
WARY_FOR = 60.0
# Seconds: how long the server may take to notice that a killed worker is gone, and how often to look.
NOTICED_WITHIN, LOOK_EVERY = 1.0, 0.02
SAVEPOINT = "rowpost_handler"

Call = tuple[str, str | None, dict[str, Any]]


class Retries:
    """Failed messages of one queue. `key` names the queue in the count; `open_second` gives a second connection.

    Without `open_second` a failure is counted after the roll-back: other workers may make a few attempts too many.
    """

    def __init__(
        self,
        queue: str,
        key: str,
        *,
        recoverability: Recoverability,
        error_queue: str,
        open_second: Callable[[], Connection] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue, self._key = queue, key
        self._recoverability, self._error_queue = recoverability, error_queue
        self._host = Host.here(queue)
        self._open_aside = open_second
        self._aside: Connection | None = None
        self._clock = clock
        self._wary_until = float("-inf")
        self._known: dict[UUID, None] = {}

    def guard(self, database: Connection) -> bool:
        """Set a savepoint before a handler runs, if messages failed lately; whether it did."""
        if self._clock() >= self._wary_until:
            return False
        with database.translated():
            database.dialect.savepoint(database.driver_connection, SAVEPOINT)
        return True

    def forgetting(self, messages: Iterable[Message]) -> list[Call]:
        """The calls of `forget`, for a batch that commits; `forgot` when it has."""
        return [("forget_failure", None, {"queue_key": self._key, "id": m.id}) for m in messages if m.id in self._known]

    def forgot(self, messages: Iterable[Message]) -> None:
        """Their counts are gone."""
        for message in messages if self._known else ():
            self._known.pop(message.id, None)

    def forget(self, database: Connection, message: Message) -> None:
        """Within the receiving transaction: a message seen failing that succeeds leaves no count behind."""
        if message.id in self._known:
            database.call("forget_failure", queue_key=self._key, id=message.id)
            del self._known[message.id]

    def failed(
        self, database: Connection, message: Message, error: BaseException, *, guarded: bool = False, gone: bool = False
    ) -> Outcome:
        """Count the attempt and decide; the receiving transaction is over afterwards.

        `guarded`: the handler ran behind the savepoint. `gone`: the handler ended the transaction, so that the row may
        be gone for good: the message moves at once, out of memory if need be. Then nothing depends on the count, and
        the attempt is not counted: a count that fails must not lose the message.

        Raises:
            DatabaseError: the attempt could not be counted. The receiving transaction is still open if it was `guarded`;
                the caller's `receive_transaction` rolls it back, so that the message is in its queue again.
        """
        self._wary_until = self._clock() + WARY_FOR
        aside = self._get_second()
        held = guarded and aside is not None and self._undo_handler(database)
        if aside is None:
            roll_back(database)
        attempts = 1 if gone else self._count(aside or database, message.id, error)
        if not held:
            roll_back(database)
        return self._treat(database, message, error, attempts, held=held, gone=gone)

    def crashed(self, database: Connection, row_id: UUID, row_version: int, error: BaseException) -> Outcome:
        """A worker died with this message in hand: that is a failed attempt too, or it would kill workers for ever."""
        attempts = self._count(database, row_id, error)
        if attempts > self._recoverability.immediate_retries:
            with receive_transaction(lambda: database):
                rows = self._receive_back(database, row_version)
                if rows:
                    message = Message(*rows[0][:4], rows[0][4] or b"")
                    return self._treat(database, message, error, attempts, held=True)
        return Outcome(Kind.FAILED, row_version, row_id, attempts, in_words(error))

    def _count(self, database: Connection, row_id: UUID, error: BaseException) -> int:
        """Count a failed attempt; returns how many there are.

        Raises:
            DatabaseError: it could not be counted. A deadlock or a lock timeout too is raised as DatabaseError, because
                those are retried without a report, and a message that fails must not be retried unseen.
        """
        try:
            return database.call("record_failure", queue_key=self._key, id=row_id)[0].attempts
        except RowpostError as trouble:
            self.close_second()
            kind = DatabaseUnavailable if isinstance(trouble, DatabaseUnavailable) else DatabaseError
            raise kind(
                f"A failed attempt at message {row_id} of queue {self._queue!r} could not be counted: {in_words(trouble)} "
                f"The message stays in its queue and is tried again. The attempt had failed with {in_words(error)}"
            ) from trouble

    def _receive_back(self, database: Connection, row_version: int) -> list[tuple]:
        """The message of a dead worker, in a transaction that stays open; nothing if another worker has it already."""
        end = time.monotonic() + NOTICED_WITHIN
        while True:
            rows = database.call("receive_message", self._queue, begin=True, row_version=row_version)
            if rows:
                return rows
            database.commit()
            if time.monotonic() >= end:
                return []
            time.sleep(LOOK_EVERY)

    def _treat(
        self, database: Connection, message: Message, error: BaseException, attempts: int, *, held: bool, gone: bool = False
    ) -> Outcome:
        """Decide what becomes of a message whose failed attempt is counted, and do it."""
        headers = decode_headers(message.raw_headers)  # as they came: the handler may have changed message.headers
        failure = Failure(error, attempts, delayed_rounds(headers), headers)
        if gone:
            return self._move(database, message, failure, self._build(message, self._to_error_queue, error), held=held, gone=True)
        try:
            decision, delay = self._recoverability.decide(failure)
            decision = Decision(decision)
        except Exception as trouble:  # noqa: BLE001 a user's policy may raise anything (statement 69)
            roll_back(database)
            return self._undecided(message, attempts, trouble)
        if decision is Decision.ERROR:
            return self._move(database, message, failure, self._build(message, self._to_error_queue, error), held=held)
        if decision is Decision.DELAY:
            return self._move(database, message, failure, self._build(message, self._later, failure, delay), held=held)
        roll_back(database)
        self._remember(message.id)
        return Outcome(Kind.FAILED, message.row_version, message.id, attempts, in_words(error))

    def _undecided(self, message: Message, attempts: int, trouble: BaseException) -> Outcome:
        """The policy itself failed: somebody has to look; the message is tried again (reference I6)."""
        words = (
            f"Failed to execute recoverability policy for message with native ID: `{message.id}` of queue "
            f"{self._queue!r}: {in_words(trouble)}"
        )
        return Outcome(Kind.UNMOVABLE, message.row_version, message.id, attempts, words)

    def discarding(self, message: Message) -> Call:
        """The call that stores a message whose headers cannot be read in the error queue, as it is (I8)."""
        return ("send_message", self._error_queue, {"headers": message.raw_headers, "body": message.body, "id": message.id})

    def poisoned(self, database: Connection, message: Message, error: MessageCorrupt) -> Outcome:
        """Headers that cannot be read: the row as it is to the error queue, in the receiving transaction (I8)."""
        try:
            database.call_all([self.discarding(message)], commit=True)
        except RowpostError as trouble:
            return self._stuck(database, message, trouble, 1)
        return Outcome(Kind.POISON, message.row_version, message.id, 1, in_words(error))

    def close_second(self) -> None:
        """Close the second connection, which failures opened."""
        if self._aside is not None:
            self._aside.close()
            self._aside = None

    def _get_second(self) -> Connection | None:
        if self._aside is not None and self._aside.closed:
            self._aside = None
        if self._aside is None and self._open_aside is not None:
            with suppress(RowpostError):  # without a second connection, whatever the reason, the first one counts
                self._aside = self._open_aside()
        return self._aside

    def _undo_handler(self, database: Connection) -> bool:
        """Back to the savepoint; False where an error of SQL Server doomed or ended the whole transaction."""
        try:
            with database.translated():
                database.dialect.rollback_to(database.driver_connection, SAVEPOINT)
        except RowpostError:
            return False
        return True

    def _move(
        self,
        database: Connection,
        message: Message,
        failure: Failure,
        store: tuple[Kind, Call],
        *,
        held: bool,
        gone: bool = False,
    ) -> Outcome:
        """Store the message where it goes from here, and remove its row and its count: one transaction.

        `held`: the row is still ours. Else it is taken again, and if it is gone another worker has it, or, with
        `gone`, its removal was committed before: then what is stored is the copy in memory.
        """
        kind, call = store
        try:
            if not held:
                held = bool(database.call("receive_message", self._queue, begin=True, row_version=message.row_version))
            if held or gone:
                forget: Call = ("forget_failure", None, {"queue_key": self._key, "id": message.id})
                database.call_all([call, forget], commit=True)
            else:
                database.commit()
        except QueueNotFound as trouble:
            if kind is not Kind.DELAYED:
                return self._stuck(database, message, trouble, failure.attempts)
            roll_back(database)  # this queue has no delayed table: there is no later
            return self._move(
                database, message, failure, self._build(message, self._to_error_queue, failure.error), held=False
            )
        except InvalidMessage as trouble:
            bare = (Kind.MOVED_TO_ERROR, self.discarding(message))
            if store == bare:
                return self._stuck(database, message, trouble, failure.attempts)
            roll_back(database)
            self._warn_bare(message, trouble)
            return self._move(database, message, failure, bare, held=False, gone=gone)
        except RowpostError as trouble:
            return self._stuck(database, message, trouble, failure.attempts)
        self._known.pop(message.id, None)
        return Outcome(
            kind if held or gone else Kind.FAILED, message.row_version, message.id, failure.attempts, in_words(failure.error)
        )

    def _build(self, message: Message, store: Callable[..., tuple[Kind, Call]], *details: Any) -> tuple[Kind, Call]:
        """Return what `store` makes of the message; if it raises, the call that moves the message as it is.

        A message that cannot be moved with the text of its error would be tried for ever, and would block its queue.
        """
        try:
            return store(message, *details)
        except Exception as trouble:  # noqa: BLE001 headers, errors and delays are anybody's
            self._warn_bare(message, trouble)
            return Kind.MOVED_TO_ERROR, self.discarding(message)

    def _warn_bare(self, message: Message, trouble: BaseException) -> None:
        text = "Message %s of queue %r moves to %r without the headers of its failure, which cannot be stored: %s"
        logger.warning(text, message.id, self._queue, self._error_queue, in_words(trouble))

    def _to_error_queue(self, message: Message, error: BaseException) -> tuple[Kind, Call]:
        headers = failure_headers(
            decode_headers(message.raw_headers),
            error,
            queue=self._queue,
            host=self._host,
            at=datetime.now(UTC),
            message_id=str(message.id),
        )
        content = {"headers": encode_headers(headers), "body": message.body}
        return Kind.MOVED_TO_ERROR, ("send_message", self._error_queue, content)

    def _later(self, message: Message, failure: Failure, delay: timedelta) -> tuple[Kind, Call]:
        headers = delayed_headers(
            decode_headers(message.raw_headers), failure.delayed + 1, datetime.now(UTC), delay, str(message.id)
        )
        content = {"headers": encode_headers(headers), "body": message.body}
        return Kind.DELAYED, ("delay_message", self._queue, {**content, "delay_ms": -(delay // timedelta(milliseconds=-1))})

    def _stuck(self, database: Connection, message: Message, trouble: RowpostError, attempts: int) -> Outcome:
        if isinstance(trouble, DatabaseUnavailable):
            raise trouble
        roll_back(database)
        words = f"message {message.id} of queue {self._queue!r} cannot be moved to {self._error_queue!r}: {trouble}"
        return Outcome(Kind.UNMOVABLE, message.row_version, message.id, attempts, words)

    def _remember(self, key: UUID) -> None:
        if len(self._known) >= REMEMBERED_FAILURES:
            del self._known[next(iter(self._known))]
        self._known[key] = None


def roll_back(database: Connection) -> None:
    """Roll back what is open; a connection that is gone has rolled back by itself."""
    if not database.closed:
        database.rollback()
