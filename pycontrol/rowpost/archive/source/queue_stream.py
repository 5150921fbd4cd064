"""What all readers of queues share.

This module polls the queue's state, waits for the watermark, splits ranges and reads messages as Arrow batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from rowpost.archive.source.connection import open_database
from rowpost.archive.source.gone import naming_what_is_gone
from rowpost.archive.source.options import ReadOptions
from rowpost.archive.source.watermark import Poll, Watermark
from rowpost.database.connection import Connection
from rowpost.errors import PermissionDenied, RowpostError
from rowpost.settings.environment import load_settings

__all__ = [
    "QueueState",
    "Range",
    "StreamRefused",
    "check_offset",
    "declared_worker",
    "describe",
    "open_queue",
    "read_batches",
    "split",
    "wait_for_watermark",
]

POLL_INTERVAL_S = 0.05
SEE_WRITERS = (
    "The login has no right to see which transactions write to the queue {}, so that a stream cannot know how far it may read. Grant the "
    "login VIEW SERVER PERFORMANCE STATE (SQL Server 2022 and newer), VIEW SERVER STATE (older, and Azure SQL Managed Instance) or "
    "VIEW DATABASE STATE (Azure SQL Database). A batch read with endingOffsets=latest does not need it."
)


READ_ONLY = (
    "The queue {} cannot be streamed, or read up to the watermark, from this server: it is a standby, a readable secondary or a read-only "
    "database. It does not show which transactions write on the primary, so that messages would be skipped, and it removes none. Let the "
    "environment name the primary. A batch read with endingOffsets=latest or a row version works here."
)


class StreamRefused(RowpostError):
    """A stream cannot continue: its checkpoint belongs to another queue, unread messages were removed, or the server is a standby."""


@dataclass(frozen=True)
class Range:
    """Offsets greater than `above` and at most `upto`: row versions, or numbers of the spool."""

    above: int
    upto: int


@dataclass(frozen=True)
class QueueState:
    """One result of describe_stream.

    Attributes:
        identity: the table's identity. It changes if the queue is dropped and created again.
        first: the lowest visible row version; None for an empty queue.
        last: the last row version that was assigned.
        purged: the highest row version that a purge removed; None if the queue was never purged.
        consumers: number of connected workers.
        on_standby: whether the server is a standby, or a readable secondary.
        writers: the transactions that write to the queue, and the watermark that they leave; None if the login has no right to see them.
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
        """Return the writers. Raises StreamRefused on a standby, PermissionDenied if the login has no right to see them."""
        self.check_primary()
        if self.writers is None:
            raise PermissionDenied(SEE_WRITERS.format(self.identity))
        return self.writers

    def check_primary(self) -> None:
        """Raise StreamRefused on a standby: its writers cannot be seen, and nothing can be removed."""
        if self.on_standby:
            raise StreamRefused(READ_ONLY.format(self.identity))


def open_queue(options: ReadOptions) -> Connection:
    """Connect to the queue's database. Raises what open_database raises."""
    return open_database(options.environment, options.application)


def describe(database: Connection, queue: str) -> QueueState:
    """Poll the queue's state. Raises QueueNotFound, PermissionDenied."""
    with naming_what_is_gone(database, queue):
        identity, first, last, watermark, writers, purged, consumers, on_standby = database.call("describe_stream", queue)[0]
    return QueueState(identity, first, last, None if writers is None else Poll.of(last, watermark, writers), purged, consumers, on_standby)


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


def split(above: int, upto: int, parts: int) -> list[Range]:
    """Split a range into about equal, non-empty parts.

    >>> split(0, 10, 3)
    [Range(above=0, upto=3), Range(above=3, upto=6), Range(above=6, upto=10)]
    """
    parts = max(min(parts, upto - above), 0)
    cuts = [above + (upto - above) * part // parts for part in range(parts)] + [upto]
    return [Range(low, high) for low, high in pairwise(cuts)]


def read_batches(
    database: Connection, procedure: str, options: ReadOptions, schema: pa.Schema, part: Range, **filters: Any
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range in Arrow batches of about `options.batch_bytes`. The server omits unrequested bodies and headers."""
    from rowpost.archive.source.columns import (
        batches,  # the planner process never reads, and starts faster without this import
    )

    names = schema.names
    chunks = database.stream(
        procedure,
        options.queue,
        columns=names,
        chunk_bytes=options.batch_bytes,
        above=part.above,
        upto=part.upto,
        with_headers="headers" in names,
        with_body="body" in names,
        **filters,
    )
    with naming_what_is_gone(database, options.queue):
        yield from batches(chunks, schema)


def declared_worker(options: ReadOptions) -> str | None:
    """Return the handler of the worker that the environment declares for the queue, or None."""
    found = load_settings(options.environment).queue(options.queue)
    return found.worker.handler if found is not None and found.worker is not None else None


def check_offset(names: Sequence[str], offset: dict[str, Any]) -> None:
    """Raise StreamRefused if an offset lacks one of the keys that this mode writes."""
    if not set(names) <= offset.keys():
        raise StreamRefused(
            f"The stream cannot use the checkpoint's offset {offset}: it needs {', '.join(names)}. "
            "The checkpoint belongs to another source, or to another mode (tail or drain). Use a separate checkpoint for each."
        )
