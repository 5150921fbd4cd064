"""What `async def` handlers and `async with endpoint.open(…)` get: `AsyncContext` and `AsyncBus`.

They have the verbs of `Context` and `Bus`. Sending only collects, so that `send`, `publish` and `reply` are plain
calls; whatever is sent with `immediate=True` is awaited, and so are SQL and requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, Unpack, overload

from rowpost.database.connection import Connection
from rowpost.errors import InvalidMessage
from rowpost.handling.async_connection import async_connection
from rowpost.handling.context import Bus, Context
from rowpost.handling.event_loop import afterwards, in_thread
from rowpost.wire.message import Message

__all__ = ["AsyncBus", "AsyncContext", "PublishOptions", "SendOptions"]


class PublishOptions(TypedDict, total=False):
    """The options of `Bus.publish`, apart from `immediate`."""

    time_to_be_received: timedelta | None
    message_id: str | None
    headers: Mapping[str, str | None] | None
    new_conversation: bool | str


class SendOptions(PublishOptions, total=False):
    """The options of `Bus.send`, apart from `immediate`."""

    delay: timedelta | datetime | None
    instance: str | None
    reply_to: str | None


class AsyncBus:
    """A `Bus` for code that runs on an event loop. For arguments and errors see `Bus`.

    Args:
        bus: the bus.
        connection: the connection for an event loop that the caller has brought; None if there is none.
    """

    def __init__(self, bus: Bus, connection: Any = None) -> None:
        self._bus, self._given = bus, connection
        #: texts for what was sent at once and not awaited
        self._not_awaited: dict[int, str] = {}

    @property
    def connection(self) -> Any:
        """The driver's connection for SQL on an event loop, in the transaction in which the messages are sent.

        On PostgreSQL it is a `psycopg.AsyncConnection`. On SQL Server it has the methods of pyodbc's connection, to be
        awaited.
        """
        return async_connection(self._database()) if self._given is None else self._given

    def _database(self) -> Connection:
        return self._bus.database

    # -------------------------------------------------------------- sending
    @overload
    def send(
        self, message: Any, to: str | None = None, *, immediate: Literal[False] = False, **options: Unpack[SendOptions]
    ) -> str: ...
    @overload
    def send(
        self, message: Any, to: str | None = None, *, immediate: Literal[True], **options: Unpack[SendOptions]
    ) -> Awaitable[str]: ...
    def send(self, message: Any, to: str | None = None, *, immediate: bool = False, **options: Any) -> Any:
        """Send a message to a queue, and return its message id. See `Bus.send`. With `immediate`, await it."""
        return self._send(self._bus.send, immediate, message, to, **options)

    @overload
    def send_local(self, message: Any, *, immediate: Literal[False] = False, **options: Unpack[SendOptions]) -> str: ...
    @overload
    def send_local(
        self, message: Any, *, immediate: Literal[True], **options: Unpack[SendOptions]
    ) -> Awaitable[str]: ...
    def send_local(self, message: Any, *, immediate: bool = False, **options: Any) -> Any:
        """Send a message to the endpoint's own queue. See `Bus.send_local`. With `immediate`, await it."""
        return self._send(self._bus.send_local, immediate, message, **options)

    @overload
    def publish(self, event: Any, *, immediate: Literal[False] = False, **options: Unpack[PublishOptions]) -> str: ...
    @overload
    def publish(self, event: Any, *, immediate: Literal[True], **options: Unpack[PublishOptions]) -> Awaitable[str]: ...
    def publish(self, event: Any, *, immediate: bool = False, **options: Any) -> Any:
        """Publish an event, and return its message id. See `Bus.publish`. With `immediate`, await it."""
        return self._send(self._bus.publish, immediate, event, **options)

    async def request(self, message: Any, to: str | None = None, *, timeout: timedelta, **options: Any) -> Any:
        """Send a request now, and await its reply. See `Bus.request`."""
        return await in_thread(lambda: self._bus.request(message, to, timeout=timeout, **options))

    def _send(self, send: Callable[..., str], immediate: bool, *arguments: Any, **options: Any) -> Any:
        if immediate is False:
            return send(*arguments, **options)
        return _AtOnce(self._not_awaited, lambda: send(*arguments, immediate=immediate, **options), send.__name__)

    def check_awaited(self) -> None:
        """Fail if something that was to be sent at once was never awaited: it was not sent.

        Raises:
            InvalidMessage: there is such a call.
        """
        for text in self._not_awaited.values():
            raise InvalidMessage(text)


