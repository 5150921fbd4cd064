"""Read an archive's files with pyarrow, for a Spark without a jar for the store in which they are.

Spark's own reader is faster: it skips columns and rows that a query does not need. `rows.read_files` uses it where it can.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rowpost.spark.archive.parts import conform
from rowpost.spark.archive.parts_sink import rows_of
from rowpost.spark.archive.schemas import arrow_schema

__all__ = ["FILE", "PartsSource", "in_tasks"]

#: The column with a row's file, if it is asked for.
FILE = "_file"
_TASK_BYTES = 64 << 20


@dataclass(frozen=True)
class _Files(InputPartition):
    """The files of one task: path, queue and day of each."""

    files: tuple[tuple[str, str, str], ...]


def in_tasks(files: Iterable[tuple[str, str, str, int]]) -> list[list[tuple[str, str, str]]]:
    """Divide files (path, queue, day, bytes) into tasks of about 64 MB.

    >>> in_tasks([("a", "q", "d", 60 << 20), ("b", "q", "d", 60 << 20), ("c", "q", "d", 1)])
    [[('a', 'q', 'd')], [('b', 'q', 'd'), ('c', 'q', 'd')]]
    """
    tasks: list[list[tuple[str, str, str]]] = []
    left = 0
    for path, queue, day, size in files:
        if not tasks or size > left:
            tasks.append([])
            left = _TASK_BYTES
        tasks[-1].append((path, queue, day))
        left -= size
    return tasks


class PartsSource(DataSource):
    """The format rowpost_files. Options: path (the table's folder) and tasks (the files of each, as JSON)."""

    @classmethod
    def name(cls) -> str:
        return "rowpost_files"

    def reader(self, schema: StructType) -> _PartsReader:
        return _PartsReader(self.options, schema)


class _PartsReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._root, self._tasks, self._schema = options["path"], options["tasks"], schema

    def partitions(self) -> list[InputPartition]:
        return [_Files(tuple(tuple(each) for each in task)) for task in json.loads(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of one task, with null for columns that a file lacks."""
        schema = arrow_schema(self._schema)
        if not isinstance(partition, _Files):
            return  # if there are no files, Spark passes one placeholder of its own
        for file in partition.files:
            for batch in rows_of([file], self._root):
                if FILE in schema.names:
                    name = pa.repeat(pa.scalar(f"{self._root}/{quote(file[0])}"), len(batch))
                    batch = pa.RecordBatch.from_arrays([*batch.columns, name], names=[*batch.schema.names, FILE])  # noqa: PLW2901
                yield conform(batch, schema)
