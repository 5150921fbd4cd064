"""The Spark sink that writes files of an archive's table: tasks write them, and the driver learns of them when all have
succeeded.

`write_files` in rows.py uses it. The sink commits nothing to the table. It leaves the descriptions of
the files in a file below `_rowpost/new`, which the driver reads and deletes. If a task fails, Spark calls `abort`,
which deletes the files of the others.

The alternative `DataFrame.mapInArrow` needs pandas, which nothing else here does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rowpost.archive.arrow_headers import archived
from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.parts import NewFile, write_parts
from rowpost.spark.archive.schemas import arrow_schema

__all__ = ["PartsSink"]


@dataclass
class _Written(WriterCommitMessage):
    files: list[NewFile]


class PartsSink(DataSource):
    """The format rowpost_parts.

    Options: path (the table's folder), name (starts the names of the files), schema (of the files, as JSON) and parse
    (the headers of messages: true or false).
    """

    @classmethod
    def name(cls) -> str:
        return "rowpost_parts"

    def writer(self, schema: StructType, overwrite: bool) -> _PartsWriter:
        return _PartsWriter(self.options)


class _PartsWriter(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._root, self._name, self._schema = options["path"], options["name"], options["schema"]
        self._parses = options["parse"] == "true"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        """Write the rows of one task."""
        schema = arrow_schema(StructType.fromJson(json.loads(self._schema)))
        rows = map(archived, iterator) if self._parses else iterator
        return _Written(list(write_parts(rows, self._root, schema, self._name)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tell the driver which files were written."""
        files = [file.__dict__ for each in messages if isinstance(each, _Written) for file in each.files]
        ArchiveFolder(self._root).write(f"new/{self._name}.json", {"files": files})

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the files of the tasks that have succeeded."""
        ArchiveFolder(self._root).delete(
            file.path for each in messages if isinstance(each, _Written) for file in each.files
        )
