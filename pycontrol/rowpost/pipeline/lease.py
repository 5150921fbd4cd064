"""Handle messages by a lease: no transaction is open and no connection is held while a handler works.

`Leased` is the transaction mode of an endpoint with `receive="lease"` (see `pipeline.modes.Mode`). One message takes these
steps:

    lease_messages, COMMIT                the message moves from its queue to the table of leases, with a random token
    the handler runs                      `LeaseRenewer` renews the lease at a third of its time
    BEGIN, end_lease by the token,        the handler's return, or the block of context.commit() with the handler's SQL
    what was sent, COMMIT

If the handler fails, one transaction puts the message back into its queue and counts the attempt (`recoverability.leases`).
If a process is killed, stopped or cut off, its lease expires, and somebody else takes the message. The row of the lease
is the fence: who has lost it finds no row with its token, and commits nothing.

`LeasedByType` leases the messages of some types only. `Leasing` is what all pipelines of a process share that lease from one queue.
"""  # noqa: E501

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from rowpost.database.borrowed import BorrowedConnection
from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Begin
from rowpost.database.pool import Connections
from rowpost.errors import (
    DatabaseUnavailable,
    Deadlock,
    HandlerEnded,
    LeaseLost,
    MessageCorrupt,
    RowpostError,
)
from rowpost.handling.processor import Caused, Receiver
from rowpost.pipeline.renewer import LeaseRenewer
from rowpost.pipeline.within_transaction import SendsAtomicWithReceive
from rowpost.recoverability.leases import LeaseRetries
from rowpost.recoverability.outcome import DEADLOCKED, Outcome, RowState
from rowpost.recoverability.policy import in_words
from rowpost.recoverability.retries import roll_back
from rowpost.recoverability.stopping import STOP
from rowpost.transactions.judgement import Fate, HandlerTransaction
from rowpost.transactions.leases import NO_CONNECTION, Lease, LeaseScope, Lend
from rowpost.wire.message import Message, MessageRow
from rowpost.wire.outgoing import Call, Outgoing

__all__ = ["LEASE_SECONDS", "Leased", "LeasedByType", "Leasing", "check_once", "owner_of"]

logger = logging.getLogger("rowpost")

#: the time of a lease, unless the endpoint says another one
LEASE_SECONDS = 60
#: the pause before a commit is tried again that another transaction's locks or a lost connection has prevented
PAUSE_S = 0.2
OWNER_LIMIT = 200


def owner_of(process_id: int, slot: int | None = None) -> str:
    """Return the name under which a slot of a process of this machine holds leases; without a slot, how all of the
    process's begin.

    >>> owner_of(7, 1).endswith("/7/1"), owner_of(7, 12).startswith(owner_of(7))
    (True, True)
    """
    process = f"/{process_id}/{'' if slot is None else slot}"
    return socket.gethostname()[: OWNER_LIMIT - 30] + process


def check_once(message: Message, scope: LeaseScope) -> None:
    """Check that a message is not committed yet. Raises HandlerEnded."""
    if scope.committed:
        raise HandlerEnded(
            f"The message {message.message_id} is committed already: context.commit() can be called once."
        )


@dataclass
class Leasing:
    """What all pipelines of a process share that lease messages of one queue. Thread-safe.

    Attributes:
        connections: lend the connections of all transactions.
        queue: the queue's name.
        seconds: the time of a lease.
        business: lend the connections to the business database of an outbox; None without one.
    """

    connections: Connections
    queue: str
    seconds: int = LEASE_SECONDS
    business: Connections | None = None
    _slots: Iterator[int] = field(default_factory=partial(count, 1), repr=False)

    @cached_property
    def renewer(self) -> LeaseRenewer:
        """Renews the leases of all pipelines."""
        return LeaseRenewer(self.connections, self.queue, self.seconds)

    def connection(self) -> BorrowedConnection:
        """Return what stands for the receiving connection of a pipeline. Raises DatabaseUnavailable."""
        return BorrowedConnection(self.connections, NO_CONNECTION)

    def owner(self) -> str:
        """Return the name of the next slot."""
        return owner_of(os.getpid(), next(self._slots))

    def close(self) -> None:
        """Close the connections."""
        for each in (self.connections, self.business):
            if each is not None:
                each.close()


