"""Look at the delayed messages of a queue, and change when they are due.

delayed = DelayedMessages("Sales", database)
for message in delayed.browse(20):
    print(message.due, message.key)
delayed.reschedule(message.key, timedelta(0))     # the mover takes it at its next round
delayed.cancel(message.key)
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from rowpost.database.connection import Connection
from rowpost.errors import MessageCorrupt, MessageNotFound, PermissionDenied
from rowpost.wire.address import parse_address
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from rowpost.wire.message import Headers, decode_headers
from rowpost.wire.message_types import first_type

__all__ = ["DelayedMessage", "DelayedMessages"]

MILLISECOND = timedelta(milliseconds=1)


class DelayedMessage(NamedTuple):
    """A message that is not due yet.

    Attributes:
        key: names it, until it is due at another time.
        due: with the time zone UTC.
        body: whole, or its beginning.
        body_bytes: length of the whole body.
        withheld: the login may not read bodies.
    """

    key: str
    due: datetime
    raw_headers: str
    body: bytes | None
    body_bytes: int
    withheld: bool = False

    @property
    def headers(self) -> Headers:
        """The headers. Empty if they cannot be read."""
        try:
            return decode_headers(self.raw_headers)
        except MessageCorrupt:
            return {}

    @property
    def message_id(self) -> str:
        """The message's id in its headers; empty if it has none."""
        return self.headers.get(MESSAGE_ID) or ""

    @property
    def message_type(self) -> str:
        """The first of its types; empty if it has none."""
        return first_type(self.headers.get(ENCLOSED_MESSAGE_TYPES))


class DelayedMessages:
    """The delayed messages of one queue. All methods raise QueueNotFound, FeatureMissing and PermissionDenied."""

    def __init__(self, queue: str, database: Connection) -> None:
        self.queue, self._database = parse_address(queue).short(database.engine).format(), database

    def browse(
        self, count: int = 50, due_in: timedelta | None = None, max_body_bytes: int | None = None
    ) -> list[DelayedMessage]:
        """Return the messages that are due next, without those that a mover has locked.

        Args:
            count: at most so many, 1 to 1,000.
            due_in: only those that are due so long from now, or later.
            max_body_bytes: at most so many bytes of each body; None: whole bodies.

        Raises:
            InvalidCount: the count is out of its range.
            InvalidDelay: the time is more than 100 years away.
            PermissionDenied: the login may not browse, or may not read bodies; 0 bytes need no right to read them.
        """
        due_in_ms = None if due_in is None else int(due_in / MILLISECOND)
        rows = self._database.call("browse_delayed", self.queue, count=count, due_in_ms=due_in_ms)
        bodies: dict[str, bytes | None] = dict.fromkeys(row.delayed_key for row in rows)
        if rows and max_body_bytes != 0:
            call, keys = self._database.call, list(bodies)
            bodies = dict(call("read_delayed_bodies", self.queue, delayed_keys=keys, max_body_bytes=max_body_bytes))
        return [
            DelayedMessage(key, due.replace(tzinfo=UTC), headers, bodies[key], size)
            for key, due, headers, size in rows
            if key in bodies  # else it became due meanwhile
        ]

    def show(
        self, count: int = 50, due_in: timedelta | None = None, max_body_bytes: int | None = None
    ) -> list[DelayedMessage]:
        """Browse for people, as `Queue.show` does."""
        with suppress(PermissionDenied):
            return self.browse(count, due_in, max_body_bytes)
        return [each._replace(withheld=True) for each in self.browse(count, due_in, 0)]

    def reschedule(self, key: str, delay: timedelta) -> None:
        """Let a message be due so long from now, by the server's clock; 0: now.

        Raises:
            MessageNotFound: it was moved, cancelled or rescheduled meanwhile, or a mover has locked it.
            InvalidDelay: more than 100 years.
        """
        if not self._database.call(
            "reschedule_delayed", self.queue, delayed_key=key, delay_ms=int(delay / MILLISECOND)
        )[0].rescheduled:
            raise self._not_found(key)

    def cancel(self, key: str) -> DelayedMessage:
        """Remove a message for good, and return it. Raises MessageNotFound as `reschedule`."""
        rows = self._database.call_atomically("cancel_delayed", queue=self.queue, delayed_key=key)
        for due, headers, body in rows:
            return DelayedMessage(key, due.replace(tzinfo=UTC), headers, body, len(body or b""))
        raise self._not_found(key)

    def _not_found(self, key: str) -> MessageNotFound:
        return MessageNotFound(
            f"The queue {self.queue!r} has no delayed message {key!r}: it was moved, cancelled or rescheduled "
            "meanwhile, or it is being moved now."
        )
