"""Read a queue as a table: the batch reader behind `spark.read.format("rowpost")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rowpost.archive.source.connection import open_database
from rowpost.archive.source.cuts import Range, Sampled, divide_visible
from rowpost.archive.source.options import LATEST, WATERMARK, ReadOptions
from rowpost.archive.source.queue_stream import check_readable, describe, wait_for_watermark
from rowpost.archive.source.reading import read_batches
from rowpost.spark.archive.schemas import check_schema

__all__ = ["QueueReader"]


class QueueReader(DataSourceReader):
    """The queue's messages, in ranges of row versions.

    Spark plans the ranges once for each DataFrame, when it is first read. The reader pushes no filters down: Spark 4.3
    would keep the ranges of one filter for later queries of the same DataFrame, which would then lack rows.
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