class Leased:
    """The mode of an endpoint with `receive="lease"`. Not for several threads at once.

    Args:
        receiver: what the pipeline and the mode share.
        leasing: what the pipelines of the process share.
    """

    begin: Begin = False
    row = RowState.GONE
    takes_expired = True
    handler_seconds = 0.0
    connections: Sequence[Connection] = ()

    def __init__(self, receiver: Receiver, leasing: Leasing) -> None:
        if not isinstance(receiver.retries, LeaseRetries):
            raise TypeError("the pipeline of leased messages needs LeaseRetries")
        self._receiver, self._leasing, self._retries = receiver, leasing, receiver.retries
        self._owner = leasing.owner()
        #: of the message that was received last
        self._lease: Lease
        self._transactions: WeakKeyDictionary[Connection, HandlerTransaction] = WeakKeyDictionary()

    # -------------------------------------------------------------- one message
    def receive(self, count: int, after_row_version: int | None) -> list[MessageRow]:
        """Lease the oldest message that is not locked, in a transaction of its own.

        Raises:
            QueueNotFound: there is no such queue, or it has no table of leases.
        """
        rows = self._receiver.database.call(
            "lease_messages",
            self._leasing.queue,
            count=1,
            after_row_version=after_row_version,
            owner=self._owner,
            seconds=self._leasing.seconds,
        )
        for row in rows:
            self._lease = Lease(row[5])
        return [row[:5] for row in rows]

    def handle_as(self, message: Message, token: UUID) -> Outcome:
        """Handle a message that was leased by somebody else."""
        self._lease = Lease(token)
        return self.handle(message)

    def handle(self, message: Message) -> Outcome:
        """Run the handler of the leased message, and commit; or treat the failed attempt."""
        lease = self._lease
        if message.expired:
            return self._ended(message, lease, Caused([]), Outcome.expired(message))
        renewer = self._leasing.renewer
        renewer.add(lease)
        try:
            return self._run(message, lease)
        finally:
            renewer.remove(lease)

    def _run(self, message: Message, lease: Lease) -> Outcome:
        receiver, started = self._receiver, time.perf_counter()
        scope = LeaseScope(lease, lambda take, lend: self._commit(message, scope, take, lend))
        caused, failure = Caused([]), None
        try:
            with STOP:
                caused = receiver.processor.handle(message, receiver.database, scope)
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever a handler raises is a failed attempt
            failure = error
        except BaseException:
            if not scope.committed:
                self._give_back(lease)
            raise
        finally:
            self.handler_seconds = time.perf_counter() - started
        receiver.step("handled")
        if scope.committed:
            return self._committed(message, scope, caused, failure)
        if failure is not None:
            return self._failed(message, lease, failure, gone=scope.gone)
        return self._ended(message, lease, caused, Outcome.done(message, caused.discard))

    def _committed(self, message: Message, scope: LeaseScope, caused: Caused, failure: BaseException | None) -> Outcome:
        """Return the outcome of a message that its handler has committed."""
        if failure is not None:
            logger.error(
                "The handler of message %s of queue %r failed after context.commit(). The message is handled, and what "
                "was committed stays.", message.message_id, self._leasing.queue, exc_info=failure,
            )  # fmt: skip
        return Outcome.done(message, caused.discard)

    def _ended(self, message: Message, lease: Lease, caused: Caused, outcome: Outcome) -> Outcome:
        """Remove the message by its token and send what was sent, in one transaction.

        The transaction is short, so it is tried again after a deadlock or on another connection: the work of a long
        handler is not lost because of it.
        """
        end, unknown = time.monotonic() + self._leasing.seconds, False
        while True:
            try:
                self._send(message, lease, caused)
            except LeaseLost as lost:
                return self._lost(message, lost, unknown=unknown)
            except (Deadlock, DatabaseUnavailable) as error:
                if time.monotonic() >= end or STOP.requested:
                    return self._failed(message, lease, error)
                unknown |= isinstance(error, DatabaseUnavailable)
                time.sleep(PAUSE_S)
            except Exception as error:  # noqa: BLE001 whatever a message makes the commit raise is a failed attempt at it
                return self._failed(message, lease, error)
            else:
                self._retries.forgot([message])
                self._receiver.step("committed")
                return outcome

    def _send(self, message: Message, lease: Lease, caused: Caused) -> None:
        receiver = self._receiver
        also = [Call("end_lease", self._leasing.queue, {"token": lease.token})]
        also += self._retries.forget_calls([message])
        receiver.step("before commit")
        with self._leasing.connections.borrow() as database:
            receiver.processor.dispatch(database, [caused.outgoing], begin=True, commit=True, also=also)

    # -------------------------------------------------------------- context.commit()
    @contextmanager
    def _commit(
        self, message: Message, scope: LeaseScope, take: Callable[[], list[Outgoing]], lend: Lend
    ) -> Iterator[Any]:
        """Remove the message by its token, lend the connection, and commit with what was sent.

        Raises:
            LeaseLost: nothing is committed.
            HandlerEnded: the message is committed already.
        """
        check_once(message, scope)
        lease, renewer = scope.lease, self._leasing.renewer
        with self._leasing.connections.borrow() as database:
            renewer.remove(lease)  # its row is locked now, so that it cannot be renewed, nor be taken away
            try:
                with STOP.suspended():
                    database.call("end_lease", self._leasing.queue, begin=True, token=lease.token)
                yield from self._guarded(message, scope, database, lend)
                self._commit_with(database, message, take())
                scope.committed = True
            except BaseException:
                with suppress(RowpostError):
                    roll_back(database)
                raise
            finally:
                if not scope.committed:
                    renewer.add(lease)
        self._retries.forgot([message])
        self._receiver.step("committed")

    def _guarded(self, message: Message, scope: LeaseScope, database: Connection, lend: Lend) -> Iterator[Any]:
        """Lend the driver's connection, and find out whether its transaction can still be committed."""
        transaction = self._transactions.get(database)
        if transaction is None:
            transaction = self._transactions[database] = HandlerTransaction(database, self._leasing.queue)
        transaction.start(message)
        failure: BaseException | None = None
        try:
            yield lend(database)
        except Exception as error:  # noqa: BLE001 it is raised again below
            failure = error
        finally:
            lost = transaction.stop()
        if failure is None and lost is None and transaction.can_commit(True, sure=True):
            return
        judged = transaction.judge(failure or lost, True)
        scope.gone = judged.fate is Fate.ENDED
        raise judged.error or DatabaseUnavailable(
            f"The connection was lost while a message of queue {self._leasing.queue!r} was committed."
        )

    def _commit_with(self, database: Connection, message: Message, outgoing: list[Outgoing]) -> None:
        also = self._retries.forget_calls([message])
        self._receiver.step("before commit")
        with STOP.suspended():
            self._receiver.processor.dispatch(database, [outgoing], commit=True, also=also)

    # -------------------------------------------------------------- failure
    def return_expired(self) -> None:
        """Treat the messages of the queue whose leases have expired as failed attempts."""
        with self._leasing.connections.borrow() as database:
            while self._retries.return_expired(database) is not None:
                pass

    def move_corrupt(self, message: Message, error: MessageCorrupt) -> Outcome:
        """Move a message whose headers cannot be read to the error queue, unchanged."""
        with self._leasing.connections.borrow() as database:
            return self._retries.move_corrupt_lease(database, message, self._lease.token, error)

    def _failed(self, message: Message, lease: Lease, error: BaseException, *, gone: bool = False) -> Outcome:
        """Treat a failed attempt.

        Raises:
            DatabaseUnavailable: it could not be counted. The lease expires, and that counts it.
        """
        try:
            with self._leasing.connections.borrow() as database:
                if gone:
                    return self._retries.failed(database, message, error, RowState.GONE)
                return self._retries.failed_lease(database, message, lease.token, error)
        except LeaseLost as lost:
            return self._lost(message, lost, error)

    def _lost(
        self, message: Message, lost: LeaseLost, error: BaseException | None = None, *, unknown: bool = False
    ) -> Outcome:
        """Say that the lease of a message was lost. Nothing is counted: whoever returned the message has counted."""
        after = "" if error is None or isinstance(error, LeaseLost) else f" Its handler had failed: {in_words(error)}"
        perhaps = " If a lost connection has hidden the reply to its commit, it is handled." if unknown else ""
        logger.warning(
            "The lease of message %s of queue %r was lost: %s was stopped or cut off for longer than %d s, and another "
            "process takes the message. Nothing of this attempt is committed.%s%s",
            message.message_id, self._leasing.queue, self._owner, self._leasing.seconds, perhaps, after,
        )  # fmt: skip
        return DEADLOCKED

    def _give_back(self, lease: Lease) -> None:
        """Put a message whose handler was interrupted back into its queue. If that fails, its lease expires."""
        with suppress(RowpostError), self._leasing.connections.borrow() as database:
            self._retries.give_back(database, lease.token)

    def settle(self) -> None: ...
    def recover(self) -> None: ...
    def close(self) -> None: ...


