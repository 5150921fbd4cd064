"""Send to, receive from, peek at, browse and purge a queue.

`Queue` calls the procedures that were rendered for the queue. Use it outside of handlers; in a handler, use the
context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from rowpost.database.connection import Connection
from rowpost.errors import InvalidCount, InvalidMessage, PermissionDenied
from rowpost.wire.address import parse_address
from rowpost.wire.headers import CORRELATION_ID, REPLY_TO_ADDRESS
from rowpost.wire.message import BrowsedMessage, Headers, Message, OutgoingMessage

__all__ = ["BATCH_BYTES", "BATCH_MESSAGES", "Queue", "Row", "browsed_message", "legacy_values", "split"]

#: limits of one batch of send_many, in messages and bytes
BATCH_MESSAGES = 1000
BATCH_BYTES = 8 * 1024 * 1024
_COLUMN_LENGTH = 255

Progress = Callable[[int], None]


class Row(NamedTuple):
    """A message to send, in the columns that the procedures take."""

    raw_headers: str
    body: bytes | None
    id: UUID | None
    time_to_be_received_ms: int | None
    correlation_id: str | None = None
    reply_to_address: str | None = None


class Queue:
    """A queue in a database.

    Each call commits on its own unless a transaction is open: that of `Connection.transaction()`, or the caller's
    transaction on a shared connection, which is never committed here. Not thread-safe, because its connection is not.

    >>> queue = Queue("Sales", database)
    >>> _ = queue.send(b'{"OrderId": 42}', {"NServiceBus.EnclosedMessageTypes": "Shop.PlaceOrder"})
    >>> [message.body for message in queue.receive()]
    [b'{"OrderId": 42}']
    """

    def __init__(self, name: str, database: Connection | Any, *, legacy_columns: bool | None = None) -> None:
        """
        Args:
            name: the queue's name or canonical address.
            database: a Connection, or a connection of psycopg or pyodbc that the caller shares.
            legacy_columns: fill the columns CorrelationId and ReplyToAddress, which endpoints of NServiceBus SQL Server
                transport versions 1 to 6 read; by default as the environment's `compat` says.
        """
        self.database = database if isinstance(database, Connection) else Connection.share(database)
        self.name = parse_address(name).short(self.database.engine).format()
        self._legacy_columns = self.database.legacy_columns if legacy_columns is None else legacy_columns

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def send(
        self,
        body: bytes | None = b"",
        headers: Headers | str | None = None,
        *,
        id: UUID | None = None,
        time_to_be_received: timedelta | None = None,
    ) -> UUID:
        """Send one message and return its row's id.

        Args:
            body: the bytes; None stores a NULL.
            headers: a mapping of text to text or None, or the column's text verbatim.
            id: the row's id; a new one by default.
            time_to_be_received: the message expires after it, by the server's clock.

        Raises:
            InvalidMessage: body or headers cannot be stored.
            InvalidTimeToBeReceived: not positive, or over 100 years.
            QueueNotFound: no such queue.
        """
        row_id = id or uuid4()
        row = self._row(OutgoingMessage(body, {} if headers is None else headers, row_id, time_to_be_received))
        self.database.call(
            "send_message",
            queue=self.name,
            headers=row.raw_headers,
            body=row.body,
            id=row.id,
            time_to_be_received_ms=row.time_to_be_received_ms,
            correlation_id=row.correlation_id,
            reply_to_address=row.reply_to_address,
        )
        return row_id

    def send_many(self, messages: Iterable[OutgoingMessage], *, progress: Progress | None = None) -> int:
        """Send messages in order, all or none, and return their number.

        A round trip carries up to 1,000 messages or 8 MiB.

        Args:
            progress: called after each round trip with the number sent so far.

        Raises:
            InvalidMessage, InvalidTimeToBeReceived, QueueNotFound: as `send`. On a shared connection, the caller's
                transaction decides what is undone.
        """
        batches = split(self._row(message) for message in messages)
        first = next(batches, None)
        if first is None:
            return 0
        second = next(batches, None)
        if second is None or self.database.join():
            return self._send_batches(_chain(first, second, batches), progress)
        with self.database.transaction():
            return self._send_batches(_chain(first, second, batches), progress)

    def _send_batches(self, batches: Iterable[list[Row]], progress: Progress | None) -> int:
        sent = 0
        for batch in batches:
            self.database.call("send_messages", queue=self.name, messages=batch)
            sent += len(batch)
            if progress:
                progress(sent)
        return sent

    def _row(self, message: OutgoingMessage) -> Row:
        body = message.body
        if body is not None and not isinstance(body, bytes):
            if not isinstance(body, bytearray | memoryview):
                raise InvalidMessage(
                    f"The body for the queue {self.name!r} is {type(body).__name__}, not bytes. Encode it, for example "
                    "with text.encode()."
                )
            body = bytes(body)
        row = (message.raw_headers, body, message.id, message.time_to_be_received_ms)
        if self._legacy_columns and not isinstance(message.headers, str):
            return Row(*row, *legacy_values(message.headers))
        return Row(*row)

    def receive(self, count: int = 1, after_row_version: int | None = None) -> list[Message]:
        """Remove and return the oldest messages that no other session has locked, in order; an empty list if there are
        none.

        Args:
            count: maximum number of messages, 1 to 500.
            after_row_version: only messages with a higher row version; None scans from the start of the queue.

        Raises:
            InvalidCount: count is out of range.
            QueueNotFound: no such queue.
        """
        rows = self.database.call("receive_messages", queue=self.name, count=count, after_row_version=after_row_version)
        return [Message.of_row(row) for row in rows]

    def receive_one(self, row_version: int) -> Message | None:
        """Remove and return the message with this row version; None if it does not exist or another session has locked
        it.
        """
        rows = self.database.call("receive_message", queue=self.name, row_version=row_version)
        return Message.of_row(rows[0]) if rows else None

    def peek(self, count: int = 1000) -> int:
        """Return about how many messages wait, counted up to `count` (1 to 10,000); excludes those that receivers have
        locked.
        """
        return int(self.database.call("peek_queue", queue=self.name, count=count)[0].waiting)

    def browse(
        self, count: int = 50, after_row_version: int | None = None, max_body_bytes: int | None = None
    ) -> list[BrowsedMessage]:
        """Read up to `count` messages (1 to 1,000) without receiving them, oldest first.

        Args:
            after_row_version: only messages with a higher row version.
            max_body_bytes: truncate bodies to so many bytes; None for complete bodies. Bodies are read in a round trip
                of their own; a message that was received meanwhile is left out.

        Raises:
            PermissionDenied: the login may not browse, or may not read bodies; 0 bytes need no right to read them.
        """
        if max_body_bytes is not None and max_body_bytes < 0:
            raise InvalidCount(
                f"max_body_bytes must not be negative (got {max_body_bytes}). Use 0 for no body, or omit it for the "
                "complete body."
            )
        rows = self.database.call("browse_messages", queue=self.name, count=count, after_row_version=after_row_version)
        if not rows or max_body_bytes == 0:
            return [browsed_message(row) for row in rows]
        keys = [str(row.row_version) for row in rows]
        bodies = dict(
            self.database.call("read_bodies", queue=self.name, row_versions=keys, max_body_bytes=max_body_bytes)
        )
        return [browsed_message(row, bodies[row.row_version]) for row in rows if row.row_version in bodies]

    def show(
        self,
        count: int = 50,
        after_row_version: int | None = None,
        max_body_bytes: int | None = None,
        *,
        withhold: bool = False,
    ) -> list[BrowsedMessage]:
        """Browse for people, outside of a transaction: if the login may not read bodies, the messages are `withheld`.

        Args:
            withhold: the login is known not to have the right, so that the server is not asked.

        Raises:
            PermissionDenied: the login may not browse.
        """
        if not withhold:
            with suppress(PermissionDenied):
                return self.browse(count, after_row_version, max_body_bytes)
        return [replace(each, withheld=True) for each in self.browse(count, after_row_version, 0)]

    def purge(self, *, batch: int = 2_000, progress: Progress | None = None) -> int:
        """Remove all messages that no other session has locked, in batches that commit one by one; return their
        number.
        """
        return self._purge("purge_queue", batch, progress)

    def purge_expired(self, *, batch: int = 2_000, progress: Progress | None = None) -> int:
        """Remove the expired messages that no other session has locked, in batches that commit one by one; return their
        number.
        """
        return self._purge("purge_expired", batch, progress)

    def _purge(self, procedure: str, batch: int, progress: Progress | None) -> int:
        total = 0
        while True:
            purged = self.database.call_atomically(procedure, queue=self.name, count=batch)[0].purged
            total += purged
            if progress:
                progress(total)
            if purged < batch:
                return int(total)


def browsed_message(row: Sequence[Any], body: bytes | None = None) -> BrowsedMessage:
    """Return a row of browse_messages, and perhaps its body, as a BrowsedMessage."""
    id, row_version, expired, expires, headers, body_bytes = row
    return BrowsedMessage(
        id, row_version, bool(expired), expires and expires.replace(tzinfo=UTC), headers, body or b"", body_bytes
    )


def legacy_values(headers: Headers) -> tuple[str | None, str | None]:
    """Return CorrelationId and ReplyToAddress as the varchar(255) columns of old transports store them.

    Values are truncated. A value with other characters than ASCII becomes None, because its meaning depends on the code
    page.
    """
    values = (headers.get(name) for name in (CORRELATION_ID, REPLY_TO_ADDRESS))
    correlation_id, reply_to = (v[:_COLUMN_LENGTH] if v and v.isascii() else None for v in values)
    return correlation_id, reply_to


def split(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows in batches, each for one call of send_messages."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        length = len(row.raw_headers) + len(row.body or b"")
        if batch and (len(batch) >= BATCH_MESSAGES or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += length
    if batch:
        yield batch


def _chain(first: list[Row], second: list[Row] | None, rest: Iterator[list[Row]]) -> Iterator[list[Row]]:
    yield first
    if second is not None:
        yield second
        yield from rest
