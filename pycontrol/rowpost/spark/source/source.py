"""`spark.read.format("rowpost")` and `spark.readStream.format("rowpost")`: a queue as a table, and as a stream.

    spark.read.format("rowpost").option("queue", "audit").load()

Options: queue (or subscribe), environment, startingOffsets, endingOffsets, minPartitions, maxBytesPerBatch; of streams
besides mode (tail or drain), maxOffsetsPerTrigger, failOnDataLoss, settleSeconds, allowConsumers, takeOver. Columns are
those of schemas.MESSAGE, or some of them: what `.schema("row_version bigint, headers string")` leaves out is not read.
Bodies can be as large as Arrow's 2 GB a column and batch allow: a larger batch than maxBytesPerBatch is one message.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source.options import DRAIN, LEDGER, read_options, write_options

__all__ = ["QueueSource"]

_PUSHDOWN_WORKER = "data_source_pushdown_filters.py"


class QueueSource(DataSource):
    """The data source `rowpost`. Spark makes one in a process of its own each time: what it need not import, it does not."""

    @classmethod
    def name(cls) -> str:
        """As `format` names it."""
        return "rowpost"

    def schema(self) -> StructType:
        """The columns of a message."""
        return MESSAGE

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`, in reader.py."""
        from rowpost.spark.source.reader import FilteringReader, QueueReader

        kind = FilteringReader if _pushes_filters() else QueueReader
        return kind(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> Any:
        """For `spark.readStream`, in streams.py."""
        from rowpost.spark.source.streams import DrainReader, TailReader

        options = read_options(self.options)
        return (DrainReader if options.mode == DRAIN else TailReader)(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """For `df.write`, in sink.py."""
        from rowpost.spark.source.sink import LedgerWriter, StagedWriter, append_only

        append_only(overwrite)
        options = write_options(self.options)
        return (LedgerWriter if options.mode == LEDGER else StagedWriter)(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """For `df.writeStream`, in sink.py."""
        from rowpost.spark.source.sink import StreamWriter, append_only

        append_only(overwrite)
        return StreamWriter(write_options(self.options), schema)


def _pushes_filters() -> bool:
    """Whether Spark asks from where it pushes filters down: with its setting for that off, it refuses such a reader."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith(_PUSHDOWN_WORKER):
            return True
        frame = frame.f_back
    return False
