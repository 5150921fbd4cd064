"""Send and publish messages: `Context` inside a handler, `Bus` outside of handlers.

Both collect the messages. All of them are sent in one round trip when the handler returns or the block of
`Endpoint.open` ends. If the handler or the block raises, nothing is sent. The headers are those that NServiceBus
endpoints write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rowpost.database.connection import Connection
from rowpost.errors import HandlerEnded, InvalidMessage, ReplyRefused, SettingsError
from rowpost.handling.arguments import (
    check_conversation,
    check_delay,
    check_flag,
    check_headers,
    check_lifetime,
    check_named,
    check_text,
    check_time,
)
from rowpost.handling.django_connection import django_connection
from rowpost.handling.mapped_session import MappedSession
from rowpost.handling.observer import SendSpan
from rowpost.handling.sender import Sender
from rowpost.handling.sending import Intent, Sending, send_through
from rowpost.recoverability.outcome import Discard
from rowpost.recoverability.stopping import STOP
from rowpost.transactions.guard import used_late
from rowpost.transactions.leases import LeaseScope, Lend
from rowpost.transactions.scope import Scope
from rowpost.transport.duplicates import check_same
from rowpost.wire.address import parse_address
from rowpost.wire.dotnet_values import time_span
from rowpost.wire.headers import (
    CONTENT_TYPE,
    CONVERSATION_ID,
    CORRELATION_ID,
    DELIVER_AT,
    ENCLOSED_MESSAGE_TYPES,
    MESSAGE_ID,
    MESSAGE_INTENT,
    METRIC_INSTANCE_ID,
    ORIGINATING_ENDPOINT,
    ORIGINATING_HOST_ID,
    ORIGINATING_MACHINE,
    PREVIOUS_CONVERSATION_ID,
    RELATED_TO,
    REPLY_TO_ADDRESS,
    START_NEW_TRACE,
    TIME_SENT,
    TIME_TO_BE_RECEIVED,
    TRACE_PARENT,
    W3C_TRACE,
    saga_of_the_request,
)  # fmt: skip
from rowpost.wire.message import Message, format_timestamp, moment_after, new_id, timestamp_now
from rowpost.wire.message_types import KIND, check_kind, enclosed_type_names, named_types, time_to_be_received_of
from rowpost.wire.outgoing import AddressedMessage, Outgoing
from rowpost.wire.return_codes import as_return_code

__all__ = ["Bus", "Context"]

#: what is gone after the end; the message itself and its headers can still be read
_ENDS = frozenset({"endpoint", "database", "outgoing", "discards", "audit_headers", "scope"})


class Bus:
    """Sends and publishes for an endpoint, outside of handlers. Its arguments are checked when it is called.

    What it collects is sent at the end. What came later would never be sent, and SQL on its connection would be part of
    another message's transaction. So `end` takes away everything that sending and SQL need. A use of it raises
    `HandlerEnded` then, and while the message is handled nothing has to be checked.

    Attributes:
        endpoint: the sending endpoint.
        database: the connection on which the messages will be sent.
        outgoing: what was collected so far.
    """

    #: the endpoint's name, after the end
    _ended: str | None = None
    #: what is sent belongs to this conversation; None: each message starts one
    _conversation: str | None = None

    def __init__(self, endpoint: Sender, database: Connection) -> None:
        self.endpoint = endpoint
        self.database = database
        self.outgoing: list[Outgoing] = []
        #: by message id
        self._collected: dict[str, list[AddressedMessage]] = {}

    @property
    def connection(self) -> Any:
        """The driver's connection. SQL on it belongs to the transaction in which the messages are sent."""
        return self.database.driver_connection

    def send(
        self,
        message: Any,
        to: str | None = None,
        *,
        delay: timedelta | datetime | None = None,
        time_to_be_received: timedelta | None = None,
        instance: str | None = None,
        reply_to: str | None = None,
        message_id: str | None = None,
        headers: Mapping[str, str | None] | None = None,
        new_conversation: bool | str = False,
        immediate: bool = False,
    ) -> str:
        """Send a message to a queue, and return its message id.

        Args:
            message: an instance of a message class, or bytes with their type among `headers`.
            to: name or address of the destination. None uses the endpoint's route for the message's class.
            delay: the message is handled no earlier than after this time, by the server's clock, or at this moment,
                which has a time zone. A negative delay counts as 0.
            time_to_be_received: the message expires after this time. None uses that of the message's class. Neither of
                them together with `delay`.
            instance: the process of the destination that gets the message: its queue is `<destination>.<instance>`.
            reply_to: name or address of the queue that gets the replies; None for the endpoint's `reply_address`.
            message_id: the message's own id, if not a new one.
            headers: are added to the standard headers and replace those of the same name. In a handler, this excludes
                the ConversationId.
            new_conversation: True, or the id of a conversation: the message does not belong to the conversation of the
                message that is handled, and names that one as the previous one.
            immediate: send the message now, in a transaction of its own. It stays sent if the handler fails.

        Raises:
            InvalidMessage: no route leads to a destination, there are both a delay and a time to be received, an
                argument has another type, another message with this id was sent to this destination, the message is an
                event, or its class has no name that a receiver can know, such as dict.
            InvalidDelay: the delay is longer than the calendar, or the moment has no time zone.
            InvalidQueueName: an address cannot be read.
        """
        destination = self.endpoint.resolve(
            self.endpoint.route_of(type(message)) if to is None else check_text("to", to)
        )
        address = parse_address(destination)
        if instance is not None:
            destination = replace(address, table=f"{address.table}.{check_text('instance', instance)}").format()
        if headers is not None:
            headers = check_headers(headers)
        if reply_to is not None:
            reply_to = self.endpoint.resolve(check_text("reply_to", reply_to))
            headers = {REPLY_TO_ADDRESS: self.database.canonical(parse_address(reply_to)), **(headers or {})}
        if message_id is not None:
            headers = {MESSAGE_ID: check_text("message_id", message_id, may_be_empty=True), **(headers or {})}
        if delay is not None:
            delay = check_delay("delay", delay)
        elif time_to_be_received is None:
            time_to_be_received = time_to_be_received_of(type(message))
        return self._collect(
            message, "Send", headers, immediate, destination=destination, delay=delay,
            time_to_be_received=time_to_be_received, new_conversation=new_conversation,
        )  # fmt: skip

    def send_local(self, message: Any, **options: Any) -> str:
        """Send a message to the endpoint's own queue, and return its message id. The options are those of `send`.

        Raises:
            InvalidMessage: the endpoint only sends, so that it has no queue; or as `send`.
        """
        if self.endpoint.send_only:
            raise InvalidMessage(
                f"{self.endpoint.name} cannot send to itself: it only sends and has no queue. Name a queue with "
                "send(…, to=…)."
            )
        return self.send(message, self.endpoint.queue, **options)

    def publish(
        self,
        event: Any,
        *,
        time_to_be_received: timedelta | None = None,
        message_id: str | None = None,
        headers: Mapping[str, str | None] | None = None,
        new_conversation: bool | str = False,
        immediate: bool = False,
    ) -> str:
        """Publish an event to the subscribers of its type and of its base types, and return its message id.

        Args:
            event: an instance of a message class.
            time_to_be_received: each copy expires after this time. None uses that of the event's class.
            message_id: the event's own id, if not a new one.
            headers: as for `send`.
            new_conversation: as for `send`.
            immediate: publish the event now, in a transaction of its own. It stays published if the handler fails.

        Raises:
            InvalidMessage: an argument has another type, another event with this id was published, or the message is a
                command.
        """
        time = time_to_be_received if time_to_be_received is not None else time_to_be_received_of(type(event))
        if headers is not None:
            headers = check_headers(headers)
        if message_id is not None:
            headers = {MESSAGE_ID: check_text("message_id", message_id, may_be_empty=True), **(headers or {})}
        return self._collect(
            event, "Publish", headers, immediate, topics=named_types(type(event)), time_to_be_received=time,
            new_conversation=new_conversation,
        )  # fmt: skip

    def request(self, message: Any, to: str | None = None, *, timeout: timedelta, **options: Any) -> Any:
        """Send a request now, in a transaction of its own, wait for the reply, and return it.

        Args:
            message: as for `send`.
            to: as for `send`.
            timeout: how long to wait.
            options: `headers`, `reply` and `on_interim`, see `endpoint.callbacks.Callbacks.submit`.

        Returns:
            The reply as an instance of its class, if this program declares the class; an int, if it is a number or an
            enum; else its bytes.

        Raises:
            NoReply: no reply arrived in time. A later reply is logged and dropped.
            UnexpectedReply: the reply is of another class than `reply`.
            SettingsError: the endpoint has no `instance`, so that no queue receives its replies.
            PermissionDenied: the queue for replies is missing, and the login may not create it.
        """
        check_time("timeout", timeout)
        return self.endpoint.callbacks(self.database).request(message, to, timeout=timeout, **options)

    def _collect(
        self,
        message: Any,
        intent: Intent,
        extra: Mapping[str, str | None] | None,
        immediate: bool,
        *,
        destination: str | None = None,
        topics: tuple[str, ...] = (),
        delay: timedelta | None = None,
        time_to_be_received: timedelta | None = None,
        new_conversation: bool | str = False,
        span: SendSpan | None = None,
    ) -> str:
        if span is None and self.endpoint.tracing is not None:
            with self.endpoint.tracing.sending(intent) as started:
                return Bus._collect(
                    self, message, intent, extra, immediate, destination=destination, topics=topics, delay=delay,
                    time_to_be_received=time_to_be_received, new_conversation=new_conversation, span=started,
                )  # fmt: skip
        if intent == "Reply":
            message, extra = as_return_code(message, extra)
        if getattr(type(message), KIND, None) is not None:
            check_kind(type(message), intent)
        headers = self._headers(message, intent)
        if span is not None:
            span.write(headers)
        if extra or new_conversation is not False:
            self._add_headers(headers, extra or {}, new_conversation)
        if intent != "Reply":
            starts = intent == "Publish" or (delay is not None and TRACE_PARENT in headers)
            headers.setdefault(START_NEW_TRACE, "True" if starts else "False")
        if time_to_be_received is not None:
            check_time("time_to_be_received", time_to_be_received)
            headers.setdefault(TIME_TO_BE_RECEIVED, time_span(time_to_be_received))
        body = (
            message
            if isinstance(message, bytes)
            else self.endpoint.serializers.default.encode(check_named(message, headers))
        )
        if delay is not None:
            check_lifetime(type(message), time_to_be_received)
            headers.setdefault(DELIVER_AT, format_timestamp(moment_after(delay)))
        addressed = AddressedMessage(headers, body, destination, topics, delay, time_to_be_received)
        if immediate is not False:
            check_flag("immediate", immediate)
        if not self.endpoint.sends_through:
            return self._send_or_add(addressed, immediate)
        sending = Sending(intent, headers, destination, self)

        def send(given: dict[str, str | None]) -> None:
            sending.headers = given
            self._send_or_add(addressed._replace(headers=given), immediate)

        send_through(self.endpoint.sends_through, message, sending, send)
        return str(sending.headers[MESSAGE_ID])

    def _send_or_add(self, addressed: AddressedMessage, immediate: bool) -> str:
        """Collect a message, or send it now. Return its id."""
        if not immediate:
            self._add(addressed)
        else:
            with self.database.aside() as second:
                self.endpoint.dispatch(second, [[addressed]], begin=True, commit=True)
        return str(addressed.headers[MESSAGE_ID])

    def _add_headers(
        self, headers: dict[str, str | None], extra: Mapping[str, str | None], new_conversation: bool | str
    ) -> None:
        """Add what the caller gives to the headers of a message."""
        if new_conversation is not False:
            given = check_text("new_conversation", new_id() if new_conversation is True else new_conversation)
            headers[CONVERSATION_ID] = given
            if self._conversation:
                headers[PREVIOUS_CONVERSATION_ID] = self._conversation
        if CONVERSATION_ID in extra and (self._conversation or new_conversation is not False):
            check_conversation(extra[CONVERSATION_ID], headers[CONVERSATION_ID])
        if MESSAGE_ID in extra:
            if not extra[MESSAGE_ID]:
                raise InvalidMessage("A message cannot have an empty id. Leave message_id out for a new one.")
            if headers[CORRELATION_ID] == headers[MESSAGE_ID]:  # outside of handlers, the first of its correlation
                headers[CORRELATION_ID] = extra[MESSAGE_ID]
        headers.update(extra)

    def _headers(self, message: Any, intent: str) -> dict[str, str | None]:
        endpoint, message_id = self.endpoint, new_id()
        headers: dict[str, str | None] = {
            **endpoint.headers,
            MESSAGE_ID: message_id,
            MESSAGE_INTENT: intent,
            CONVERSATION_ID: self._conversation or new_id(),
            CORRELATION_ID: message_id,
            ORIGINATING_ENDPOINT: endpoint.name,
            ORIGINATING_MACHINE: endpoint.host.machine,
            ORIGINATING_HOST_ID: endpoint.host.id,
            TIME_SENT: timestamp_now(),
        }
        if not isinstance(message, bytes):
            headers[ENCLOSED_MESSAGE_TYPES] = enclosed_type_names(type(message))
            headers[CONTENT_TYPE] = endpoint.serializers.default.content_type
        if endpoint.reply_address is not None:
            headers[REPLY_TO_ADDRESS] = self.database.canonical(endpoint.reply_address)
        if endpoint.metrics_instance is not None:
            headers[METRIC_INSTANCE_ID] = endpoint.metrics_instance
        return headers

    # -------------------------------------------------------------- what was collected
    def end(self) -> list[Outgoing]:
        """End the use of this object, and return what was collected. Can be called again, which returns nothing."""
        if self._ended is not None:
            return []
        self._ended, outgoing = self.endpoint.name, self.outgoing
        del self.outgoing, self.database, self.endpoint
        return outgoing

    def _used_late(self, endpoint: str) -> HandlerEnded:
        """Return the error for a use after the end."""
        return HandlerEnded(
            f"The bus of the endpoint {endpoint!r} was used after its block had ended. Nothing was sent or executed. "
            "Send within the block, or open another one: endpoint.open(…)."
        )

    def _add(self, addressed: AddressedMessage) -> None:
        """Collect a message.

        Raises:
            InvalidMessage: another message has the same id and the same destination, or one of the two is an event.
            HandlerEnded: the handler or the block has ended meanwhile, in another thread.
        """
        outgoing = self.outgoing
        message_id = addressed.headers.get(MESSAGE_ID)
        if message_id:
            known = self._collected.get(message_id)
            if known is None:
                self._collected[message_id] = [addressed]
            else:
                for each in known:  # the subscribers of an event are not known yet
                    if each.topics or addressed.topics or self._place(each) == self._place(addressed):
                        check_same(each, addressed)
                known.append(addressed)
        outgoing.append(addressed)
        self.outgoing  # noqa: B018 -- raises if `end` came between: then nobody may have seen the message in the list

    def _place(self, addressed: AddressedMessage) -> Any:
        return self.database.local(parse_address(addressed.destination or ""))

    if not TYPE_CHECKING:  # a type checker would accept every name

        def __getattr__(self, name: str) -> Any:
            """Raise HandlerEnded for what is gone after the end."""
            if self._ended is not None and name in _ENDS:
                raise self._used_late(self._ended)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class Context(Bus):
    """A handler's view of the message that it handles. What it sends belongs to the message's conversation.

    Attributes:
        incoming: the message.
        audit_headers: headers that only the audit copy gets.
        discards: why handlers of the message discarded it, so far.
        handlers_stopped: whether no other handler of the message is called.
    """

    handlers_stopped = False
    #: the session of the handler that runs, if it has asked for one
    mapped: MappedSession | None = None
    #: the connection of a block of `commit`
    _committing: Connection | None = None

    def __init__(self, endpoint: Sender, database: Connection, message: Message, scope: Scope | None = None) -> None:
        super().__init__(endpoint, database)
        self.scope = scope
        self.incoming = message
        self._incoming_headers = message.headers
        self.audit_headers: dict[str, str | None] = {}
        self.discards: list[Discard] = []

    @property
    def _conversation(self) -> str | None:  # type: ignore[override]
        return self._incoming_headers.get(CONVERSATION_ID)

    @cached_property
    def headers(self) -> dict[str, str | None]:
        """A copy of the message's headers, with the id that it got if it came without one.

        Changes are not visible to retries, to the error queue or to the audit copy.
        """
        return {**self._incoming_headers, MESSAGE_ID: self.incoming.message_id}

    @cached_property
    def loaded(self) -> dict[Any, Any]:
        """What handlers of the message share: instances of sagas, by table and key."""
        return {}

    @property
    def connection(self) -> Any:
        """The driver's connection for business data, which commits together with the message.

        With an outbox it is the connection to the business database. With `receive="lease"` there is one within
        `commit` only; here it raises SettingsError.
        """
        return self.business_database.driver_connection

    @property
    def business_database(self) -> Connection:
        """The connection for business data: the receiving one, or that of an outbox."""
        return self.database if self.scope is None else self.scope.business_connection(self.database)

    @property
    def session(self) -> Any:
        """SQLAlchemy's `Session` in the transaction of the message, one for each handler.

        Its commit releases a savepoint, and its rollback goes back to one. What it holds when the handler returns is
        written, and commits with the message. With `receive="lease"` it is there within `commit` only.

        Raises:
            SettingsError: SQLAlchemy is not installed, or no transaction is open.
        """
        return self.open_session().session

    def open_session(self, *, is_async: bool = False) -> MappedSession:
        """Return the session of the handler that runs, made when it first asks for it."""
        if self.mapped is None:
            self.mapped = MappedSession(self._committing or self.business_database, is_async=is_async)
        return self.mapped

    def take_session(self) -> MappedSession | None:
        """Return the session of the handler that has returned; None if it has asked for none."""
        mapped, self.mapped = self.mapped, None
        return mapped

    def complete_session(self) -> None:
        """Write what the handler that has returned left in its session."""
        mapped = self.take_session()
        if mapped is not None:
            mapped.complete()

    def abandon_session(self) -> None:
        """Give up the session of a handler that has failed."""
        if self.mapped is not None:
            self.mapped.abandon()
            self.mapped = None

    def end_commit(self) -> None:
        """End the use of the connection that a block of `commit` has lent: others use it next."""
        self.abandon_session()
        self._committing = None

    @contextmanager
    def django(self, alias: str = "default") -> Iterator[Any]:
        """Let Django's connection of an alias be the message's within a block, in this thread. Yields it.

        `transaction.atomic()` is a savepoint then, and `transaction.on_commit` is refused: send a message instead.

        Raises:
            SettingsError: Django is not installed, or the database of the alias is not PostgreSQL.
        """
        with django_connection(self._committing or self.business_database, alias) as connection:
            yield connection

    def end(self) -> list[Outgoing]:
        """End the use of this object, and return what was collected. Can be called again, which returns nothing."""
        self.abandon_session()
        if self._ended is None:
            del self.discards, self.audit_headers, self.scope
        return super().end()

    @property
    def message_id(self) -> str:
        """The id of the message."""
        return self.incoming.message_id

    @property
    def body(self) -> bytes:
        """The raw bytes of the message's body."""
        return self.incoming.body

    @property
    def stopping(self) -> bool:
        """Whether a long handler should end soon: the process is to stop, and interrupts it after `stop_timeout`; or
        the lease of its message is lost, so that nothing of it can be committed.
        """
        return STOP.requested or (isinstance(self.scope, LeaseScope) and self.scope.lease.lost)

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far this handler is, for people who look at `rowpost workers` or at the message.

        The next renewal of the message's lease stores it. Without `receive="lease"` nothing is stored.

        Args:
            fraction: from 0 to 1.
            text: what it works on; the first 200 characters are stored.

        Raises:
            InvalidMessage: the fraction is no number from 0 to 1, or the text is no text.
        """
        if isinstance(self.scope, LeaseScope):
            self.scope.lease.progress(fraction, text)

    @contextmanager
    def commit(self) -> Iterator[Any]:
        """Commit the message, and what the block writes, in one transaction at the end of the block.

        Yields the driver's connection. The transaction has removed the message by its lease, so that nobody else
        commits it. What was sent so far, also within the block, is sent at its end. After it, sending is refused. If
        the block raises, nothing is committed, and the message is still leased.

        Raises:
            LeaseLost: the lease has expired, and somebody else handles the message. Nothing is committed.
            SettingsError: the message was not received with `receive="lease"`.
            HandlerEnded: the message is committed already.
        """
        with self.committing(attrgetter("driver_connection")) as connection:
            try:
                yield connection
                self.complete_session()
            finally:
                self.end_commit()

    def committing(self, lend: Lend) -> AbstractContextManager[Any]:
        """Return the block of `commit`. See `LeaseScope`."""
        scope = self.scope
        if not isinstance(scope, LeaseScope):
            raise SettingsError(
                "context.commit() is for messages that are received with receive='lease'. Here the message commits "
                "when its handler returns. Use context.connection."
            )

        def lent(database: Connection) -> Any:
            self._committing = database
            return lend(database)

        return scope.commit(lambda: [*self.outgoing, *scope.closing(self.audit_headers)], lent)

    def discard(self, reason: str, *, expected: bool = False) -> None:
        """Record that this handler has no use for the message. What the handler did and sent commits all the same.

        If no other handler handles the message, it counts as discarded, and the supervisor emits an event with its id,
        its type and the reason.

        Args:
            reason: why, for the person who reads the log.
            expected: this is the usual end of such a message. Then the event is no warning.
        """
        self.discards.append(Discard(check_text("reason", reason), expected))

    def stop_handlers(self) -> None:
        """Call no other handler of the message, and no saga, when this handler returns. The message is handled.

        What this handler and those before it did and sent commits. The log names the handlers that were not called.
        """
        self.discards  # noqa: B018 -- raises HandlerEnded after the end
        self.handlers_stopped = True

    def enlist(self, participant: Any) -> Any:
        """Return a connection to another database, in a transaction that commits or rolls back with this message.

        Args:
            participant: the name of a participant of the endpoint or of the environment. On PostgreSQL, a psycopg
                connection to a participant's database is accepted too.

        Raises:
            SettingsError: the endpoint's mode is not `transaction_scope`, or there is no such participant.
            ParticipantFailed: the participant cannot be reached.
        """
        if self.scope is None:
            raise SettingsError(
                f"{participant!r} cannot take part: this message is handled outside of a pipeline. Process it with "
                "Endpoint.process_one."
            )
        return self.scope.enlist(participant, self.database)

    def reply(self, message: Any, *, headers: Mapping[str, str | None] | None = None, immediate: bool = False) -> str:
        """Send a reply to the address that the message names, and return the reply's message id.

        A whole number or an enum goes to a caller that waits for a number, as callbacks do: with `request`, or of
        NServiceBus.

        Raises:
            InvalidMessage: the message names no reply address, an enum's value is no whole number, or the reply is a
                command or an event.
            ReplyRefused: the endpoint does not reply to that address.
        """
        address = self.incoming.reply_to
        if address is None:
            raise InvalidMessage(
                f"The message {self.message_id} cannot be replied to: it has no header {REPLY_TO_ADDRESS}. Send to a "
                "queue by name."
            )
        self._check_reply(address)
        extra = {**saga_of_the_request(self._incoming_headers), **({} if headers is None else check_headers(headers))}
        return self._collect(message, "Reply", extra, immediate, destination=self.endpoint.resolve(address))

    def _check_reply(self, address: str) -> None:
        if not self.endpoint.may_reply_to(self.database, address):
            raise ReplyRefused(
                f"The message {self.message_id} cannot be replied to: {self.endpoint.name} does not reply to "
                f"{address!r:.200}. Add the queue to the endpoint's reply_to, or send to another queue by name."
            )

    def request(self, *_: Any, **__: Any) -> Any:
        """Refuse to wait: the message's transaction and the worker would be blocked meanwhile.

        Raises:
            InvalidMessage: always.
        """
        raise InvalidMessage(
            "A handler cannot wait for a reply, because its message would stay locked meanwhile. Use send, and handle "
            "the reply in another handler."
        )

    def forward_current_message_to(self, destination: str) -> None:
        """Send a copy of the message, with its original headers and body, to another queue."""
        destination = self.endpoint.resolve(check_text("destination", destination))
        parse_address(destination)
        headers = {**self._incoming_headers, MESSAGE_ID: self.incoming.message_id}
        self._add(AddressedMessage(headers, self.incoming.body, destination))

    def _used_late(self, endpoint: str) -> HandlerEnded:
        return used_late("The context", self.incoming, endpoint)

    def _add(self, addressed: AddressedMessage) -> None:
        self._check_open()
        super()._add(addressed)

    def _check_open(self) -> None:
        """Refuse to send what nothing would commit. Raises HandlerEnded."""
        if isinstance(self.scope, LeaseScope) and self.scope.committed:
            raise HandlerEnded(
                f"Nothing can be sent any more for the message {self.message_id}: context.commit() has committed it. "
                "Send before the end of its block."
            )

    def _headers(self, message: Any, intent: str) -> dict[str, str | None]:
        self._check_open()
        headers = super()._headers(message, intent)
        incoming = self._incoming_headers
        headers[RELATED_TO] = related = self.incoming.message_id
        headers[CORRELATION_ID] = incoming.get(CORRELATION_ID) or related
        for name in W3C_TRACE:
            if name in incoming:
                headers[name] = incoming[name]
        return headers
