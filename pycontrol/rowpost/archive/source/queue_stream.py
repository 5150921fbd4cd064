"""The state of a queue that is read: who writes to it, how far it may be read, and whether this server can tell.

Also how far a stream is behind it: in messages, by the age of the oldest one, and by the open transactions that hold
messages back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rowpost.archive.arrow_headers import headers_of
from rowpost.archive.source.connection import naming_what_is_gone
from rowpost.archive.source.watermark import Notes, Poll, Watermark
from rowpost.database.connection import Connection
from rowpost.errors import PermissionDenied, RowpostError
from rowpost.wire.headers import PROCESSING_ENDED, TIME_OF_FAILURE, TIME_SENT
from rowpost.wire.message import parse_timestamp

__all__ = [
    "Held",
    "StreamRefused",
    "StreamState",
    "age_s",
    "backlog",
    "check_readable",
    "describe",
    "held_above",
    "holders",
    "wait_for_watermark",
]

POLL_INTERVAL_S = 0.05
SEE_WRITERS = (
    "The login has no right to see which transactions write to the queue {}, so that a stream cannot know how far it "
    "may read. Grant the login VIEW SERVER PERFORMANCE STATE (SQL Server 2022 and newer), VIEW SERVER STATE (older, "
    "and Azure SQL Managed Instance) or VIEW DATABASE STATE (Azure SQL Database). A batch read with "
    "endingOffsets=latest does not need it."
)
READ_ONLY = (
    "The queue {} cannot be streamed, or read up to the watermark, from this server: it is a standby, a readable "
    "secondary or a read-only database. It does not show which transactions write on the primary, so that messages "
    "would be skipped, and it removes none. Let the environment name the primary. A batch read with "
    "endingOffsets=latest or a row version works here."
)
MAX_LAG_MESSAGES = 100_000
MAX_COUNTED = 1_000_000


class StreamRefused(RowpostError):
    """A stream cannot continue: its checkpoint belongs to another queue, unread messages were removed, or the server is
    a standby.
    """


@dataclass(frozen=True)
class StreamState:
    """One result of describe_stream.

    `identity` is that of the table, which changes if the queue is created again. `first` is the lowest visible row
    version, `last` the last assigned one, and `purged` the highest one that a purge removed. `writers` is None if the
    login has no right to see them.
    """

    identity: str
    first: int | None
    last: int
    writers: Poll | None
    purged: int | None
    consumers: int
    on_standby: bool = False

    @property
    def poll(self) -> Poll:
        """Return the writers.

        Raises StreamRefused on a standby, PermissionDenied if the login has no right to see them.
        """
        self.check_primary()
        if self.writers is None:
            raise PermissionDenied(SEE_WRITERS.format(self.identity))
        return self.writers

    def check_primary(self) -> None:
        """Raise StreamRefused on a standby: its writers cannot be seen, and nothing can be removed."""
        if self.on_standby:
            raise StreamRefused(READ_ONLY.format(self.identity))


def describe(database: Connection, queue: str) -> StreamState:
    """Poll the queue's state. Raises QueueNotFound, PermissionDenied."""
    with naming_what_is_gone(database, queue):
        (row,) = database.call("describe_stream", queue)
    identity, first, last, watermark, writers, purged, consumers, on_standby = row
    poll = None if writers is None else Poll.of(last, watermark, writers)
    return StreamState(identity, first, last, poll, purged, consumers, on_standby)


def check_readable(database: Connection, queue: str) -> None:
    """Raise PermissionDenied, which names the role, if the login may not read bodies: before a task fails by it."""
    database.call("read_range", queue, above=0, upto=0)


def wait_for_watermark(database: Connection, queue: str, timeout_s: float, watermark: Watermark | None = None) -> int:
    """Wait until all current writers have ended, or for `timeout_s` seconds, and return the watermark.

    Raises StreamRefused on a standby.
    """
    watermark = watermark or Watermark()
    state = describe(database, queue)
    target, end = state.last, time.monotonic() + timeout_s
    while watermark.advance(state.poll) < target and time.monotonic() < end:
        time.sleep(POLL_INTERVAL_S)
        state = describe(database, queue)
    return watermark.row_version


def backlog(database: Connection, queue: str, above: int) -> dict[str, object]:
    """Return lag_messages and lag_seconds of what is above a row version, for the progress of a stream.

    MAX_LAG_MESSAGES means at least so many. Without messages, the oldest one has no age: 0. None if its headers have no
    time.
    """
    row = database.call("describe_backlog", queue, above=above, count=MAX_LAG_MESSAGES)[0]
    return {
        "lag_messages": row.messages,
        "lag_seconds": age_s(row.first_headers, datetime.now(UTC)) if row.messages else 0.0,
    }


def age_s(headers: str | None, now: datetime) -> float | None:
    """Return the seconds since a message was handled, failed or was sent. Returns None if its headers do not say it.

    >>> age_s('{"NServiceBus.TimeSent": "2026-01-01 12:00:00:000000 Z"}', datetime(2026, 1, 1, 12, 1, tzinfo=UTC))
    60.0
    """
    found = headers_of(headers) or {}
    for name in (PROCESSING_ENDED, TIME_OF_FAILURE, TIME_SENT):
        try:
            return round(max((now - parse_timestamp(found[name] or "")).total_seconds(), 0.0), 3)
        except (LookupError, ValueError):
            continue
    return None


@dataclass(frozen=True)
class Held:
    """Messages that are committed and that a run has not read: their number, at most MAX_COUNTED.

    `held_by` are the transactions that held them back and are still open (see `holders`), the oldest first.
    """

    waiting: int = 0
    held_by: Sequence[Mapping[str, object]] = field(default_factory=list)

    @classmethod
    def of_all(cls, found: Sequence[Held]) -> Held:
        """Combine what several queues have. A transaction may write to several of them."""
        holders = {str(holder): holder for each in found for holder in each.held_by}
        return cls(sum(each.waiting for each in found), list(holders.values()))


def held_above(database: Connection, queue: str, offset: Mapping[str, Any]) -> Held:
    """Return what is above the offset of a tail, if transactions were open when it was read."""
    count = database.call("describe_backlog", queue, above=offset["row_version"], count=MAX_COUNTED)[0].messages
    return Held(count, holders(database, queue, offset["polls"])) if count else Held()


def holders(database: Connection, queue: str, notes: Notes) -> list[Mapping[str, object]]:
    """Return the open transactions among the writers of some polls, the oldest first.

    What the server does not show is None.
    """
    noted = {writer for _, writers in notes for writer in writers}
    return [
        {"process": row.process, "since": row.since and f"{row.since.isoformat()}Z", "application": row.program}
        for row in database.call("list_writers", queue) if row.writer in noted
    ]  # fmt: skip
