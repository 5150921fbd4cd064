"""Receive messages of one queue and take each through its handler: receive, handle, commit.

    begin -> receive_messages -> expired: drop it
                              -> corrupt headers: move it to the error queue, unchanged
                              -> Mode.handle: handler, then commit; or count the failure, then retry or move the message

Usage, in any process; no supervisor is needed:

    pipeline = Pipeline(connect(settings), "Sales", endpoint)
    while pipeline.process_one().kind is not Kind.EMPTY: ...

What commits together with a message depends on the endpoint's transaction mode; see `pipeline.modes`.
`pipeline.batches` handles several messages in one transaction, with the methods of the last section. The connection
belongs to the pipeline. If a handler commits, rolls back or closes it, the attempt has failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Begin
from rowpost.database.receive_transaction import ReceiveTransaction
from rowpost.errors import Deadlock, HandlerBrokeTransaction, MessageCorrupt
from rowpost.handling.processor import Caused, Processor, Receiver
from rowpost.pipeline.lease import Leased, LeasedByType, Leasing
from rowpost.pipeline.modes import Mode, OtherDatabases, choose_lease, choose_mode
from rowpost.pipeline.observer import Begun, Observer, Observers
from rowpost.pipeline.timings import measure
from rowpost.pipeline.within_transaction import SendsAtomicWithReceive
from rowpost.recoverability.leases import LeaseRetries
from rowpost.recoverability.outcome import DEADLOCKED, EMPTY, InterruptedAttempt, Kind, Outcome, RowState
from rowpost.recoverability.retries import Retries
from rowpost.transactions.guard import broken_transaction
from rowpost.transport.exclusive import SingleActiveConsumer
from rowpost.wire.address import parse_address, queue_key
from rowpost.wire.message import Message, MessageRow
from rowpost.wire.outgoing import Call, Outgoing

__all__ = ["Pipeline"]

_Result = TypeVar("_Result", bound=Caused | Outcome)


class Pipeline:
    """Takes messages of one queue through their handlers, on one connection. Not for several threads at once.

    Args:
        database: the receiving connection.
        queue: the queue's name.
        processor: the endpoint that handles the messages.
        reconnect: opens a second connection to count failures on, and another receiving connection if a handler closed
            it. Without it, a handler that closes the connection raises HandlerBrokeTransaction.
        others: the URLs of the environment's other databases; None for none.
        exclusive: only one session at a time receives from the queue. For the others it counts as empty.
        observers: what observes the messages.
        leasing: for an endpoint that leases its messages, or those of some types. If it leases all of them, `database`
            is the connection of `leasing`.
    """

    def __init__(
        self,
        database: Connection,
        queue: str,
        processor: Processor,
        *,
        reconnect: Callable[[], Connection] | None = None,
        others: OtherDatabases | None = None,
        exclusive: bool = False,
        observers: Iterable[Observer] = (),
        leasing: Leasing | None = None,
    ) -> None:
        self.queue = queue
        self.processor = processor
        self._observers = Observers(observers)
        self.retries = (Retries if leasing is None else LeaseRetries)(
            queue,
            queue_key(parse_address(queue), database.engine),
            address=database.canonical(parse_address(queue)),
            recoverability=processor.recoverability,
            error_queue=processor.error_queue,
            host=processor.host,
            open_second=reconnect,
            observers=self._observers.failed,
        )
        self._receiver = Receiver(database, queue, processor, self.retries, reconnect, self._observers.steps)
        self._mode: Mode
        if leasing is None:
            self._mode = mode = choose_mode(self._receiver, others or OtherDatabases())
        else:
            self._mode = mode = choose_lease(self._receiver, leasing)
        #: whether several messages may share a transaction
        self.allows_batches = isinstance(mode, SendsAtomicWithReceive) and not isinstance(mode, LeasedByType)
        self._attempt: Callable[[Message], Caused | Outcome] = mode.handle
        if isinstance(mode, SendsAtomicWithReceive):
            self._attempt = partial(mode.attempt, row=RowState.RETURNED, batched=True)
        self._consumer = SingleActiveConsumer(queue) if exclusive else None
        #: owns the receiving transaction, whenever it is entered
        self.transaction = ReceiveTransaction(self._receiver)
        #: how long the last receive and the last handler took
        self.receive_seconds = self.handler_seconds = 0.0

    @property
    def database(self) -> Connection:
        """The receiving connection."""
        return self._receiver.database

    def process_one(self, after_row_version: int | None = None) -> Outcome:
        """Receive and handle at most one message: the oldest one that is not locked, above `after_row_version`.

        An error of the handler is an `Outcome`; it is never raised.

        Raises:
            DatabaseUnavailable: the connection is lost. The message is in its queue again.
            RowpostError: the queue cannot be received from, or a failed attempt cannot be counted. Nothing was
                committed.
        """
        with self.transaction:
            return self._process_one(after_row_version)

    def _process_one(self, after_row_version: int | None) -> Outcome:
        mode, database = self._mode, self.database
        if self._consumer is not None and not self._consumer.held(database):
            return EMPTY
        for began in self._observers.began:
            began()
        try:
            rows = self._receive(1, after_row_version, mode.begin)
        except Deadlock:
            return DEADLOCKED
        if not rows:
            self._end_receive()
            return self.found_nothing()
        for step in self._observers.steps:
            step("received")
        return self._process(Message.of_row(rows[0]))

    def _process(self, message: Message) -> Outcome:
        """Drop a received message, move it, or run its handler."""
        mode, database = self._mode, self.database
        if message.expired and not mode.takes_expired:
            self._end_receive()
            return Outcome.expired(message)
        try:
            headers = message.headers
        except MessageCorrupt as error:
            if isinstance(mode, Leased):
                return mode.move_corrupt(message, error)
            return self.retries.move_corrupt(database, message, error, mode.row)
        started = time.time()
        outcome = self._observed(mode.handle, message)
        self.handler_seconds = mode.handler_seconds
        self.measured(outcome.kind, [(headers, started)])
        return outcome

    def _observed(self, handle: Callable[[Message], _Result], message: Message) -> _Result:
        """Handle a message between the calls of its observers."""
        observers = self._observers
        for starting in observers.starting:
            starting(message)
        try:
            result = handle(message)
        except BaseException as error:
            for aborted in observers.aborted:
                aborted(error)
            raise
        for ended in observers.ended:
            ended(result)
        return result

    def measured(self, kind: Kind, begun: Begun) -> None:
        """Measure messages that ended now in the same way, for the observers that ask for it."""
        listeners = self._observers.measured
        if listeners and begun:
            measurement = measure(kind, begun, time.time())
            for measured in listeners:
                measured(measurement)

    def _receive(self, count: int, after_row_version: int | None, begin: Begin) -> list[MessageRow]:
        started = time.perf_counter()
        if isinstance(self._mode, Leased):
            rows = self._mode.receive(count, after_row_version)
        else:
            rows = self.database.call(
                "receive_messages", self.queue, begin=begin, count=count, after_row_version=after_row_version
            )
        self.receive_seconds = time.perf_counter() - started
        return rows

    def _end_receive(self) -> None:
        if self._mode.begin:
            self.database.commit()

    def found_nothing(self) -> Outcome:
        """Do what waited until the queue is empty. No transaction is open."""
        self.retries.close_second()
        self._mode.settle()
        return EMPTY

    def return_expired(self) -> None:
        """Treat messages whose leases have expired as failed attempts, as a supervisor's task does."""
        if isinstance(self._mode, Leased | LeasedByType):
            self._mode.return_expired()

    @property
    def interrupted(self) -> InterruptedAttempt | None:
        """The message whose handler was running when the connection was lost; None if there is none."""
        return self._receiver.interrupted

    def count_interrupted(self, interrupted: InterruptedAttempt) -> Outcome:
        """Count the attempt that an earlier pipeline could not count, and treat the message accordingly.

        No transaction is open.

        Raises:
            DatabaseError: the attempt could not be counted.
        """
        return self.retries.crashed(self.database, *interrupted)

    def recover(self) -> None:
        """End what an earlier worker left in doubt. Call it when a worker starts."""
        self._mode.recover()

    def cut(self) -> None:
        """End the sessions of the message that is handled, so that nothing of it can be committed any more.

        Another thread calls this. The server rolls back; the handler goes on, and its connections are lost.
        """
        for database in (self.database, *self._mode.connections):
            database.cut()

    def close(self) -> None:
        """Close all connections."""
        try:
            self.close_others()
        finally:
            self.database.close()

    def close_others(self) -> None:
        """Close all connections but the receiving one, which may be a caller's."""
        for close in self._observers.close:
            close()
        self.retries.close_second()
        self._mode.close()

    # ------------------------------------------------------------ several messages in one transaction: pipeline.batches
    def receive_batch(self, count: int, after_row_version: int | None) -> list[MessageRow]:
        """Begin a commit-guarded transaction and receive up to `count` messages. Raises Deadlock."""
        if self._consumer is not None and not self._consumer.held(self.database):
            return []
        for began in self._observers.began:
            began()
        rows = self._receive(count, after_row_version, "commit_guarded")
        for step in self._observers.steps:
            step("received")
        return rows

    def in_lock_order(self, messages: list[Message]) -> list[Message]:
        """Return the messages of a batch in the order in which to handle them.

        Those of an exclusive queue keep their order.
        """
        return messages if self._consumer is not None else self.processor.in_lock_order(messages)

    def attempt(self, message: Message) -> Caused | Outcome:
        """Run the handler of one message of a batch.

        Returns:
            What the handler caused. Else the outcome of a failed attempt; then the whole transaction is rolled back.

        Raises:
            MessageCorrupt: the headers cannot be read.
        """
        message.headers  # noqa: B018 -- raises if they cannot be read
        return self._observed(self._attempt, message)

    def note_broken(self, error: Exception) -> None:
        """Note that the transaction of a batch was over at its commit, if an error says that. See `take_broken`."""
        if self.database.dialect.found_no_transaction(error.__cause__):
            self._receiver.broken = broken_transaction(self.queue, "ended the transaction", error)

    def take_broken(self) -> BaseException | None:
        """Return what shows that a handler may have committed the transaction of a batch, once; None if nothing
        does.
        """
        broken, self._receiver.broken = self._receiver.broken, None
        return broken

    def move_unremoved(self, message: Message, broken: BaseException) -> Outcome:
        """Store a message of such a batch, which is in no queue any more, in the error queue."""
        try:
            message.headers  # noqa: B018 -- raises if they cannot be read
        except MessageCorrupt as error:
            return self.retries.move_corrupt(self.database, message, error, RowState.REMOVED)
        lost = HandlerBrokeTransaction(
            f"The message was received in one transaction with others of queue {self.queue!r}, and a handler has "
            "committed that transaction. The message's removal was committed. What its handler wrote may be committed "
            "too, and what it sent is not sent. Compare, and then retry or discard the message."
        )
        lost.__cause__ = broken
        return self.retries.failed(self.database, message, lost, RowState.GONE)

    def commit_batch(self, groups: list[list[Outgoing]], also: list[Call]) -> None:
        """Send what the messages of a batch caused and commit, in one round trip.

        Raises RowpostError: nothing is committed.
        """
        for step in self._observers.steps:
            step("before commit")
        self.processor.dispatch(self.database, groups, also=also, commit="commit_guarded")
        for step in self._observers.steps:
            step("committed")
