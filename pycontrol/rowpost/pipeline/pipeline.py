"""The way of one message: receive, handle, commit; or what happens instead.

    begin -> receive_messages -> (expired: drop) (headers corrupt: move unchanged) -> handler -> commit
    handler raises -> undo -> record_failure in a transaction of its own -> try again, or move to the error queue

Everything a handler does on the connection it is lent commits or rolls back with the message (seed 001, "Sends atomic
with Receive"). The connection stays ours: a handler that commits, rolls back or closes it has failed, visibly.

Works in any process, no supervisor needed:

    pipeline = Pipeline(connect(settings), "Sales", resolve_handler("shop.handlers:place_order"))
    while pipeline.process_one().kind is not Kind.EMPTY: ...

What a transaction spans is the endpoint's mode (reference 1E; a plain function has sends_atomic_with_receive):

    none                        the removal commits before the handler runs: a failure loses the message to the error queue
    receive_only                what was sent commits just before the removal, in a transaction of its own
    sends_atomic_with_receive   the removal, what was sent and the handler's own SQL commit together
    transaction_scope           and so do other databases that the handler enlists (transactions.py, twophase.py)

An endpoint whose business data lie in another database goes another way through receive_only: outbox_flow.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Begin
from rowpost.database.receive_transaction import receive_transaction
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import (
    CatalogueError,
    DatabaseError,
    DatabaseUnavailable,
    Deadlock,
    HandlerBrokeTransaction,
    MessageCorrupt,
    RowpostError,
    SagaConflict,
)
from rowpost.outbox.processing import OutboxProcessing
from rowpost.pipeline.plain_handler import Handler, PlainHandler
from rowpost.pipeline.timings import Stopwatch, wanted_at
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.recoverability.retries import Retries, roll_back
from rowpost.settings.secrets import resolve_participants
from rowpost.transactions.modes import ConnectionGuard, begin_of, broke, make_scope, no_step
from rowpost.transport.exclusive import SingleActiveConsumer
from rowpost.wire.address import parse_address, queue_key
from rowpost.wire.headers import CONTROL_MESSAGE
from rowpost.wire.message import Message
from rowpost.wire.operation import Call, Operation

__all__ = ["DEADLOCKED", "EMPTY", "Kind", "Outcome", "Pipeline"]

EMPTY = Outcome(Kind.EMPTY)
DEADLOCKED = Outcome(Kind.DEADLOCKED)


class Pipeline:
    """Takes messages of one queue through one handler on one connection.

    `attempts` tries before a message moves to `error_queue`. `reconnect` gives a new Connection: a second one to count
    failures on, closed when the queue is empty, and a new first one after a handler closed the one it was lent
    (without it that raises HandlerBrokeTransaction). `hold` is told which message a handler gets, and None after it.
    `participants` of the environment are added to the endpoint's, `outboxes` are its business databases by name; `step`
    is told how far a message has come. `exclusive`: the queue counts as empty while another session has claimed it.
    """

    def __init__(
        self,
        database: Connection,
        queue: str,
        handler: Handler | Endpoint,
        *,
        attempts: int = 6,
        error_queue: str = "error",
        reconnect: Callable[[], Connection] | None = None,
        hold: Callable[[Message | None], None] | None = None,
        participants: Mapping[str, str] | None = None,
        outboxes: Mapping[str, str] | None = None,
        exclusive: bool = False,
        step: Callable[[str], None] = no_step,
    ) -> None:
        self.database = database
        self.queue = queue
        self._processing = handler if isinstance(handler, Endpoint) else PlainHandler(handler, attempts, error_queue)
        self._transactional = self._processing.transaction_mode != "none"
        self._reconnect = reconnect
        self._hold = hold or (lambda message: None)
        self._step = step
        self._claim = SingleActiveConsumer(queue, wanted=exclusive)
        self._had_connection = False
        self._lender = ConnectionGuard(queue)
        mode, named = self._processing.transaction_mode, getattr(self._processing, "participants", {})
        places = resolve_participants(participants or {}, named) if mode == "transaction_scope" else {}
        self._begin = begin_of(mode, database.engine, places)
        self._scope = make_scope(mode, database, queue, places, step)
        run = self._processing.handle
        self._run = partial(run, scope=self._scope) if isinstance(handler, Endpoint) else run
        self._plain = not isinstance(handler, Endpoint)
        self.transaction_mode = mode
        self.transaction = partial(receive_transaction, lambda: self.database)  # no transaction outlives a block of it
        self.stopwatch = Stopwatch()
        self.handler_seconds = self.receive_seconds = 0.0  # how long the last ones took
        self.retries = Retries(
            queue,
            queue_key(parse_address(queue), database.engine),
            recoverability=self._processing.recoverability,
            error_queue=self._processing.error_queue,
            open_second=reconnect,
        )
        self._treat = self._handle if self._transactional else self._handle_removed
        self._outbox = getattr(self._processing, "outbox", None)
        if self._outbox is not None:
            flow = OutboxProcessing(self._processing, self._outbox, queue, outboxes or {}, self.retries, step)
            self._scope, self._treat = flow, lambda message: flow.handle(message, self.database)

    def process_one(self, anchor: int | None = None) -> Outcome:
        """Receive and handle at most one message, the oldest free one above `anchor` (None: from the start).

        Raises DatabaseUnavailable when the connection is lost (the message is back then) and other RowpostError when
        the queue cannot be received from, or a failed attempt cannot be counted: then nothing was committed. An error
        of the handler is an Outcome, never raised.
        """
        with self.transaction():
            return self._process_one(anchor)

    def _process_one(self, anchor: int | None) -> Outcome:  # noqa: PLR0911 -- one for each thing that may come
        database = self.database
        if not self._claim.held(database):
            return EMPTY
        try:
            rows = self._receive(1, anchor, self._begin)
        except Deadlock:
            return DEADLOCKED
        if not rows:
            self._end(database)
            return self.found_nothing()
        message = Message(*rows[0][:4], rows[0][4] or b"")
        self._step("received")
        if message.expired and self._outbox is None:
            self._end(database)
            return Outcome(Kind.EXPIRED, message.row_version, message.id)
        try:
            control = self.is_control(message)
        except MessageCorrupt as error:
            return self.retries.poisoned(database, message, error)
        if control:
            return self._commit(message, [])
        self._hold(message)
        wanted, started = wanted_at(message.headers), time.time()
        outcome = self._treat(message)
        self._hold(None)
        if outcome.kind is Kind.HANDLED:
            self.stopwatch.add([(wanted, started)], time.time())
        return outcome

    def _receive(self, count: int, anchor: int | None, begin: Begin) -> list[tuple]:
        started = time.perf_counter()
        rows = self.database.call("receive_messages", self.queue, begin=begin, count=count, after_row_version=anchor)
        self.receive_seconds = time.perf_counter() - started
        return rows

    def is_control(self, message: Message) -> bool:
        """Whether a message is a transport's own, which no plain function gets to see. Raises MessageCorrupt."""
        return message.headers.get(CONTROL_MESSAGE) == "True" and self._plain

    def found_nothing(self) -> Outcome:
        """The queue is empty, the transaction over: what could wait until now is done."""
        self.retries.close_second()
        self._scope.settle(self.database)
        return EMPTY

    # -------------------------------------------------------------- several messages in one transaction (batches.py)
    def receive_sealed(self, count: int, anchor: int | None) -> list[tuple]:
        """Begins a transaction that a handler cannot commit, and receives. Raises Deadlock."""
        if not self._claim.held(self.database):
            return []
        rows = self._receive(count, anchor, "sealed")
        self._step("received")
        return rows

    def in_lock_order(self, messages: list[Message]) -> list[Message]:
        """Messages of a batch in the order in which to handle them; an exclusive queue's stay as they were sent."""
        return messages if self._plain or self._claim.wanted else self._processing.in_lock_order(messages)

    def attempt_sealed(self, message: Message) -> list[Operation] | Outcome:
        """Runs the handler; what it sent, or, after a failure, what became of the message: then all is rolled back."""
        self._hold(message)
        result = self._attempt(message, sealed=True)
        self._hold(None)
        return result

    def commit_sealed(self, groups: list[list[Operation]], also: list[Call]) -> None:
        """Sends what the messages caused and commits, in one round trip. Raises RowpostError: nothing is committed."""
        self._step("before commit")
        self._processing.dispatch_sealed(self.database, groups, also)
        self._step("committed")

    def _end(self, database: Connection) -> None:
        if self._transactional:
            database.commit()

    def recover(self) -> None:
        """At the start of a worker: end what an earlier one left in doubt, where the mode knows such a thing."""
        self._scope.recover(self.database)

    def close(self) -> None:
        """Close the connections."""
        try:
            self.retries.close_second()
            self._scope.close(self.database)
        finally:
            self.database.close()

    def _handle(self, message: Message) -> Outcome:
        try:
            return self._handle_received(message)
        finally:
            if self._scope.active:  # not committed, whatever the reason
                self._scope.rollback()

    def _handle_received(self, message: Message) -> Outcome:
        guarded = self._begin is True and self.retries.guard(self.database)
        result = self._attempt(message, guarded=guarded)
        return result if isinstance(result, Outcome) else self._commit(message, result)

    def _attempt(self, message: Message, *, guarded: bool = False, sealed: bool = False) -> list[Operation] | Outcome:
        """Lends the connection to the handler, and looks what it did with it."""
        database = self.database
        self._lender.lend(database)
        database.lent, started = False, time.perf_counter()
        try:
            operations = self._run(message, database)
            if sealed and not self._plain:  # the batch's next message may be one of the same saga
                operations = self._processing.store(database, operations)
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever a handler raises is a failed attempt
            self._take_back()
            return self._raised(message, error, guarded, sealed)
        except BaseException:
            self._take_back()
            roll_back(database)
            raise
        self.handler_seconds = time.perf_counter() - started
        self._take_back()
        self._step("handled")
        # SQL Server commits only what is open, or, sealed, has to be asked, if a handler ever had the connection: a round trip
        trusted = database.engine == "sqlserver" and not (sealed and self._had_connection)
        if not (database.closed or self._lender.ended) and (trusted or database.is_intact("sealed" if sealed else True)):
            return operations
        return self._broken_off(message, guarded, sealed)

    def _broken_off(self, message: Message, guarded: bool, sealed: bool) -> Outcome:
        """The handler returned, but its transaction cannot be committed."""
        database = self.database
        if database.closed:
            return self._closed(message, None)
        if self._lender.ended or database.engine == "sqlserver" or not database.in_transaction:
            return self._ended(message, None, sealed)
        what = "returned as if nothing had happened after a statement failed, which doomed the transaction"
        return self.retries.failed(database, message, self._broken(what), guarded=guarded)

    def _take_back(self) -> None:
        self._had_connection |= self.database.lent
        self._lender.take_back()
        self._scope.take_back()

    def _handle_removed(self, message: Message) -> Outcome:
        """The mode none: the message is gone already, so that a failure can only end in the error queue (statement 67)."""
        database = self.database
        try:
            operations = self._run(message, database)
            self._step("handled")
            if not database.closed and database.in_transaction:
                raise self._broken("left a transaction open on the connection")
            if operations:
                self._processing.dispatch(database, operations, begin=True, commit=True)
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever a handler raises is a failed attempt
            if database.closed:
                return self._closed(message, error)
            return self.retries.failed(database, message, error, gone=True)
        if database.closed:
            return self._closed(message, None)
        self._step("committed")
        return Outcome(Kind.HANDLED, message.row_version, message.id)

    def _commit(self, message: Message, operations: list[Operation]) -> Outcome:
        database = self.database
        try:
            self.retries.forget(database, message)
            if operations and self._processing.transaction_mode == "receive_only":
                self._processing.dispatch(database.beside(), operations, begin=True, commit=True)
                self._step("sent")
                operations = []
            if self._scope.active:
                self._scope.prepare(database)
            self._step("before commit")
            if operations:
                self._processing.dispatch(database, operations, commit=True)
            else:
                database.commit()
        except DatabaseUnavailable:
            raise
        except RowpostError as error:
            self._scope.undecided()
            # a deferred constraint, a serialization failure: what the handler did cannot be kept
            if database.in_transaction or self._rolled_back_by_server(error):
                roll_back(database)  # before counting: forget_failure may hold the count's row
                return self.retries.failed(database, message, error)
            return self.retries.failed(database, message, self._broken("ended the transaction", error), gone=True)
        self._step("committed")
        if self._scope.active:
            self._scope.complete()
        return Outcome(Kind.HANDLED, message.row_version, message.id)

    def _raised(self, message: Message, error: BaseException, guarded: bool, sealed: bool) -> Outcome:
        """The handler raised. An error of SQL Server often rolls back by itself: that is no fault of the handler."""
        database = self.database
        if database.closed:
            return self._closed(message, error)
        if sealed and self._is_conflict(error):  # its neighbours' locks may be to blame: alone it may go through
            roll_back(database)
            return DEADLOCKED
        if self._lender.ended is None and (
            database.in_transaction or (database.engine == "sqlserver" and self._from_database(error))
        ):
            return self.retries.failed(database, message, error, guarded=guarded)
        return self._ended(message, error, sealed)

    def _ended(self, message: Message, error: BaseException | None, sealed: bool) -> Outcome:
        """The handler's SQL ended the transaction. After a COMMIT, or where nobody saw it, the message may be gone for
        good, unless it was `sealed`; after a ROLLBACK it is in its place, and may be another worker's by now."""
        broken = error if isinstance(error, HandlerBrokeTransaction) else self._broken("ended the transaction", error)
        gone = not sealed and self._lender.ended != "ROLLBACK"
        return self.retries.failed(self.database, message, broken, gone=gone)

    def _rolled_back_by_server(self, error: RowpostError) -> bool:
        """Where the handler left its transaction open, a failing commit has undone it.

        PostgreSQL's was open: that was asked before. SQL Server rolls back a batch that fails, such as a send to no
        queue; 3902: its COMMIT found no transaction.
        """
        return self.database.engine == "postgresql" or "(3902)" not in str(error.__cause__)

    def _from_database(self, error: BaseException) -> bool:
        return isinstance(error, (DatabaseError, CatalogueError, self.database.dialect.driver_error()))

    def _is_conflict(self, error: BaseException) -> bool:
        dialect = self.database.dialect
        said = dialect.translate(error) if isinstance(error, dialect.driver_error()) else error
        return isinstance(said, (Deadlock, SagaConflict))

    def _closed(self, message: Message, error: BaseException | None) -> Outcome:
        """The connection is gone: lost, or closed by the handler. Either way the server has rolled back."""
        if getattr(self.database.driver_connection, "broken", False):
            raise DatabaseUnavailable(f"the connection was lost while a message of queue {self.queue!r} was handled") from error
        broken = self._broken("closed the connection", error)
        if self._reconnect is None:
            raise broken
        self.database = self._reconnect()
        return self.retries.failed(self.database, message, broken, gone=not self._transactional)

    def _broken(self, what: str, error: BaseException | None = None) -> HandlerBrokeTransaction:
        broken = broke(self.queue, what)
        broken.__cause__ = error
        return broken
