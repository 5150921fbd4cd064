"""The readers behind `spark.read.format("rowpost")`, and behind `spark.readStream`: they give a queue, or the stream of
one or several, to Spark.

Spark calls latestOffset and partitions in one process, and read in others. It calls commit for a batch only when it
builds the next batch. The last batch of a run is therefore committed by checkpoint.finalize or by the next run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rowpost.archive.identity import Offset
from rowpost.archive.source.connection import open_database
from rowpost.archive.source.cuts import Bounds, Range, Sampled, divide_visible
from rowpost.archive.source.drain import Drain
from rowpost.archive.source.options import DRAIN, LATEST, WATERMARK, ReadOptions
from rowpost.archive.source.queue_stream import check_readable, describe, wait_for_watermark
from rowpost.archive.source.reading import read_batches
from rowpost.archive.source.several import Several
from rowpost.archive.source.streams import Tail
from rowpost.spark.archive.schemas import check_schema

__all__ = ["QueueReader", "StreamReader"]


class QueueReader(DataSourceReader):
    """The queue's messages, in ranges of row versions, which Spark plans once for each DataFrame.

    It pushes no filters down: Spark 4.3 would keep the ranges of one filter for later queries, which would then lack
    rows.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options, self.schema = options, check_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan about `minPartitions` ranges with about the same work.

        The default is the number of cores of this machine.
        """
        with open_database(self.options.environment, self.options.application) as database:
            state = describe(database, self.options.queue)
            check_readable(database, self.options.queue)
            above, ending = self.options.starting, self.options.ending
            if ending == WATERMARK:
                ending = wait_for_watermark(database, self.options.queue, self.options.watermark_timeout_s)
            if not isinstance(above, int):
                above = state.last if above == LATEST else 0
            upto = min(ending, state.last) if isinstance(ending, int) else state.last
            sample, part_rows = [], self.options.part_rows
            if part_rows is not None or self.options.partitions > 1:
                sample = database.call("sample_range", self.options.queue, above=above, upto=upto)
        sampled = [Sampled(*row) for row in sample]
        ranges = divide_visible(above, upto, state.first, self.options.partitions, sampled, part_rows)
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one range in one database snapshot."""
        part: Range | None = partition.value
        if part is None:
            return  # if there are no partitions, Spark passes one placeholder of its own
        with open_database(self.options.environment, self.options.application) as database:
            yield from read_batches(database, "read_range", self.options, self.schema, part)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of one queue or of several. Raises SettingsError for a column that a message does not have."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._made_of = options, schema
        columns = check_schema(schema, has_queue=options.several)
        self.stream: Several | Drain | Tail = (
            Several if options.several else Drain if options.mode == DRAIN else Tail
        )(options, columns)

    def __reduce__(self) -> tuple[Any, ...]:
        """Send what the stream is made of to a task, and not what its planner knows."""
        return type(self), self._made_of

    def initialOffset(self) -> Offset:
        """Return the start of a stream without a checkpoint."""
        return self.stream.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that Spark passes to latestOffset.

        Spark has none of both kinds: latestOffset adds the bytes.
        """
        options: ReadOptions = self.stream.options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch, within the bounds that the options set, unless Spark asks for all that is
        available.
        """
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.stream.plan(
            start, Bounds() if isinstance(limit, ReadAllAvailable) else Bounds(rows, self.stream.options.max_bytes)
        )

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the run to the messages written before it."""
        self.stream.end_at_present()

    def reportLatestOffset(self) -> Offset | None:
        """Return how far the stream is behind, for the query's progress."""
        return self.stream.report()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Split a batch. Raises StreamRefused if the checkpoint belongs to another queue."""
        return [InputPartition(part) for part in self.stream.parts(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one part."""
        return self.stream.read(partition.value)

    def commit(self, end: Offset) -> None:
        """Delete the messages of committed batches from the spool of a drain."""
        self.stream.commit(end)

    def stop(self) -> None:
        """Close the planner's connection."""
        self.stream.stop()
