"""Receive messages of one queue and take each through its handler: receive, handle, commit.

    begin -> receive_messages -> expired: drop it
                              -> corrupt headers: move it to the error queue, unchanged
                              -> Mode.handle: handler, then commit; or count the failure, then retry or move the message

Usage, in any process; no supervisor is needed:

    pipeline = Pipeline(connect(settings), "Sales", PlainHandler(place_order, attempts=6, error_queue="error"))
    while pipeline.process_one().kind is not Kind.EMPTY: ...

What commits together with a message depends on the endpoint's transaction mode; see `pipeline.modes`. `pipeline.batches` handles
several messages in one transaction, with the methods of the last section. The connection belongs to the pipeline. If a handler
commits, rolls back or closes it, the attempt has failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Begin
from rowpost.database.receive_transaction import ReceiveTransaction
from rowpost.errors import Deadlock, HandlerBrokeTransaction, MessageCorrupt
from rowpost.handling.processor import Caused, Processor, control_message
from rowpost.handling.subscriptions import asks_for_subscription
from rowpost.pipeline.measurements import Recorder
from rowpost.pipeline.modes import choose_mode
from rowpost.pipeline.observer import ObservedRetries, PipelineObserver
from rowpost.pipeline.plain_handler import Handler, PlainHandler
from rowpost.pipeline.timings import Stopwatch
from rowpost.pipeline.within_transaction import Receiver, SendsAtomicWithReceive, no_step
from rowpost.recoverability.outcome import DEADLOCKED, EMPTY, Interrupted, Kind, Outcome, RowState
from rowpost.recoverability.policy import Host
from rowpost.recoverability.retries import Retries
from rowpost.transactions.guard import broken_transaction
from rowpost.transport.exclusive import SingleActiveConsumer
from rowpost.wire.address import parse_address, queue_key
from rowpost.wire.headers import CONTROL_MESSAGE
from rowpost.wire.message import Message, MessageRow
from rowpost.wire.operation import Call, Outgoing

__all__ = ["Pipeline"]


class Pipeline:
    """Takes messages of one queue through their handlers, on one connection. Not for several threads at once.

    Args:
        database: the receiving connection.
        queue: the queue's name.
        handler: an endpoint, another processor, or a plain function of (message, connection).
        attempts: for a plain function: how often a message is tried before it moves to `error_queue`.
        error_queue: for a plain function.
        reconnect: opens a second connection to count failures on, and another receiving connection if a handler closed it.
            Without it, a handler that closes the connection raises HandlerBrokeTransaction.
        hold: is called with each message before its handler runs, and with None afterwards.
        participants: URLs of the environment's participants, by name. The endpoint's own are added.
        outboxes: URLs of the environment's business databases, by name.
        host: who handles the messages, for the error queue; None for the queue's endpoint on this machine.
        exclusive: only one session at a time receives from the queue. For the others it counts as empty.
        step: is called with the name of each step of a message.
        stopwatch: sums up the times of handled messages; None for one that has no histograms.
        recorder: records single measurements; None records none.
        observer: observes each attempt for OpenTelemetry; None for none.
    """

    def __init__(
        self,
        database: Connection,
        queue: str,
        handler: Handler | Processor,
        *,
        attempts: int = 6,
        error_queue: str = "error",
        reconnect: Callable[[], Connection] | None = None,
        hold: Callable[[Message | None], None] | None = None,
        participants: Mapping[str, str] | None = None,
        outboxes: Mapping[str, str] | None = None,
        host: Host | None = None,
        exclusive: bool = False,
        step: Callable[[str], None] = no_step,
        stopwatch: Stopwatch | None = None,
        recorder: Recorder | None = None,
        observer: PipelineObserver | None = None,
    ) -> None:
        # an endpoint is no function, and implements the protocol
        processor: Processor = PlainHandler(handler, attempts, error_queue) if callable(handler) else handler
        self.queue = queue
        self.processor = processor
        self._observer = observer
        self.retries = (Retries if observer is None else partial(ObservedRetries, observer))(
            queue,
            queue_key(parse_address(queue), database.engine),
            address=database.canonical(parse_address(queue)),
            recoverability=processor.recoverability,
            error_queue=processor.error_queue,
            host=host,
            open_second=reconnect,
        )
        self._receiver = Receiver(database, queue, processor, self.retries, reconnect, step)
        self._mode = choose_mode(self._receiver, participants or {}, outboxes or {})
        self._handle, self._attempt = self._observed(observer)
        self._hold = hold
        self._step = step
        self._consumer = SingleActiveConsumer(queue) if exclusive else None
        #: owns the receiving transaction, whenever it is entered
        self.transaction = ReceiveTransaction(self._receiver)
        self.stopwatch = stopwatch or Stopwatch()
        self.recorder = recorder
        #: how long the last receive and the last handler took
        self.receive_seconds = self.handler_seconds = 0.0

    def _observed(self, observer: PipelineObserver | None) -> tuple[Callable[[Message], Outcome], Callable[..., Caused | Outcome] | None]:
        """Return what handles a message in a transaction of its own, and one of a batch: the mode, or the observer with the mode."""
        mode = self._mode
        attempt = mode.attempt if isinstance(mode, SendsAtomicWithReceive) else None
        if observer is None:
            return mode.handle, attempt
        return partial(observer.handle, mode.handle), attempt and partial(observer.attempt, attempt)

    @property
    def database(self) -> Connection:
        """The receiving connection."""
        return self._receiver.database

    def process_one(self, after_row_version: int | None = None) -> Outcome:
        """Receive and handle at most one message: the oldest one that is not locked, above `after_row_version`.

        An error of the handler is an `Outcome`; it is never raised.

        Raises:
            DatabaseUnavailable: the connection is lost. The message is in its queue again.
            RowpostError: the queue cannot be received from, or a failed attempt cannot be counted. Nothing was committed.
        """
        with self.transaction:
            return self._process_one(after_row_version)

    def _process_one(self, after_row_version: int | None) -> Outcome:
        mode, database = self._mode, self.database
        if self._consumer is not None and not self._consumer.held(database):
            return EMPTY
        try:
            rows = self._receive(1, after_row_version, mode.begin)
        except Deadlock:
            return DEADLOCKED
        if not rows:
            self._end_receive()
            return self.found_nothing()
        self._step("received")
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
            return self.retries.move_corrupt(database, message, error, mode.row)
        if self._drops(headers):
            if message.id in self.retries.counted:
                self.retries.forget(database, message)
            self._end_receive()
            return Outcome.done(message, control_message(headers))
        started = time.time()
        if self._hold is not None:
            self._hold(message)
        outcome = self._handle(message)
        self.handler_seconds = mode.handler_seconds
        if self._hold is not None:
            self._hold(None)
        if outcome.kind is Kind.HANDLED:
            self.stopwatch.add([(headers, started)], time.time())
        if self.recorder is not None:
            self.recorder.ended(outcome.kind, headers, started, time.time())
        return outcome

    def _receive(self, count: int, after_row_version: int | None, begin: Begin) -> list[MessageRow]:
        started = time.perf_counter()
        rows = self.database.call("receive_messages", self.queue, begin=begin, count=count, after_row_version=after_row_version)
        self.receive_seconds = time.perf_counter() - started
        return rows

    def _end_receive(self) -> None:
        if self._mode.begin:
            self.database.commit()

    def _drops(self, headers: Mapping[str, str | None]) -> bool:
        """Return whether a message is the transport's own and its processor does not get those. It refuses those that ask for events."""
        return headers.get(CONTROL_MESSAGE) == "True" and not self.processor.sees_control_messages and not asks_for_subscription(headers)

    def found_nothing(self) -> Outcome:
        """Do what waited until the queue is empty. No transaction is open."""
        self.retries.close_second()
        self._mode.settle()
        return EMPTY

    @property
    def interrupted(self) -> Interrupted | None:
        """The message whose handler was running when the connection was lost; None if there is none."""
        return self._receiver.interrupted

    def count_interrupted(self, interrupted: Interrupted) -> Outcome:
        """Count the attempt that an earlier pipeline could not count, and treat the message accordingly. No transaction is open.

        Raises:
            DatabaseError: the attempt could not be counted.
        """
        return self.retries.crashed(self.database, *interrupted)

    def recover(self) -> None:
        """End what an earlier worker left in doubt. Call it when a worker starts."""
        self._mode.recover()

    def close(self) -> None:
        """Close all connections."""
        try:
            if self._observer is not None:
                self._observer.close()
            self.retries.close_second()
            self._mode.close()
        finally:
            self.database.close()

    # -------------------------------------------------------------- several messages in one transaction: pipeline.batches
    @property
    def allows_batches(self) -> bool:
        """Whether several messages may share a transaction."""
        return self._attempt is not None

    def receive_batch(self, count: int, after_row_version: int | None) -> list[MessageRow]:
        """Begin a commit-guarded transaction and receive up to `count` messages. Raises Deadlock."""
        if self._consumer is not None and not self._consumer.held(self.database):
            return []
        if self._observer is not None:
            self._observer.batch_began()
        rows = self._receive(count, after_row_version, "commit_guarded")
        self._step("received")
        return rows

    def in_lock_order(self, messages: list[Message]) -> list[Message]:
        """Return the messages of a batch in the order in which to handle them. Those of an exclusive queue keep their order."""
        return messages if self._consumer is not None else self.processor.in_lock_order(messages)

    def attempt(self, message: Message) -> Caused | Outcome:
        """Run the handler of one message of a batch.

        Returns:
            What the handler caused. Else the outcome of a failed attempt; then the whole transaction is rolled back.

        Raises:
            MessageCorrupt: the headers cannot be read.
        """
        if self._attempt is None or self._drops(message.headers):
            return Caused([], control_message(message.headers))
        if self._hold is not None:
            self._hold(message)
        result = self._attempt(message, RowState.RETURNED, batched=True)
        if self._hold is not None:
            self._hold(None)
        return result

    def note_broken(self, error: Exception) -> None:
        """Note that the transaction of a batch was over at its commit, if an error says that. See `take_broken`."""
        if self.database.dialect.found_no_transaction(error.__cause__):
            self._receiver.broken = broken_transaction(self.queue, "ended the transaction", error)

    def take_broken(self) -> HandlerBrokeTransaction | None:
        """Return what shows that a handler may have committed the transaction of a batch, once; None if nothing does."""
        broken, self._receiver.broken = self._receiver.broken, None
        return broken

    def move_unremoved(self, message: Message, broken: HandlerBrokeTransaction) -> Outcome:
        """Store a message of such a batch, which is in no queue any more, in the error queue."""
        try:
            message.headers  # noqa: B018 -- raises if they cannot be read
        except MessageCorrupt as error:
            return self.retries.move_corrupt(self.database, message, error, RowState.REMOVED)
        lost = HandlerBrokeTransaction(
            f"The message was received in one transaction with others of queue {self.queue!r}, and a handler has committed that transaction. The "
            "message's removal was committed. What its handler wrote may be committed too, and what it sent is not sent. Compare, and then retry "
            "or discard the message."
        )
        lost.__cause__ = broken
        return self.retries.failed(self.database, message, lost, RowState.GONE)

    def commit_batch(self, groups: list[list[Outgoing]], also: list[Call]) -> None:
        """Send what the messages of a batch caused and commit, in one round trip. Raises RowpostError: nothing is committed."""
        self._step("before commit")
        self.processor.dispatch_groups(self.database, groups, also=also, commit="commit_guarded")
        self._step("committed")
        if self._observer is not None:
            self._observer.committed()
