"""What a handler is given, and what a sender outside a handler works with.

Both collect what is sent; it leaves together, in one round trip, when the handler has returned or the block has ended.
A failing handler leaves nothing behind. Headers follow the wire (reference 2.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rowpost.database.connection import Connection
from rowpost.errors import InvalidDelay, InvalidMessage, SettingsError
from rowpost.wire.headers import (
    CONTENT_TYPE,
    CONVERSATION_ID,
    CORRELATION_ID,
    DELIVER_AT,
    ENCLOSED_MESSAGE_TYPES,
    MESSAGE_ID,
    MESSAGE_INTENT,
    ORIGINATING_ENDPOINT,
    ORIGINATING_HOST_ID,
    ORIGINATING_MACHINE,
    ORIGINATING_SAGA_ID,
    ORIGINATING_SAGA_TYPE,
    RELATED_TO,
    REPLY_TO_ADDRESS,
    SAGA_ID,
    SAGA_TYPE,
    TIME_SENT,
)
from rowpost.wire.message import Message, format_timestamp, new_id
from rowpost.wire.message_types import enclosed_type_names, type_names
from rowpost.wire.operation import Call, Operation

if TYPE_CHECKING:
    from rowpost.endpoint.endpoint import Endpoint
    from rowpost.transactions.modes import Scope

__all__ = ["Bus", "Context"]


class Bus:
    """Sends and publishes for an endpoint, outside of any handler."""

    def __init__(self, endpoint: Endpoint, database: Connection) -> None:
        self.endpoint = endpoint
        self.database = database
        self.operations: list[Operation | Call] = []

    @property
    def connection(self) -> Any:
        """The driver's connection, for the business data of the same transaction."""
        return self.database.driver_connection

    def send(
        self,
        message: Any,
        to: str | None = None,
        *,
        delay: timedelta | None = None,
        time_to_be_received: timedelta | None = None,
        headers: Mapping[str, str | None] | None = None,
        immediate: bool = False,
    ) -> str:
        """Sends a message to a queue, or where the endpoint's routes lead; returns its message id.

        Args:
            message: of a message class, or bytes with their type among `headers`.
            to: name or address of a queue; None takes the route of the message's type.
            delay: it is handled no earlier, by the server's clock; negative is at once.
            time_to_be_received: it expires after it. Not together with a delay (reference F4).
            headers: added to the standard ones, or instead of them.
            immediate: leave now, whatever becomes of the handler.
        """
        destination = to or self.endpoint.route_of(type(message))
        if delay is not None and time_to_be_received is not None:
            raise InvalidMessage(
                "A delay and a time to be received exclude each other: nobody could say from when the time counts. "
                "Leave one out."
            )
        return self._collect(
            message, "Send", headers, immediate, destination=destination, delay=delay, time_to_be_received=time_to_be_received
        )

    def publish(
        self, event: Any, *, headers: Mapping[str, str | None] | None = None, immediate: bool = False
    ) -> str:
        """Publishes an event to everybody subscribed to its type or to a type it derives from; returns its message id."""
        return self._collect(event, "Publish", headers, immediate, topics=type_names(type(event)))

    def request(
        self,
        message: Any,
        to: str | None = None,
        *,
        timeout: timedelta,
        headers: Mapping[str, str | None] | None = None,
    ) -> Any:
        """Sends a request at once, in a transaction of its own, waits for the reply, and returns it.

        Args:
            message, to, headers: as for `send`.
            timeout: how long to wait.

        Returns:
            The reply, of its class where this program knows it (callbacks.py), else its bytes.

        Raises:
            NoReply: none came in time; one that comes later is logged and dropped.
            SettingsError: the endpoint has no `instance`, so that no queue is its own.
            PermissionDenied: that queue is missing, and the login may not make it.
        """
        return self.endpoint.callbacks(self.database).request(message, to, timeout=timeout, headers=headers)

    def _collect(
        self, message: Any, intent: str, extra: Mapping[str, str | None] | None, immediate: bool, **where: Any
    ) -> str:
        headers = self._headers(message, intent)
        headers.update(extra or {})
        body = message if isinstance(message, bytes) else self.endpoint.serializers.default.encode(message)
        if where.get("delay") is not None:
            try:
                due = datetime.now(UTC) + where["delay"]
            except OverflowError as error:
                text = f"A delay of {where['delay']} leads beyond the calendar: 100 years at most."
                raise InvalidDelay(text) from error
            headers.setdefault(DELIVER_AT, format_timestamp(due))
        operation = Operation(headers, body, **where)
        if immediate:
            self.endpoint.dispatch_isolated(self.database, [operation])
        else:
            self.operations.append(operation)
        return str(headers[MESSAGE_ID])

    def _headers(self, message: Any, intent: str) -> dict[str, str | None]:
        message_id = new_id()
        headers: dict[str, str | None] = {
            MESSAGE_ID: message_id,
            MESSAGE_INTENT: intent,
            CONVERSATION_ID: self._conversation(),
            CORRELATION_ID: message_id,
            ORIGINATING_ENDPOINT: self.endpoint.name,
            ORIGINATING_MACHINE: self.endpoint.host.machine,
            ORIGINATING_HOST_ID: self.endpoint.host.id,
            TIME_SENT: format_timestamp(datetime.now(UTC)),
        }
        if not isinstance(message, bytes):
            headers[ENCLOSED_MESSAGE_TYPES] = enclosed_type_names(message)
            headers[CONTENT_TYPE] = self.endpoint.serializers.default.content_type
        if not self.endpoint.send_only:
            headers[REPLY_TO_ADDRESS] = self.endpoint.reply_address(self.database)
        return headers

    def _conversation(self) -> str:
        return new_id()


