"""Streams on a Spark without admission control (4.0 and 4.1): the source finds the start of each batch and limits it.

`SelfPlanned` calls a stream reader as Spark 4.2 does. It reads the start of a run in the query's checkpoint, so that the stream needs
the option checkpointLocation. With the option availableNow, it reads nothing that comes after the start of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rowpost.errors import SettingsError
from rowpost.spark.source.checkpoint import committed_offset
from rowpost.spark.source.options import ReadOptions
from rowpost.spark.versions import HAS_ADMISSION_CONTROL

__all__ = ["SelfPlanned", "planned"]


def planned(reader: DataSourceStreamReader, options: ReadOptions) -> DataSourceStreamReader:
    """Return the reader that this version of Spark can call. Raises SettingsError for options that it needs, or must not have."""
    if HAS_ADMISSION_CONTROL:
        if options.ends:
            raise SettingsError("The option availableNow is for Spark 4.0 and 4.1. Remove it, and use .trigger(availableNow=True).")
        return reader
    if options.checkpoint is None:
        raise SettingsError(
            f"Spark {pyspark.__version__} does not tell a stream where it continues; Spark 4.2 does. Give the reader the option "
            "checkpointLocation too, with the same folder as the writer."
        )
    return SelfPlanned(reader, options.checkpoint, options.ends)


class SelfPlanned(DataSourceStreamReader):
    """A stream reader that finds the start of its batches and limits them itself, for a Spark without admission control.

    Args:
        reader: a reader as Spark 4.2 calls it.
        checkpoint: the query's checkpoint.
        ends: read only what is there now.
    """

    def __init__(self, reader: Any, checkpoint: str, ends: bool) -> None:
        self._reader, self._checkpoint, self._ends = reader, checkpoint, ends
        self._start: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_start": None}

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a stream without a checkpoint, the same each time."""
        if self._start is None:
            self._start = self._reader.initialOffset()
        return self._start

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the end of the next batch. If there is nothing to read, it is the end of the batch before."""
        if self._start is None:
            self._start = committed_offset(self._checkpoint, source=None) or self._reader.initialOffset()
        if self._ends:
            self._reader.prepareForTriggerAvailableNow()
            self._ends = False
        return self._reader.latestOffset(self._start, self._reader.getDefaultReadLimit())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split a batch. The next one begins at its end. Spark repeats a batch that was not committed before it asks for the next."""
        found = self._reader.partitions(start, end)
        self._start = end
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()
