"""One queue as the readers see it: what it is, how far it can be read, and its messages as Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from rowpost.database.connection import Connection
from rowpost.errors import RowpostError, SettingsError
from rowpost.settings.environment import load_settings
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source.connection import open_database
from rowpost.spark.source.horizon import Horizon, Look
from rowpost.spark.source.options import ReadOptions

__all__ = [
    "QueueState",
    "Range",
    "StreamRefused",
    "check_schema",
    "declared_worker",
    "describe",
    "open_queue",
    "read_batches",
    "require",
    "settle",
    "split",
]

PROBE = 0.05  # seconds between two looks at writers
_ZONE = "UTC"


class StreamRefused(RowpostError):
    """A stream cannot go on: its queue is another one now, or messages are gone that it had not read. Says what to do."""


@dataclass(frozen=True)
class Range(InputPartition):
    """Offsets above the first and up to the second: row versions, or numbers of the spool."""

    above: int
    upto: int


@dataclass(frozen=True)
class QueueState:
    """What describe_stream says."""

    identity: str
    first: int | None
    last: int
    look: Look
    purged: int | None
    consumers: int


def open_queue(options: ReadOptions) -> Connection:
    """Connects to the queue's database. Raises what open_database raises."""
    return open_database(options.environment)


def describe(database: Connection, queue: str) -> QueueState:
    """Looks at the queue once. Raises QueueNotFound, PermissionDenied."""
    identity, first, last, settled, writers, purged, consumers = database.call("describe_stream", queue)[0]
    return QueueState(identity, first, last, Look.of(last, settled, writers), purged, consumers)


def settle(database: Connection, queue: str, seconds: float, horizon: Horizon | None = None) -> int:
    """The horizon, when those who write now have ended; at most so many seconds later, as far as it is then."""
    horizon = horizon or Horizon()
    state = describe(database, queue)
    target, end = state.last, time.monotonic() + seconds
    while horizon.see(state.look) < target and time.monotonic() < end:
        time.sleep(PROBE)
        state = describe(database, queue)
    return horizon.reached


def split(above: int, upto: int, parts: int) -> list[Range]:
    """The range in about equal parts; none that could hold nothing.

    >>> split(0, 10, 3)
    [Range(above=0, upto=3), Range(above=3, upto=6), Range(above=6, upto=10)]
    """
    parts = max(min(parts, upto - above), 0)
    cuts = [above + (upto - above) * part // parts for part in range(parts)] + [upto]
    return [Range(low, high) for low, high in pairwise(cuts)]


def check_schema(schema: StructType) -> pa.Schema:
    """The Arrow form of the columns that a reader asks for. Raises SettingsError for a column that is no message's."""
    known = {field.name: field.dataType for field in MESSAGE}
    for field in schema:
        if known.get(field.name) != field.dataType:
            there = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in MESSAGE)
            raise SettingsError(f"A message has no column {field.name} {field.dataType.simpleString()}. It has: {there}.")
    return to_arrow_schema(schema, timezone=_ZONE)


def read_batches(
    database: Connection, procedure: str, options: ReadOptions, schema: StructType, part: Range, **filters: Any
) -> Iterator[pa.RecordBatch]:
    """The messages of a range in batches of about so many bytes; columns that nobody asks for are not sent."""
    from rowpost.spark.source.columns import batches  # not imported where reads are only planned

    names = schema.fieldNames()
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
    yield from batches(chunks, check_schema(schema))


def declared_worker(options: ReadOptions) -> str | None:
    """The handler of the worker that the environment declares for the queue, if there is one."""
    found = load_settings(options.environment).queue(options.queue)
    return found.worker.handler if found is not None and found.worker is not None else None


def require(names: Sequence[str], offset: dict[str, Any]) -> None:
    """Raises StreamRefused for an offset that this source has not written."""
    if not set(names) <= offset.keys():
        raise StreamRefused(
            f"The checkpoint's offset {offset} is none of this stream's: it has {', '.join(names)}. "
            "It belongs to another source, or to the other mode (tail, drain): use a checkpoint of its own for each."
        )