class Context(Bus):
    """A handler's view of the message in hand. What it sends belongs to the message's conversation."""

    def __init__(
        self, endpoint: Endpoint, database: Connection, message: Message, scope: Scope | None = None
    ) -> None:
        super().__init__(endpoint, database)
        self.scope = scope
        self.incoming = message
        #: a copy: what a failing handler changes here never reaches a retry or the error queue (statement 65)
        self.headers = dict(message.headers)
        #: what the audit's copy bears besides
        self.audit_headers: dict[str, str | None] = {}

    @property
    def connection(self) -> Any:
        """The driver's connection for the business data, which commit with the message; with an outbox, to their database."""
        return self.database.driver_connection if self.scope is None else self.scope.home(self.database).driver_connection

    @property
    def message_id(self) -> str:
        """Id of the message in hand."""
        return self.incoming.message_id

    @property
    def body(self) -> bytes:
        """Its raw bytes."""
        return self.incoming.body

    def enlist(self, participant: Any) -> Any:
        """The connection to another database, in a transaction that commits or rolls back with this message.

        Args:
            participant: a name among the participants of the endpoint or of the environment; on PostgreSQL also a
                connection of psycopg to one of them.

        Raises:
            SettingsError: the endpoint's mode is not transaction_scope, or there is no such participant.
            ParticipantFailed: it cannot be reached.
        """
        if self.scope is None:
            raise SettingsError("This message is handled outside of the pipeline: no other database can take part.")
        return self.scope.enlist(participant, self.database)

    def reply(
        self, message: Any, *, headers: Mapping[str, str | None] | None = None, immediate: bool = False
    ) -> str:
        """Answers to the address that the message in hand names; returns the reply's message id.

        Raises:
            InvalidMessage: it names none.
        """
        address = self.incoming.reply_to
        if address is None:
            raise InvalidMessage(
                f"Message {self.message_id} bears no {REPLY_TO_ADDRESS}: its sender wants no reply. Send to a queue by name."
            )
        extra = {**self._saga_of_the_request(), **(headers or {})}
        return self._collect(message, "Reply", extra, immediate, destination=address)

    def request(self, *_: Any, **__: Any) -> Any:
        """Refused: a handler that waited would hold its message's transaction, and a worker, as long.

        Raises:
            InvalidMessage: always.
        """
        raise InvalidMessage(
            "A handler cannot wait for a reply: its message would stay locked meanwhile. Send, and handle the reply when "
            "it comes."
        )

    def forward_current_message_to(self, destination: str) -> None:
        """Sends a copy of the message in hand on, with its headers and body as they came (reference I13)."""
        self.operations.append(Operation(dict(self.incoming.headers), self.incoming.body, destination))

    def _saga_of_the_request(self) -> dict[str, str | None]:
        """A reply to a saga names the saga (reference 2.4)."""
        incoming = self.incoming.headers
        pairs = ((SAGA_ID, ORIGINATING_SAGA_ID), (SAGA_TYPE, ORIGINATING_SAGA_TYPE))
        return {ours: incoming[theirs] for ours, theirs in pairs if incoming.get(theirs)}

    def _headers(self, message: Any, intent: str) -> dict[str, str | None]:
        headers = super()._headers(message, intent)
        incoming = self.incoming.headers
        headers[RELATED_TO] = self.message_id
        headers[CORRELATION_ID] = incoming.get(CORRELATION_ID) or self.message_id
        return headers

    def _conversation(self) -> str:
        return self.incoming.headers.get(CONVERSATION_ID) or new_id()
