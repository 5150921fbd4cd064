"""Streams on a Spark without admission control (4.0 and 4.1): the source finds the start of each batch and limits it.

`SelfPlanned` calls a stream reader as Spark 4.2 does. A batch begins where the one before ended. When a query starts again, these
versions call `partitions` with the last offset of the checkpoint as the start and the end, before they ask for a batch. With the option
availableNow, the reader reads nothing that comes after the start of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rowpost.errors import SettingsError
from rowpost.spark.source.options import ReadOptions
from rowpost.spark.source.queue_stream import StreamRefused
from rowpost.spark.versions import HAS_ADMISSION_CONTROL

__all__ = ["SelfPlanned", "planned"]


def planned(reader: DataSourceStreamReader, options: ReadOptions) -> DataSourceStreamReader:
    """Return the reader that this version of Spark can call. Raises SettingsError for an option that it must not have."""
    if not HAS_ADMISSION_CONTROL:
        return SelfPlanned(reader, options.ends)
    if options.ends:
        raise SettingsError("The option availableNow is for Spark 4.0 and 4.1. Remove it, and use .trigger(availableNow=True).")
    return reader


class SelfPlanned(DataSourceStreamReader):
    """A stream reader that finds the start of its batches and limits them itself.

    Args:
        reader: a reader as Spark 4.2 calls it.
        ends: read only what is there now.
    """

    def __init__(self, reader: Any, ends: bool) -> None:
        self._reader, self._ends = reader, ends
        self._start_planning()

    def __getstate__(self) -> dict[str, Any]:
        return {"_reader": self._reader, "_ends": self._ends}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_planning()

    def _start_planning(self) -> None:
        self._start: dict[str, Any] | None = None  # of the next batch
        self._asked: tuple[dict[str, Any], dict[str, Any]] | None = None  # start and end of the newest batch

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a stream without a checkpoint, the same each time."""
        if self._start is None:
            self._start = self._reader.initialOffset()
        return self._start

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the end of the next batch. If there is nothing to read, it is the end of the batch before."""
        start = self.initialOffset()
        if self._ends:
            self._reader.prepareForTriggerAvailableNow()
            self._ends = False
        end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        self._asked = (start, end)
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split a batch. Raises StreamRefused if Spark begins it elsewhere than it was planned."""
        if self._asked is not None and self._asked[1] == end and self._asked[0] != start:
            raise StreamRefused(
                f"Spark begins a batch at {start}, but it was planned from {self._asked[0]}. Start the stream again, or use Spark 4.2."
            )
        self._start = end
        return [] if start == end else self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read a part of a batch."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the reader that a batch is committed."""
        self._reader.commit(end)

    def stop(self) -> None:
        """Close the planner's connection."""
        self._reader.stop()