class _AtOnce:
    """A send with `immediate`, which happens when it is awaited."""

    def __init__(self, open_calls: dict[int, str], send: Callable[[], str], verb: str) -> None:
        self._open_calls, self._do = open_calls, send
        open_calls[id(self)] = (
            f"{verb}(…, immediate=True) was not awaited, so that nothing was sent. Write: await context.{verb}(…, "
            "immediate=True)"
        )

    def __await__(self) -> Any:
        self._open_calls.pop(id(self), None)
        return in_thread(self._do).__await__()


class AsyncContext(AsyncBus):
    """The view of an `async def` handler of the message that it handles. For arguments and errors see `Context`."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._context = context

    def _database(self) -> Connection:
        return self._context.business_database

    @property
    def incoming(self) -> Message:
        """The message."""
        return self._context.incoming

    @property
    def headers(self) -> dict[str, str | None]:
        """A copy of the message's headers. See `Context.headers`."""
        return self._context.headers

    @property
    def audit_headers(self) -> dict[str, str | None]:
        """Headers that only the audit copy gets."""
        return self._context.audit_headers

    @property
    def message_id(self) -> str:
        """The id of the message."""
        return self._context.message_id

    @property
    def body(self) -> bytes:
        """The raw bytes of the message's body."""
        return self._context.body

    @property
    def stopping(self) -> bool:
        """Whether the process is to stop. See `Context.stopping`."""
        return self._context.stopping

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far this handler is. See `Context.progress`."""
        self._context.progress(fraction, text)

    @asynccontextmanager
    async def commit(self) -> AsyncIterator[Any]:
        """Commit the message, and what the block writes, in one transaction at the end of the block.

        Yields the connection for SQL on an event loop. See `Context.commit`.
        """
        block = self._context.committing(async_connection)
        try:
            connection = await in_thread(block.__enter__)
        except asyncio.CancelledError as error:  # the thread begins the transaction all the same
            afterwards(block.__exit__, type(error), error, None)
            raise
        try:
            try:
                yield connection
                await self.complete_session()
            finally:
                self._context.end_commit()
        except BaseException as error:
            if not await in_thread(block.__exit__, type(error), error, error.__traceback__):
                raise
        else:
            await in_thread(block.__exit__, None, None, None)

    @property
    def session(self) -> Any:
        """SQLAlchemy's `AsyncSession` in the transaction of the message. See `Context.session`.

        Raises:
            SettingsError: as there, or on SQL Server, which has no async driver here.
        """
        return self._context.open_session(is_async=True).session

    async def complete_session(self) -> None:
        """Write what the handler that has returned left in its session."""
        mapped = self._context.take_session()
        if mapped is not None:
            await mapped.complete_async()

    def discard(self, reason: str, *, expected: bool = False) -> None:
        """Record that this handler has no use for the message. See `Context.discard`."""
        self._context.discard(reason, expected=expected)

    def stop_handlers(self) -> None:
        """Call no other handler of the message when this one returns. See `Context.stop_handlers`."""
        self._context.stop_handlers()

    @overload
    def reply(
        self, message: Any, *, headers: Mapping[str, str | None] | None = None, immediate: Literal[False] = False
    ) -> str: ...
    @overload
    def reply(
        self, message: Any, *, headers: Mapping[str, str | None] | None = None, immediate: Literal[True]
    ) -> Awaitable[str]: ...
    def reply(self, message: Any, *, headers: Mapping[str, str | None] | None = None, immediate: bool = False) -> Any:
        """Send a reply, and return its message id. See `Context.reply`. With `immediate`, await it."""
        return self._send(self._context.reply, immediate, message, headers=headers)

    def forward_current_message_to(self, destination: str) -> None:
        """Send a copy of the message to another queue. See `Context.forward_current_message_to`."""
        self._context.forward_current_message_to(destination)

    async def request(self, message: Any, to: str | None = None, *, timeout: timedelta, **options: Any) -> Any:
        """Refuse to wait, as `Context.request`. Raises InvalidMessage."""
        self._context.request(message, to, timeout=timeout, **options)
