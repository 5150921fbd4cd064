"""Write the Parquet files of a table, and describe them for the table's log.

`write_parts` takes Arrow batches and returns one `NewFile` for each file. Spark runs it in tasks. Nothing is visible
until the files are committed. A call that fails removes its files; what a killed process leaves is never read.

A `NewFile` has statistics of the columns in STATISTICS only. The log of a table outlives its rows, so it must not
contain values of headers, bodies, ids, addresses or names of machines. The file itself has what a search needs: Bloom
filters of the ids in SEARCHED, the range of each page's values and, if it was merged, rows that are sorted by
conversation. `erase` deletes them with the file.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from rowpost.archive.clustering import BUFFER_BYTES
from rowpost.archive.columns import PARTITIONS
from rowpost.archive.folder import ArchiveFolder

__all__ = ["SEARCHED", "STATISTICS", "NewFile", "conform", "partition_folder", "statistics", "write_parts"]

#: Columns whose smallest and largest values are written to the table's log.
STATISTICS = (
    "row_version",
    "time_sent",
    "processing_started",
    "processing_ended",
    "deliver_at",
    "time_of_failure",
    "body_bytes",
    "archived_at",
    "hour",
)
#: Columns with a Bloom filter in each row group.
SEARCHED = ("id", "message_id", "conversation_id")
_FALSE_POSITIVES = 0.01
#: A reader that has found a row by the index of pages reads one page of each column.
_PAGES = {"write_page_index": True, "max_rows_per_page": 2048}
_NO_STATISTICS = ("headers", "body")  # long values, which no filter compares
_DIFFERING = (
    "id",
    "message_id",
    "headers",
    "body",
)  # a dictionary of values that differ is written, found too large and discarded
_ESCAPED = set("\"#%'*/:=?\\{[]^\x7f")


@dataclass(frozen=True)
class NewFile:
    """A file that is not committed yet. `statistics` is JSON as the table's log has it."""

    path: str
    queue: str
    day: str
    bytes: int
    rows: int
    statistics: str


def partition_folder(queue: str, day: str) -> str:
    """Return the folder of a partition, with the names that Spark gives to folders.

    >>> partition_folder("a/b", "2026-11-20")
    'queue=a%2Fb/day=2026-11-20'
    """
    escaped = "".join(f"%{ord(c):02X}" if c in _ESCAPED or c < " " else c for c in queue)
    return f"queue={escaped}/day={day}"


def statistics(footer: parquet.FileMetaData) -> str:
    """Return the statistics of a file as JSON for the table's log: its rows, and the range of the columns in
    STATISTICS.
    """
    lowest, highest, nulls = {}, {}, {}
    places = {footer.schema.column(number).path: number for number in range(footer.num_columns)}
    for name in STATISTICS:
        if name not in places:
            continue
        found = [footer.row_group(group).column(places[name]).statistics for group in range(footer.num_row_groups)]
        if not found or not all(each is not None and each.has_null_count for each in found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        known = [each for each in found if each.has_min_max]
        if known and all(each.has_min_max or not each.num_values for each in found):
            lowest[name] = _in_log(min(each.min for each in known))
            highest[name] = _in_log(max(each.max for each in known))
    return json.dumps({"numRecords": footer.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls})


def _in_log(value: object) -> object:
    return f"{value:%Y-%m-%dT%H:%M:%S.%fZ}" if isinstance(value, datetime) else value


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of a schema.

    A column that it lacks is null; a column that the schema lacks is dropped.
    """
    names = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write_parts(batches: Iterable[pa.RecordBatch], root: str, schema: pa.Schema, name: str) -> Iterator[NewFile]:
    """Write rows to one file for each partition, and return the files when all rows are written.

    Args:
        batches: rows with the columns of `schema`, which are those of the files, and of PARTITIONS.
        root: the table's folder.
        name: the start of the files' names.
    """
    parts = _Parts(root, schema, name)
    try:
        for batch in batches:
            parts.add(batch)
        yield from parts.close()
    except BaseException:
        parts.discard()
        raise


class _Parts:
    """The open files of one task. Rows are buffered, so that a file has few row groups."""

    def __init__(self, root: str, schema: pa.Schema, name: str) -> None:
        self._schema, self._name = schema, name
        self._folder = ArchiveFolder(root)
        self._buffered: dict[tuple[str, str], list[pa.RecordBatch]] = defaultdict(list)
        self._bytes = 0
        self._open: dict[tuple[str, str], tuple[str, parquet.ParquetWriter, list[Any]]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        queues, days = (pc.unique(batch.column(name)).to_pylist() for name in PARTITIONS)
        for queue in queues:
            for day in days:
                # a filter copies all rows, also if it excludes none
                all_rows = len(queues) == len(days) == 1
                own = (
                    batch
                    if all_rows
                    else batch.filter(
                        pc.and_(pc.equal(batch.column("queue"), queue), pc.equal(batch.column("day"), day))
                    )
                )
                if len(own):
                    self._buffered[queue, day.isoformat()].append(conform(own, self._schema))
        self._bytes += batch.nbytes
        if self._bytes >= BUFFER_BYTES:
            self._flush()

    def close(self) -> Iterator[NewFile]:
        self._flush(last=True)
        for (queue, day), (path, writer, footers) in self._open.items():
            writer.close()
            yield NewFile(path, queue, day, self._folder.size(path), footers[0].num_rows, statistics(footers[0]))

    def discard(self) -> None:
        for path, writer, _ in self._open.values():
            writer.close()
            self._folder.delete([path])

    def _flush(self, *, last: bool = False) -> None:
        for partition, batches in self._buffered.items():
            rows = pa.Table.from_batches(batches)
            if partition not in self._open:
                # a row group that follows may have more rows, up to the whole buffer
                self._open[partition] = self._create(
                    *partition, len(rows) if last else len(rows) * self._bytes // max(rows.nbytes, 1)
                )
            self._open[partition][1].write_table(rows)
        self._buffered.clear()
        self._bytes = 0

    def _create(self, queue: str, day: str, group_rows: int) -> tuple[str, parquet.ParquetWriter, list[Any]]:
        path = f"{partition_folder(queue, day)}/{self._name}-{uuid.uuid4().hex[:12]}.zstd.parquet"
        footers: list[parquet.FileMetaData] = []
        counted = [field.name for field in self._schema if field.name not in _NO_STATISTICS]
        out = self._folder.create_file(path)
        repeating = [field.name for field in self._schema if field.name not in _DIFFERING]
        filters = {
            name: {"ndv": max(group_rows, 1), "fpp": _FALSE_POSITIVES}
            for name in SEARCHED
            if name in self._schema.names
        }
        writer = parquet.ParquetWriter(
            out,
            self._schema,
            compression="zstd",
            write_statistics=counted,
            use_dictionary=repeating,
            metadata_collector=footers,
            bloom_filter_options=filters,
            **_PAGES,
        )
        writer.file_handle = out  # close() closes it
        return path, writer, footers
