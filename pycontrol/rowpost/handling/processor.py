"""What the pipeline needs of the endpoint that processes its messages: the protocol `Processor`, and `Receiver` with
what its modes share.

`endpoint.endpoint.Endpoint` implements the protocol. It is here so that the pipeline and the outbox import nothing
above them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Commit
from rowpost.recoverability.outcome import Discard, InterruptedAttempt
from rowpost.recoverability.policy import Host, Recoverability
from rowpost.recoverability.retries import Retries
from rowpost.transactions.scope import Scope
from rowpost.wire.headers import MESSAGE_INTENT, RETURN_CODE
from rowpost.wire.message import Message
from rowpost.wire.outgoing import Call, Outgoing

__all__ = ["Caused", "Processor", "Receiver", "control_message"]


@dataclass(slots=True)
class Caused:
    """What the handlers of one message caused.

    Attributes:
        outgoing: what they sent and what their sagas store. Nothing of it is sent yet.
        discard: why they discarded the message; None if at least one of them handled it.
        audit_headers: headers that only the audit copy gets; None for none.
    """

    outgoing: list[Outgoing]
    discard: Discard | None = None
    audit_headers: Mapping[str, str | None] | None = None


def control_message(headers: Mapping[str, str | None]) -> Discard:
    """Return why a control message is dropped: a message of the transport itself, for which no handler can be
    registered.
    """
    if RETURN_CODE in headers:
        return Discard(
            f"it is the reply {headers[RETURN_CODE] or ''!r:.100} to a request, which is a number or an enum, and no "
            "handler can be registered for it"
        )
    return Discard(
        f"it is a control message with the intent {headers.get(MESSAGE_INTENT) or 'none'}, which rowpost does not "
        "understand"
    )


class Processor(Protocol):
    """Processes the messages of one queue and sends what they caused.

    Attributes:
        transaction_mode: what a transaction spans; one of `transactions.scope.MODES`.
        participants: URLs or names, by name, of the databases that may take part in mode `transaction_scope`.
        outbox: the `outbox.declaration.Outbox`, if the business data is in another database; else None.
        recoverability: how often and when a failing message is retried.
        error_queue: the queue for messages that cannot be handled.
        host: who handles the messages, for the error queue.
    """

    transaction_mode: str
    participants: Mapping[str, str]
    outbox: Any
    recoverability: Recoverability
    error_queue: str
    host: Host

    @property
    def leases(self) -> bool:
        """Whether all messages are leased."""

    def handle(self, message: Message, database: Connection, scope: Scope) -> Caused:
        """Run the handlers of a message; return what they caused. Nothing is sent yet.

        Raises:
            Exception: whatever a handler raises.
        """

    def leases_message(self, message: Message) -> bool:
        """Return whether a message is to be leased, although the endpoint does not lease all of them."""

    def acknowledge(self, headers: Mapping[str, str | None]) -> Sequence[Outgoing]:
        """Return what tells ServiceControl that a message with these headers was handled, if it has retried it."""

    def store(self, database: Connection, outgoing: list[Outgoing]) -> list[Outgoing]:
        """Make the calls among the outgoing messages now; return the messages, which are sent later."""

    def in_lock_order(self, messages: list[Message]) -> list[Message]:
        """Return the messages of a batch in the order in which all workers lock what they share."""

    def dispatch(
        self,
        database: Connection,
        groups: list[list[Outgoing]],
        *,
        begin: bool = False,
        commit: Commit = False,
        also: Iterable[Call] = (),
    ) -> None:
        """Send what one or several messages caused, a group for each, in one round trip with BEGIN, COMMIT and the
        calls of `also`.
        """


@dataclass
class Receiver:
    """What a pipeline and its mode share.

    Attributes:
        database: the receiving connection. It is replaced if a handler closes it.
        queue: the queue's name.
        processor: runs the handlers.
        retries: treats failed attempts.
        reconnect: opens a new receiving connection; None if that is not possible.
        steps: are called with the name of each step of a message.
        interrupted: the message whose handler was running when the connection was lost.
        broken: set if a handler may have committed the transaction of a batch, and with it the removal of other
            messages.
    """

    database: Connection
    queue: str
    processor: Processor
    retries: Retries
    reconnect: Callable[[], Connection] | None
    steps: tuple[Callable[[str], None], ...] = ()
    interrupted: InterruptedAttempt | None = None
    broken: BaseException | None = None

    def step(self, name: str) -> None:
        """Tell the observers about a step of a message."""
        for step in self.steps:
            step(name)
