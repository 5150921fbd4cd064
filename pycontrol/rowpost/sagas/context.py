"""The context of a saga's handler: its outgoing messages name the instance, so that replies and timeouts find it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from rowpost.errors import InvalidMessage
from rowpost.handling.arguments import check_delay, check_headers
from rowpost.handling.async_context import AsyncContext
from rowpost.handling.context import Context
from rowpost.handling.mapped_session import MappedSession
from rowpost.handling.sending import Intent
from rowpost.sagas.declaration import SagaDeclaration
from rowpost.transport.directory import canonical_or_as_given
from rowpost.wire.headers import (
    CORRELATION_ID,
    ENCLOSED_MESSAGE_TYPES,
    IS_SAGA_TIMEOUT,
    ORIGINATING_SAGA_ID,
    ORIGINATING_SAGA_TYPE,
    SAGA_ID,
    SAGA_TYPE,
)
from rowpost.wire.message_types import split_enclosed_types, type_name
from rowpost.wire.saga_audit import SagaChangeOutput

__all__ = ["AsyncSagaContext", "SagaContext"]


class SagaContext(Context):
    """A context that sends on behalf of one saga instance, together with the messages of the outer context.

    `sent` gets an entry for each message that the instance sends; None if changes are not reported.
    """

    def __init__(
        self,
        outer: Context,
        saga_id: UUID,
        declared: SagaDeclaration,
        metadata: Mapping[str, str],
        sent: list[SagaChangeOutput] | None = None,
    ) -> None:
        super().__init__(outer.endpoint, outer.database, outer.incoming, outer.scope)
        self.outgoing, self.headers, self.discards = outer.outgoing, outer.headers, outer.discards
        self._collected, self.audit_headers = outer._collected, outer.audit_headers
        self._outer = outer
        self._saga_id, self._declared = saga_id, declared
        self._metadata = metadata
        self._sent = sent

    def open_session(self, *, is_async: bool = False) -> MappedSession:
        """Return the session of the method that runs. See `Context.open_session`."""
        return self._outer.open_session(is_async=is_async)

    def take_session(self) -> MappedSession | None:
        """Return the session of the method that has returned. See `Context.take_session`."""
        return self._outer.take_session()

    def stop_handlers(self) -> None:
        """Call no other handler of the message, and no other saga. See `Context.stop_handlers`."""
        super().stop_handlers()
        self._outer.stop_handlers()

    def request_timeout(self, after: timedelta | datetime, message: Any) -> str:
        """Send the instance a delayed message; return its message id.

        The message finds the instance by its id. If the saga is complete by then, the message is discarded, with an
        event.

        Args:
            after: delay from now, or a time with time zone.
            message: an instance of a message class for which the saga has a `timeout` or a `handles` method.

        Raises:
            InvalidMessage: the saga has no such method.
            InvalidDelay: the time has no time zone, or the delay is longer than the calendar.
        """
        delay, cls = check_delay("after", after), type(message)
        if not self._declared.takes_timeouts_of(cls):
            raise InvalidMessage(
                f"The saga {self._declared.name} cannot request a timeout with a {type_name(cls)}: no method of it "
                f"handles this timeout. Mark one with @timeout({cls.__name__})."
            )
        headers = {IS_SAGA_TIMEOUT: "True", SAGA_ID: str(self._saga_id), SAGA_TYPE: self._declared.name}
        return self._collect(message, "Send", headers, False, destination=self.endpoint.queue, delay=delay)

    def reply_to_originator(self, message: Any, *, headers: Mapping[str, str | None] | None = None) -> str:
        """Send a reply to the sender of the message that started the saga; return the reply's message id.

        Raises:
            InvalidMessage: that message had no reply address.
            ReplyRefused: the endpoint does not reply to that address.
        """
        address = self._metadata.get("Originator")
        if not address:
            raise InvalidMessage(
                f"Cannot reply: the message that started the saga {self._saga_id} has no reply address. Send to a "
                "queue by name instead."
            )
        self._check_reply(address)
        kept = {
            CORRELATION_ID: self._metadata.get("OriginalMessageId"),
            SAGA_ID: self._metadata.get("OriginatingSagaId"),
            SAGA_TYPE: self._metadata.get("OriginatingSagaType"),
        }
        extra = {name: value for name, value in kept.items() if value}
        own = {} if headers is None else check_headers(headers)
        return self._collect(message, "Reply", {**extra, **own}, False, destination=self.endpoint.resolve(address))

    def _collect(
        self, message: Any, intent: Intent, extra: Mapping[str, str | None] | None, immediate: bool, **where: Any
    ) -> str:
        message_id = super()._collect(message, intent, extra, immediate, **where)
        if self._sent is not None:
            named = next(iter(split_enclosed_types((extra or {}).get(ENCLOSED_MESSAGE_TYPES))), None)
            destination = where.get("destination")
            output = SagaChangeOutput(
                message_type=named or type_name(type(message)),
                time_sent=datetime.now(UTC),
                delivery_at=None,
                delivery_delay=where.get("delay"),
                destination=None if destination is None else canonical_or_as_given(self.database, destination),
                resulting_message_id=message_id,
                intent=intent,
            )
            self._sent.append(output)
        return message_id

    def _headers(self, message: Any, intent: str) -> dict[str, str | None]:
        named = {ORIGINATING_SAGA_ID: str(self._saga_id), ORIGINATING_SAGA_TYPE: self._declared.name}
        return {**super()._headers(message, intent), **named}


class AsyncSagaContext(AsyncContext):
    """The view of an `async def` method of a saga. For arguments and errors see `SagaContext`."""

    def __init__(self, context: SagaContext) -> None:
        super().__init__(context)
        self._of_saga = context

    def request_timeout(self, after: timedelta | datetime, message: Any) -> str:
        """Send the instance a delayed message; return its message id. See `SagaContext.request_timeout`."""
        return self._of_saga.request_timeout(after, message)

    def reply_to_originator(self, message: Any, *, headers: Mapping[str, str | None] | None = None) -> str:
        """Send a reply to the sender of the message that started the saga. See `SagaContext.reply_to_originator`."""
        return self._of_saga.reply_to_originator(message, headers=headers)
