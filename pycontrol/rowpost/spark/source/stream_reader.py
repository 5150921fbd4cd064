"""The reader behind `spark.readStream.format("rowpost")`: it gives a tail, a drain or several of them to Spark.

Spark calls latestOffset and partitions in one process, and read in others. It calls commit for a batch only when it
builds the next batch. The last batch of a run is therefore committed by checkpoint.finalize or by the next run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rowpost.archive.identity import Offset
from rowpost.archive.source.cuts import Bounds
from rowpost.archive.source.drain import Drain
from rowpost.archive.source.options import DRAIN, ReadOptions
from rowpost.archive.source.several import Several
from rowpost.archive.source.streams import Tail
from rowpost.spark.archive.schemas import check_schema

__all__ = ["StreamReader"]


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
