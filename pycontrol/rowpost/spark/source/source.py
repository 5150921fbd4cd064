"""The Spark data source `rowpost`: a queue as a table, as a stream, and as a sink.

    spark.read.format("rowpost").option("queue", "audit").load()

`QueueSource` selects the reader or writer. Its classes are imported only when they are needed, because Spark creates the
source in several short-lived processes.

The options are a closed list (option_names.py): of all reads queue (or subscribe), environment, startingOffsets, endingOffsets (a row
version, latest or watermark), minPartitions, maxRecordsPerPartition, maxBytesPerBatch, watermarkTimeoutSeconds, includeHeaders and columns; of
streams also mode (tail or drain), maxOffsetsPerTrigger, maxBytesPerTrigger, failOnDataLoss, allowConsumers, takeOver, connectRetrySeconds,
confirmedOffsets, and subscribe with several names or subscribePattern instead of queue. Options of writes: see sink.py.

The columns are those of schemas.MESSAGE, or a subset: columns that the option columns (`row_version,headers`) or
`.schema("row_version bigint, headers string")` omits are not read. Arrow limits a column of one batch to 2 GB, and with it a body. A batch exceeds maxBytesPerBatch only if it is a
single message.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from rowpost.errors import SettingsError
from rowpost.spark.source.option_names import check_no_secrets
from rowpost.spark.source.options import in_environment, read_options, write_options
from rowpost.spark.source.selection import check_schema_is_selected, selected_columns

__all__ = ["QueueSource"]

_PUSHDOWN_WORKER = "data_source_pushdown_filters.py"


class QueueSource(DataSource):
    """The data source `rowpost`. Raises SettingsError for a URL or a password among the options, before Spark has a plan."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        check_no_secrets(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "rowpost"

    def schema(self) -> StructType:
        """Return the columns of a message, or those that the options name."""
        return selected_columns(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create the reader of `spark.read`."""
        from rowpost.spark.source.reader import FilteringReader, QueueReader

        check_schema_is_selected(self.options, schema)
        kind, options = FilteringReader if _pushes_filters() else QueueReader, in_environment(read_options(self.options))
        if options.several:
            raise SettingsError(f"A batch reads one queue (got {options.queue!r}). Read each queue and combine them with union, or use readStream.")
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> Any:
        """Create the reader of `spark.readStream`."""
        from rowpost.spark.source.stream_reader import StreamReader

        check_schema_is_selected(self.options, schema)
        return StreamReader(in_environment(read_options(self.options, stream=True)), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Create the writer of `df.write`. Raises SettingsError."""
        from rowpost.spark.source.sink import batch_writer, check_append_only

        check_append_only(overwrite)
        return batch_writer(in_environment(write_options(self.options)), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Create the writer of `df.writeStream`. Raises SettingsError."""
        from rowpost.spark.source.sink import StreamWriter, check_append_only

        check_append_only(overwrite)
        return StreamWriter(in_environment(write_options(self.options, stream=True)), schema)


def _pushes_filters() -> bool:
    """Tell whether Spark is planning a push-down of filters now. Otherwise it refuses a reader that has pushFilters."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith(_PUSHDOWN_WORKER):
            return True
        frame = frame.f_back
    return False
