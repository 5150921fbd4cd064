"""Treat a failed attempt at a leased message: `LeaseRetries`.

One transaction does all of it. It puts the message back into its queue, counts the attempt, and removes the message again
if the policy delays it or moves it to the error queue. So a message whose lease is lost is neither moved nor counted,
and no other worker takes a message between its last attempt and its move.
"""  # noqa: E501

from __future__ import annotations

import time
from typing import NamedTuple
from uuid import UUID

from rowpost.database.connection import Connection
from rowpost.database.receive_transaction import ReceiveTransaction
from rowpost.errors import DatabaseUnavailable, MessageCorrupt, QueueNotFound, RowpostError
from rowpost.recoverability.copies import Copy
from rowpost.recoverability.lost_sessions import NOTICED_WITHIN_SECONDS, POLL_SECONDS, is_waiting
from rowpost.recoverability.outcome import EMPTY, Kind, Outcome
from rowpost.recoverability.policy import Failure, in_words
from rowpost.recoverability.retries import Retries, roll_back
from rowpost.wire.message import Message
from rowpost.wire.outgoing import Call

__all__ = ["ExpiredLease", "LeaseRetries"]


class ExpiredLease(NamedTuple):
    """A lease that has expired.

    Attributes:
        owner: who held it: host, process and slot.
        outcome: what happened to its message.
    """

    owner: str
    outcome: Outcome


