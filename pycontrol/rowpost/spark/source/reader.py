"""Read a queue as a table: the batch readers behind `spark.read.format("rowpost")`.

`Pushed` holds the filters that the database applies. `QueueReader` plans ranges of row versions and reads one range in
each task. `FilteringReader` is used if the session pushes filters down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import (
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

from rowpost.archive.source.connection import open_database
from rowpost.archive.source.cuts import Range, Sampled, divide_visible
from rowpost.archive.source.options import LATEST, WATERMARK, ReadOptions
from rowpost.archive.source.queue_stream import check_readable, describe, wait_for_watermark
from rowpost.archive.source.reading import read_batches
from rowpost.spark.archive.schemas import check_schema

__all__ = ["FilteringReader", "Pushed", "QueueReader"]

_HIGHEST = 2**63 - 1


@dataclass(frozen=True)
class Pushed:
    """The filters that the database applies.

    `above` and `upto` narrow the range of row versions. None means no filter.
    """

    above: int = 0
    upto: int = _HIGHEST
    ids: tuple[str, ...] | None = None
    headers_contain: str | None = None

    def accept(self, condition: Filter) -> Pushed | None:
        """Return these filters with one more. Returns None if Spark must apply the new one."""
        column = ".".join(condition.attribute) if hasattr(condition, "attribute") else ""
        if column == "row_version":
            return self._narrowed(condition, getattr(condition, "value", None))
        if column == "id" and self.ids is None and isinstance(condition, EqualTo | In):
            wanted = condition.value if isinstance(condition, In) else [condition.value]
            # Spark compares text and the database compares UUIDs: only the canonical spelling is equal in both
            return replace(self, ids=tuple(each for each in wanted if isinstance(each, str) and _is_canonical(each)))
        if column == "headers" and self.headers_contain is None and isinstance(condition, StringContains):
            return replace(self, headers_contain=condition.value) if "\0" not in condition.value else None
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
    """The queue's messages, in ranges of row versions.

    Spark plans the ranges once for each DataFrame, when it is first read.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options, self.schema = options, check_schema(schema)
        self.pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        """Plan about `minPartitions` ranges with about the same work.

        The default is the number of cores of this machine.
        """
        if self.pushed.ids == ():
            return []
        with open_database(self.options.environment, self.options.application) as database:
            state = describe(database, self.options.queue)
            check_readable(database, self.options.queue)
            lowest, ending = self.options.starting, self.options.ending
            if ending == WATERMARK:
                ending = wait_for_watermark(database, self.options.queue, self.options.watermark_timeout_s)
            if not isinstance(lowest, int):
                lowest = state.last if lowest == LATEST else 0
            above = max(lowest, self.pushed.above)
            upto = min(ending if isinstance(ending, int) else state.last, self.pushed.upto, state.last)
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
        ids = None if self.pushed.ids is None else list(self.pushed.ids)
        filters = {"ids": ids, "headers_contain": self.pushed.headers_contain}
        with open_database(self.options.environment, self.options.application) as database:
            yield from read_batches(database, "read_range", self.options, self.schema, part, **filters)


class FilteringReader(QueueReader):
    """A QueueReader for sessions that push filters down. Other sessions refuse a reader with pushFilters.

    Spark 4.3 keeps the ranges of a filter that was pushed down, and also uses them for later queries of the same
    DataFrame whose filters it cannot push down, which then lack rows. Sessions that rowpost starts therefore push
    nothing down.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Accept the filters that the database can apply, and return the others to Spark."""
        for condition in filters:
            pushed = self.pushed.accept(condition)
            if pushed is None:
                yield condition
            else:
                self.pushed = pushed