class LeasedByType(SendsAtomicWithReceive):
    """The mode of an endpoint of which some handlers have `receive="lease"`.

    A message is received in a transaction. If one of its handlers wants it leased, the transaction is rolled back, and
    the message moves to the table of leases. The connection on which it was received stays open meanwhile, without a
    transaction.

    Args:
        receiver: what the pipeline and the mode share.
        leasing: what the pipelines of the process share.
    """

    def __init__(self, receiver: Receiver, leasing: Leasing) -> None:
        super().__init__(receiver)
        self._leasing, self._owner = leasing, leasing.owner()
        self._leased = Leased(replace(receiver, database=leasing.connection()), leasing)

    def handle(self, message: Message) -> Outcome:
        """Handle a received message in its transaction, or by a lease."""
        receiver, database = self._receiver, self._receiver.database
        if not receiver.processor.leases_message(message):
            return super().handle(message)
        database.rollback()
        rows = database.call_atomically(
            "lease_message",
            self._leasing.queue,
            row_version=message.row_version,
            owner=self._owner,
            seconds=self._leasing.seconds,
        )
        if not rows:  # another worker has received it
            return DEADLOCKED
        outcome = self._leased.handle_as(message, rows[0].token)
        self.handler_seconds = self._leased.handler_seconds
        return outcome

    def return_expired(self) -> None:
        """Treat the messages of the queue whose leases have expired as failed attempts."""
        self._leased.return_expired()
