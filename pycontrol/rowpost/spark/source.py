"""`spark.read.format("rowpost")` and `spark.readStream.format("rowpost")`: a queue as a table, and as a stream.

    spark.read.format("rowpost").option("queue", "audit").load()

Options: queue (or subscribe), environment, startingOffsets, endingOffsets, minPartitions, maxBytesPerBatch; of streams
besides mode (tail or drain), maxOffsetsPerTrigger, failOnDataLoss, settleSeconds, allowConsumers, takeOver. Columns are
those of schemas.MESSAGE, or some of them: what `.schema("row_version bigint, headers string")` leaves out is not read.
Bodies can be as large as Arrow's 2 GB a column and batch allow: a larger batch than maxBytesPerBatch is one message.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringContains,
)
from pyspark.sql.types import StructType

from rowpost.spark.options import DRAIN, EARLIEST, LATEST, SETTLED, ReadOptions, read_options, write_options
from rowpost.spark.queue_stream import Range, check_schema, describe, open_queue, read_batches, settle, split
from rowpost.spark.schemas import MESSAGE

__all__ = ["Pushed", "QueueReader", "QueueSource"]

_HIGHEST = 2**63 - 1
_PUSHDOWN_WORKER = "data_source_pushdown_filters.py"


@dataclass(frozen=True)
class Pushed:
    """The filters that the database applies. `above` and `upto` narrow the range; None does not filter."""

    above: int = 0
    upto: int = _HIGHEST
    ids: tuple[str, ...] | None = None
    headers_contain: str | None = None

    def accept(self, condition: Filter) -> Pushed | None:
        """These filters and one more; None where that is left to Spark."""
        column, value = ".".join(condition.attribute) if hasattr(condition, "attribute") else "", getattr(condition, "value", None)
        if column == "row_version":
            return self._narrowed(condition, value)
        if column == "id" and self.ids is None and isinstance(condition, EqualTo | In):
            wanted = value if isinstance(condition, In) else [value]
            # as they are written: Spark compares texts, the database uuids
            return replace(self, ids=tuple(each for each in wanted if isinstance(each, str) and _is_canonical(each)))
        if column == "headers" and self.headers_contain is None and isinstance(condition, StringContains):
            return replace(self, headers_contain=value) if "\0" not in value else None
        return None

    def _narrowed(self, condition: Filter, value: Any) -> Pushed | None:
        if isinstance(condition, EqualTo):
            return replace(self, above=max(self.above, value - 1), upto=min(self.upto, value))
        if isinstance(condition, GreaterThan | GreaterThanOrEqual):
            return replace(self, above=max(self.above, value - isinstance(condition, GreaterThanOrEqual)))
        if isinstance(condition, LessThan | LessThanOrEqual):
            return replace(self, upto=min(self.upto, value - isinstance(condition, LessThan)))
        return None


def _is_canonical(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


class QueueReader(DataSourceReader):
    """A queue as it is now, by ranges of row versions. Every action looks anew how far they go."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema)
        self.options, self.schema = options, schema
        self.pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        """As many ranges as minPartitions says, the machine's cores by default."""
        with open_queue(self.options) as database:
            state = describe(database, self.options.queue)
            ending = self.options.ending
            if ending == SETTLED:
                ending = settle(database, self.options.queue, self.options.settle)
        lowest = {EARLIEST: 0, LATEST: state.last}.get(self.options.starting, self.options.starting)
        above = max(lowest, self.pushed.above, state.last if state.first is None else state.first - 1)
        upto = min(state.last if ending == LATEST else ending, self.pushed.upto, state.last)
        return split(above, upto, self.options.partitions) if self.pushed.ids != () else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range, in one snapshot of the database."""
        if not isinstance(partition, Range):
            return  # what Spark makes of no partitions
        ids = None if self.pushed.ids is None else list(self.pushed.ids)
        with open_queue(self.options) as database:
            yield from read_batches(
                database, "read_range", self.options, self.schema, partition, ids=ids, headers_contain=self.pushed.headers_contain
            )


class FilteringReader(QueueReader):
    """The same, for a session that pushes filters down; any other refuses a reader that takes them."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes what the database can do, and returns the rest."""
        for condition in filters:
            pushed = self.pushed.accept(condition)
            if pushed is None:
                yield condition
            else:
                self.pushed = pushed


class QueueSource(DataSource):
    """The data source `rowpost`."""

    @classmethod
    def name(cls) -> str:
        """As `format` names it."""
        return "rowpost"

    def schema(self) -> StructType:
        """The columns of a message."""
        return MESSAGE

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        kind = FilteringReader if _pushes_filters() else QueueReader
        return kind(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> Any:
        """For `spark.readStream`."""
        from rowpost.spark.streams import DrainReader, TailReader

        options = read_options(self.options)
        return (DrainReader if options.mode == DRAIN else TailReader)(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """For `df.write`, in sink.py."""
        from rowpost.spark.sink import LEDGER, LedgerWriter, StagedWriter, append_only

        append_only(overwrite)
        options = write_options(self.options)
        return (LedgerWriter if options.mode == LEDGER else StagedWriter)(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """For `df.writeStream`, in sink.py."""
        from rowpost.spark.sink import StreamWriter, append_only

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
