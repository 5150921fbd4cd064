"""Choose how received messages are handled: one class for each transaction mode.

`choose_mode` picks the class once, when a worker opens its pipeline. Each class implements `Mode`:

    NoTransaction            none                        the removal is committed before the handler runs
    ReceiveOnly              receive_only                messages are sent before the removal commits, in a transaction of their own
    SendsAtomicWithReceive   sends_atomic_with_receive   one transaction for the removal, the handler's SQL and what is sent
    TransactionScope         transaction_scope           the same, and other databases commit with it (two-phase commit)
    OutboxProcessing         receive_only with an outbox: `outbox.processing`
    Leased, LeasedOutbox     receive="lease": no transaction while the handler works: `pipeline.lease`, `pipeline.leased_outbox`

The modes with a receiving transaction share `within_transaction.WithinTransaction`.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Begin
from rowpost.database.pool import Connections
from rowpost.errors import DatabaseUnavailable, RowpostError
from rowpost.handling.processor import Caused, Processor, Receiver
from rowpost.outbox.declaration import open_business
from rowpost.outbox.processing import OutboxProcessing
from rowpost.pipeline.lease import Leased, LeasedByType, Leasing
from rowpost.pipeline.leased_outbox import LeasedOutbox
from rowpost.pipeline.within_transaction import ReceiveOnly, SendsAtomicWithReceive, WithinTransaction
from rowpost.recoverability.outcome import Outcome, RowState
from rowpost.recoverability.stopping import STOP, HandlerInterrupted
from rowpost.settings.environment import Settings
from rowpost.settings.secrets import resolve_participants
from rowpost.transactions.coordinator import Coordinator
from rowpost.transactions.guard import broken_transaction, connection_guard
from rowpost.transactions.scope import NamedDatabases, OneDatabase, Scope, begin_scope
from rowpost.wire.message import Message
from rowpost.wire.outgoing import Outgoing

__all__ = [
    "Mode",
    "NoTransaction",
    "OtherDatabases",
    "TransactionScope",
    "business_of",
    "choose_lease",
    "choose_mode",
    "others_of",
]


class Mode(Protocol):
    """Handles received messages in one transaction mode.

    Attributes:
        begin: how the transaction begins in which messages are received.
        row: the state of a message's row after it was received.
        takes_expired: whether `handle` gets expired messages too.
        handler_seconds: how long the last handler ran.
    """

    begin: Begin
    row: RowState
    takes_expired: bool
    handler_seconds: float

    @property
    def connections(self) -> Sequence[Connection]:
        """The connections that a handler may use beside the receiving one."""

    def handle(self, message: Message) -> Outcome:
        """Handle a message that was just received."""

    def settle(self) -> None:
        """Do what can wait until the queue is empty. No transaction is open."""

    def recover(self) -> None:
        """End what an earlier worker left in doubt."""

    def close(self) -> None:
        """Do what is left and close other connections. The caller closes the receiving connection."""


@dataclass(frozen=True)
class OtherDatabases:
    """The databases of an environment that handlers may use beside the queue's, by name.

    Attributes:
        participants: the URLs of participants in distributed transactions. An endpoint's own are added.
        outboxes: the URLs of business databases.
    """

    participants: Mapping[str, str] = field(default_factory=dict)
    outboxes: Mapping[str, str] = field(default_factory=dict)


def others_of(settings: Settings) -> OtherDatabases:
    """Return the other databases of an environment."""
    return OtherDatabases(dict(settings.participants), {each.name: each.url for each in settings.outboxes})


def choose_mode(receiver: Receiver, others: OtherDatabases) -> Mode:
    """Return the mode of a processor.

    Args:
        receiver: what the pipeline and the mode share.
        others: the environment's other databases.

    Raises:
        SettingsError: the business database of an outbox is not known, or a participant is not usable.
    """
    processor = receiver.processor
    if processor.outbox is not None:
        return OutboxProcessing(receiver, others.outboxes)
    if processor.transaction_mode == "transaction_scope":
        return TransactionScope(receiver, resolve_participants(others.participants, processor.participants))
    classes: dict[str, Callable[[Receiver], Mode]] = {
        "none": NoTransaction,
        "receive_only": ReceiveOnly,
        "sends_atomic_with_receive": SendsAtomicWithReceive,
    }
    return classes[processor.transaction_mode](receiver)


def business_of(processor: Processor, queue: str, others: OtherDatabases) -> Connections | None:
    """Return what lends connections to the business database of a processor that leases its messages.

    None if it has no outbox.

    Raises:
        SettingsError: the business database is not known.
    """
    if processor.outbox is None:
        return None
    return Connections(partial(open_business, processor.outbox.find_url(others.outboxes), f"rowpost outbox {queue}"))


def choose_lease(receiver: Receiver, leasing: Leasing) -> Leased | LeasedByType:
    """Return the mode of a processor that leases its messages, or those of some types."""
    if not receiver.processor.leases:
        return LeasedByType(receiver, leasing)
    return Leased(receiver, leasing) if leasing.business is None else LeasedOutbox(receiver, leasing, leasing.business)


class NoTransaction:
    """Mode `none`: the message is removed before its handler runs, so it is handled at most once.

    If the handler fails, the message moves to the error queue. It exists only in memory then (`RowState.REMOVED`).
    """

    begin: Begin = False
    row = RowState.REMOVED
    takes_expired = False
    handler_seconds = 0.0
    connections: Sequence[Connection] = ()

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._scope: Scope = OneDatabase("none")
        self._guarded = receiver.database
        self._guard = connection_guard(receiver.database, receiver.queue, own_transactions=True)

    def handle(self, message: Message) -> Outcome:
        """Run the handler, then send what it sent in a transaction of its own."""
        receiver, database = self._receiver, self._receiver.database
        caused = Caused([])
        failure: BaseException | None = None
        try:
            caused = self._run(message, database)
            receiver.step("handled")
            if not database.closed and database.in_transaction:
                failure = broken_transaction(receiver.queue, "left a transaction open on the connection")
            elif caused.outgoing and not database.closed:
                receiver.processor.dispatch(database, [caused.outgoing], begin=True, commit=True)
        except (Exception, SystemExit, HandlerInterrupted) as error:  # noqa: BLE001 whatever a handler raises is a failed attempt
            failure = error
        if database.closed:
            failure = self._reopen(failure)
        if failure is not None:
            return receiver.retries.failed(receiver.database, message, failure, RowState.REMOVED)
        receiver.step("committed")
        return Outcome.done(message, caused.discard)

    def _run(self, message: Message, database: Connection) -> Caused:
        if database is not self._guarded:  # a handler closed the one before
            self._guarded, self._guard = (
                database,
                connection_guard(database, self._receiver.queue, own_transactions=True),
            )
        self._guard.start(message, in_place=database.handed_out)
        database.guard = self._guard
        try:
            with STOP:
                return self._receiver.processor.handle(message, database, self._scope)
        finally:
            self._guard.stop()
            database.guard = None

    def _reopen(self, failure: BaseException | None) -> BaseException:
        """Return the error for a closed connection, and open another one if possible.

        If that fails, the closed connection stays. Then storing the message fails on it, and is tried on a new
        connection.
        """
        receiver = self._receiver
        if receiver.reconnect is not None:
            try:
                receiver.database = receiver.reconnect()
            except RowpostError as error:
                error.__cause__ = failure
                return error
        return broken_transaction(receiver.queue, "closed the connection", failure)

    def settle(self) -> None: ...
    def recover(self) -> None: ...
    def close(self) -> None: ...


class TransactionScope(WithinTransaction):
    """Mode `transaction_scope`: databases that the handler enlists commit together with the message.

    On PostgreSQL the coordinator does a two-phase commit. On SQL Server the receiving connection reaches the other
    databases.
    """

    name = "transaction_scope"

    def __init__(self, receiver: Receiver, participants: Mapping[str, str]) -> None:
        database = receiver.database
        self._coordinator: Coordinator | None = None
        scope: Scope
        if database.engine == "postgresql":
            scope = self._coordinator = Coordinator(receiver.queue, participants, receiver.step)
        else:
            scope = NamedDatabases(participants)
        super().__init__(receiver, scope)
        self.begin = begin_scope(database.engine, participants)

    def handle(self, message: Message) -> Outcome:
        """Run the handler and commit everywhere, or roll back everywhere.

        Raises:
            ParticipantFailed: the attempt failed and a participant cannot be reached. It is not counted, because every
                other message would fail in the same way: the worker waits instead.
        """
        if self._coordinator is not None:
            self._coordinator.unreachable, self._coordinator.message = None, message
        try:
            return super().handle(message)
        finally:
            if self._coordinator is not None and self._coordinator.active:  # not committed, whatever the reason
                self._coordinator.rollback()

    def _handler_ended(self, batched: bool) -> DatabaseUnavailable | None:
        lost = super()._handler_ended(batched)
        if self._coordinator is not None:
            self._coordinator.stop_guards()
        return lost

    def _before_commit(self, database: Connection, outgoing: list[Outgoing]) -> list[Outgoing]:
        if self._coordinator is not None and self._coordinator.active:
            self._coordinator.prepare(database)
        return outgoing

    def _after_commit(self) -> None:
        if self._coordinator is not None and self._coordinator.active:
            self._coordinator.complete()

    def _commit_failed(self, message: Message, error: Exception) -> Outcome:
        if self._coordinator is not None:
            self._coordinator.not_decided()
        self._check_outage(error)
        return super()._commit_failed(message, error)

    def _failed(self, message: Message, error: BaseException | None, row: RowState, batched: bool) -> Outcome:
        if not self._receiver.database.closed and self._transaction.ended is None:
            self._check_outage(error)
        return super()._failed(message, error, row, batched)

    def _check_outage(self, error: BaseException | None) -> None:
        """Raise ParticipantFailed if a participant cannot be reached. The caller's ReceiveTransaction rolls back."""
        outage = None if self._coordinator is None else self._coordinator.find_outage()
        if outage is not None:
            raise outage from (None if error is outage else error)

    def settle(self) -> None:
        """Forget decisions that all participants have carried out, and end what is in doubt."""
        if self._coordinator is not None:
            self._coordinator.settle(self._receiver.database)

    def recover(self) -> None:
        """End transactions that an earlier worker left in doubt."""
        if self._coordinator is not None:
            self._coordinator.recover(self._receiver.database)

    def close(self) -> None:
        """Forget decisions if possible, and close the connections to participants."""
        if self._coordinator is not None:
            self._coordinator.close(self._receiver.database)
