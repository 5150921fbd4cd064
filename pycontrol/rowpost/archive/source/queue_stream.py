"""The state of a queue that is read: who writes to it, how far it may be read, and whether this server can tell."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rowpost.archive.source.connection import naming_what_is_gone
from rowpost.archive.source.watermark import Poll, Watermark
from rowpost.database.connection import Connection
from rowpost.errors import PermissionDenied, RowpostError

__all__ = ["StreamRefused", "StreamState", "check_readable", "describe", "wait_for_watermark"]

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


class StreamRefused(RowpostError):
    """A stream cannot continue: its checkpoint belongs to another queue, unread messages were removed, or the server is
    a standby.
    """


@dataclass(frozen=True)
class StreamState:
    """One result of describe_stream.

    Attributes:
        identity: the table's identity. It changes if the queue is dropped and created again.
        first: the lowest visible row version; None for an empty queue.
        last: the last row version that was assigned.
        purged: the highest row version that a purge removed; None if the queue was never purged.
        consumers: number of connected workers.
        on_standby: whether the server is a standby, or a readable secondary.
        writers: the transactions that write to the queue, and the watermark that they leave; None if the login has no
            right to see them.
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
    """Wait until all transactions that write now have ended, and return the watermark.

    After `timeout_s` seconds, the watermark that was reached so far is returned. Raises StreamRefused on a standby.
    """
    watermark = watermark or Watermark()
    state = describe(database, queue)
    target, end = state.last, time.monotonic() + timeout_s
    while watermark.advance(state.poll) < target and time.monotonic() < end:
        time.sleep(POLL_INTERVAL_S)
        state = describe(database, queue)
    return watermark.row_version
