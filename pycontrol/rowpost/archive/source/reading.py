"""Read a range of messages as Arrow batches, to its end although the connection is lost in between.

A reader has passed rows on when it loses its connection, and cannot take them back. It therefore reads the range again
and skips these rows. The spool has an order, so that their number is enough. A queue has none: their row versions are
kept, eight bytes for each row of the range.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rowpost.archive.columns import MESSAGE
from rowpost.archive.source.connection import PatientConnection, naming_what_is_gone
from rowpost.archive.source.cuts import Range
from rowpost.archive.source.options import ReadOptions
from rowpost.database.connection import Connection
from rowpost.errors import DatabaseUnavailable

__all__ = ["read_ahead", "read_batches", "read_whole_range"]

_KEY = "row_version"
_KEY_FIELD = pa.field(_KEY, pa.int64(), nullable=False)
_AHEAD = 2  # batches that wait in memory
_END = object()
_Batch = TypeVar("_Batch")


class _SeenRows:
    """Rows of a range with an order."""

    def __init__(self) -> None:
        self._returned = self._skip = 0

    def begin(self) -> None:
        """Start to read the range from its beginning."""
        self._skip = self._returned

    def unseen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of the next batch that were not returned before."""
        skipped = min(self._skip, batch.num_rows)
        self._skip -= skipped
        self._returned += batch.num_rows - skipped
        return batch.slice(skipped)


class _SeenRowVersions:
    """Rows of a range without an order. The methods are those of _SeenRows."""

    def __init__(self) -> None:
        self._returned: list[pa.Array] = []
        self._before: pa.Array | None = None

    def begin(self) -> None:
        self._before = pa.concat_arrays(self._returned) if self._returned else None

    def unseen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._before is not None:
            batch = batch.filter(pc.invert(pc.is_in(batch[_KEY], value_set=self._before)))
        # a copy: a column of the driver's batch would keep the whole batch in memory
        self._returned.append(pc.add(batch[_KEY], 0))
        return batch


def read_whole_range(
    connection: PatientConnection, options: ReadOptions, schema: pa.Schema, part: Range, *, of_spool: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range of row versions, or of the spool.

    Raises DatabaseUnavailable if the server does not come back in time.
    """
    seen, procedure = (_SeenRows(), "read_spool") if of_spool else (_SeenRowVersions(), "read_range")
    keyed = schema if of_spool or _KEY in schema.names else schema.append(_KEY_FIELD)
    while True:
        seen.begin()
        try:
            for batch in read_batches(connection.open(), procedure, options, keyed, part):
                unseen = seen.unseen(batch)
                if unseen.num_rows:
                    connection.succeeded()  # only new rows end an outage, so that each attempt makes progress or waits
                    yield unseen.select(schema.names)
        except DatabaseUnavailable as error:
            connection.failed(error)
        else:
            connection.succeeded()
            return


def read_batches(
    database: Connection, procedure: str, options: ReadOptions, schema: pa.Schema, part: Range
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range in Arrow batches of about `options.batch_bytes`.

    The server omits unrequested bodies and headers.
    """
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
    )
    with naming_what_is_gone(database, options.queue):
        for chunk in chunks:
            yield pa.RecordBatch.from_arrays([_column(chunk, field) for field in schema], schema=schema)


def _column(chunk: pa.RecordBatch | list[tuple[Any, ...]], field: pa.Field) -> pa.Array:
    """Return a column of what a driver has read: an Arrow batch, or rows with the columns of a message, whose times are
    in UTC.
    """
    if isinstance(chunk, pa.RecordBatch):
        return chunk.column(field.name).cast(field.type)
    place = MESSAGE.names.index(field.name)
    values = [row[place] for row in chunk]
    return pa.array(map(str, values) if field.name == "id" else values, field.type)


def read_ahead(batches: Generator[_Batch]) -> Iterator[_Batch]:
    """Yield the batches of a generator, which runs in a thread of its own, and raise what it raises.

    The next batches are read while the last one is parsed and written: the driver and Parquet's writer release Python's
    lock.
    """
    waiting: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(_AHEAD)
    ended = threading.Event()

    def fill() -> None:
        try:
            for batch in batches:
                waiting.put((batch, None))
                if ended.is_set():
                    return
            waiting.put((_END, None))
        except BaseException as error:  # noqa: BLE001 -- raised again where the batches are used
            waiting.put((None, error))
        finally:
            batches.close()

    threading.Thread(target=fill, daemon=True).start()
    try:
        while True:
            batch, error = waiting.get()
            if error is not None:
                raise error
            if batch is _END:
                return
            yield batch
    finally:
        ended.set()
        with suppress(queue.Empty):  # the thread waits for room, and ends when it has it
            while True:
                waiting.get_nowait()