class LeaseRetries(Retries):
    """Treats the failed messages of a queue whose messages are leased."""

    def failed_lease(self, database: Connection, message: Message, token: UUID, error: BaseException) -> Outcome:
        """Count a failed attempt and treat the message accordingly, if the lease still exists.

        Args:
            database: a connection without an open transaction.
            message: the message as it was received.
            token: of its lease.
            error: what the handler raised, or what it did wrong.

        Raises:
            LeaseLost: nothing was counted or moved.
            DatabaseError: the same; the message stays leased until the lease expires.
        """
        for failed in self._observers:
            failed(error)
        back = Call("return_lease", self._queue, {"token": token})
        with ReceiveTransaction(database):
            database.call_all([back], begin=True)
            return self._treat_returned(database, message, error, back)

    def give_back(self, database: Connection, token: UUID) -> None:
        """Put a message back into its queue; no attempt is counted. Raises LeaseLost."""
        database.call_all([Call("return_lease", self._queue, {"token": token})], begin=True, commit=True)

    def move_corrupt_lease(self, database: Connection, message: Message, token: UUID, error: MessageCorrupt) -> Outcome:
        """Move a leased message whose headers cannot be read to the error queue, unchanged.

        Raises:
            RowpostError: it stays leased until the lease expires.
        """
        end = Call("end_lease", self._queue, {"token": token})
        database.call_all([end, self.copies.unchanged(message).call], begin=True, commit=True)
        return Outcome.failed(Kind.CORRUPT, message, 1, in_words(error))

    def return_expired(self, database: Connection) -> ExpiredLease | None:
        """Treat the message whose lease expired first as a failed attempt. Return None if no lease has expired.

        Args:
            database: a connection without an open transaction.
        """
        with ReceiveTransaction(database):
            rows = database.call("return_expired", self._queue, begin=True, count=1)
            if not rows:
                database.commit()
                return None
            owner = rows[0][5]
            error = TimeoutError(
                f"the lease of {owner} expired while its handler handled this message: the process was killed, "
                "stopped or cut off from the database"
            )
            return ExpiredLease(owner, self._treat_row(database, rows[0], error))

    def crashed(
        self, database: Connection, row_id: UUID, row_version: int, error: BaseException, owner: str = ""
    ) -> Outcome:
        """Treat a message whose worker process died while its handler ran. Its lease need not expire first.

        Args:
            database: a connection without an open transaction.
            row_id: the id of the message's row.
            row_version: the message's place in its queue.
            error: says how the process died.
            owner: how the name of the lease's owner begins.

        Returns:
            EMPTY if the message is neither leased by that process nor in its queue: it was handled, or another process
            has it.
        """
        end = time.monotonic() + NOTICED_WITHIN_SECONDS
        while True:
            try:
                leased = self._return_of(database, row_version, error, owner)
            except QueueNotFound:  # the queue has no table of leases yet
                return super().crashed(database, row_id, row_version, error)
            if leased is not None:
                return leased
            if is_waiting(database, self._queue, row_version):
                return super().crashed(database, row_id, row_version, error)
            if time.monotonic() >= end:
                return EMPTY
            time.sleep(POLL_SECONDS)

    def give_back_of(self, database: Connection, row_version: int, owner: str) -> None:
        """Put a message back into its queue if a process of that name has leased it; no attempt is counted."""
        with ReceiveTransaction(database):
            database.call("return_expired", self._queue, begin=True, count=1, row_version=row_version, owner=owner)
            database.commit()

    def _return_of(self, database: Connection, row_version: int, error: BaseException, owner: str) -> Outcome | None:
        """Treat a message that a process of that name has leased. Return None if it has not."""
        with ReceiveTransaction(database):
            rows = database.call(
                "return_expired", self._queue, begin=True, count=1, row_version=row_version, owner=owner
            )
            if rows:
                return self._treat_row(database, rows[0], error)
            database.commit()
        return None

    # -------------------------------------------------------------- within the transaction
    def _treat_row(self, database: Connection, row: tuple[object, ...], error: BaseException) -> Outcome:
        """Treat a row of `return_expired`, whose message the open transaction has put back."""
        message = Message.of_row(row[:5])
        again = {"count": 1, "row_version": message.row_version, "owner": row[5]}
        try:
            return self._treat_returned(database, message, error, Call("return_expired", self._queue, again))
        except MessageCorrupt:  # whoever receives it moves it
            database.commit()
            return Outcome(Kind.FAILED, message.row_version, message.id, 1, in_words(error))

    def _treat_returned(self, database: Connection, message: Message, error: BaseException, back: Call) -> Outcome:
        """Count an attempt at a message that the open transaction has put back, ask the policy, and commit.

        Args:
            database: the connection with the open transaction.
            message: the message.
            error: why the attempt has failed.
            back: puts the message back again, after a rollback.
        """
        counting = Call("record_failure", None, {"queue_key": self._key, "id": message.id})
        attempts = int(database.call(*counting[:2], **counting.arguments)[0].attempts)
        failure = self._failure(message, error, attempts)
        treatment = self._ask(message, failure)
        if isinstance(treatment, Outcome):
            database.commit()
            return treatment
        copy = self.copies.treated(message, failure, treatment)
        return self._move_returned(database, message, failure, copy, (back, counting))

    def _move_returned(
        self, database: Connection, message: Message, failure: Failure, copy: Copy, again: tuple[Call, Call]
    ) -> Outcome:
        """Store a copy of the message, and remove it and its count, in the open transaction.

        If the server refuses the copy, another one is tried. If that fails too, the message is put back and counted,
        and stays in its queue.
        """
        remove = Call("receive_message", self._queue, {"row_version": message.row_version})
        rest = [remove, *copy.calls, self._forget_call(message)]
        try:
            database.call_all(rest, commit=True)
        except RowpostError as trouble:
            roll_back(database)
            other = self._other_copy(message, failure, copy, trouble)
            if other is not None:
                return self._move_other(database, message, failure, other, again)
            return self._keep(database, message, failure, trouble, again)
        self.counted.pop(message.id, None)
        return self._moved(message, failure, copy)

    def _move_other(
        self, database: Connection, message: Message, failure: Failure, copy: Copy, again: tuple[Call, Call]
    ) -> Outcome:
        database.call_all([again[0]], begin=True)
        return self._move_returned(database, message, failure, copy, again)

    def _keep(
        self, database: Connection, message: Message, failure: Failure, trouble: RowpostError, again: tuple[Call, Call]
    ) -> Outcome:
        """Put a message that cannot be moved back into its queue, with its count."""
        if isinstance(trouble, DatabaseUnavailable):
            raise trouble
        database.call_all(list(again), begin=True, commit=True)
        return self._unmovable(database, message, trouble, failure.attempts)
