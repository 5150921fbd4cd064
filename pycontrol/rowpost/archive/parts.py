"""Write the Parquet files of a table, and describe them for the table's log.

Nothing of `write_parts` is visible until the files are committed. A call that fails removes its files; what a killed
process leaves is never read. A `NewFile` has statistics of the columns in STATISTICS only: the log of a table outlives
its rows, so it must not contain values of headers, bodies, ids, addresses or names of machines. The file itself has
what a search needs: Bloom filters of the ids in SEARCHED, the range of each page's values and, if it was merged, rows
that are sorted by conversation. `erase` deletes them with the file.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from rowpost.archive.clustering import BUFFER_BYTES, buffers
from rowpost.archive.columns import PARTITIONS
from rowpost.archive.folder import ArchiveFolder

__all__ = ["SEARCHED", "STATISTICS", "DataFile", "NewFile", "conform", "partition_folder", "write_parts"]

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
#: a dictionary of values that differ is written, found too large and discarded
_DIFFERING = ("id", "message_id", "headers", "body")
Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)
_ESCAPED = set("\"#%'*/:=?\\{[]^\x7f")


@dataclass(frozen=True)
class DataFile:
    """A file of a table. `path` is relative to the table's folder, `modified` is in milliseconds since 1970."""

    path: str
    queue: str
    day: str
    bytes: int
    rows: int
    modified: int = 0

    @property
    def partition(self) -> dict[str, str | None]:
        return {"queue": self.queue, "day": self.day}

    @property
    def is_in_own_folder(self) -> bool:
        """Whether its folder is named by its partition, such as queue=audit/day=2026-11-20.

        Other programs use other folders too.
        """
        folders = [unquote(folder) for folder in self.path.split("/")[:-1]]
        return folders == [f"{name}={value}" for name, value in self.partition.items()]


@dataclass(frozen=True)
class NewFile(DataFile):
    """A file that is not committed yet. `statistics` is JSON as the table's log has it."""

    statistics: str = ""


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


def conform(rows: Rows, schema: pa.Schema) -> Rows:
    """Return rows with the columns of a schema.

    A column that they lack is null; a column that the schema lacks is dropped.
    """
    names = set(rows.schema.names)
    columns = [
        rows.column(field.name).cast(field.type) if field.name in names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return type(rows).from_arrays(columns, schema=schema)


def write_parts(batches: Iterable[pa.RecordBatch], root: str, schema: pa.Schema, name: str) -> Iterator[NewFile]:
    """Write rows to one file for each partition, and return the files when all rows are written.

    The rows have the columns of `schema`, which are those of the files, and of PARTITIONS. `name` starts the names of
    the files.
    """
    folder = ArchiveFolder(root)
    opened: dict[tuple[str, date], tuple[str, parquet.ParquetWriter, list[Any]]] = {}
    try:
        for rows in buffers(batches):  # so that a file has few row groups
            size = rows.nbytes
            for (queue, day), own in _by_partition(rows):
                part = conform(own, schema)
                if (queue, day) not in opened:
                    # a row group that follows may have more rows, up to the whole buffer
                    most = len(part) if size < BUFFER_BYTES else len(part) * size // max(part.nbytes, 1)
                    path = f"{partition_folder(queue, day.isoformat())}/{name}-{uuid.uuid4().hex[:12]}.zstd.parquet"
                    opened[queue, day] = path, *_opened(folder, path, schema, most)
                opened[queue, day][1].write_table(part)
            del rows, own, part  # while the next ones are read, their memory is needed
        for (queue, day), (path, writer, footers) in opened.items():
            writer.close()
            (footer,) = footers
            described = statistics(footer)
            yield NewFile(path, queue, day.isoformat(), folder.size(path), footer.num_rows, statistics=described)
    except BaseException:
        for path, writer, _ in opened.values():
            writer.close()
            folder.delete([path])
        raise


def _by_partition(rows: pa.Table) -> Iterator[tuple[tuple[str, date], pa.Table]]:
    found = rows.select(PARTITIONS).group_by(PARTITIONS, use_threads=False).aggregate([]).to_pylist()
    for queue, day in (each.values() for each in found):
        own = rows
        if len(found) > 1:  # a filter copies all rows, also if it excludes none
            own = rows.filter(pc.and_(pc.equal(rows["queue"], queue), pc.equal(rows["day"], day)))
        yield (queue, day), own


def _opened(
    folder: ArchiveFolder, path: str, schema: pa.Schema, group_rows: int
) -> tuple[parquet.ParquetWriter, list[Any]]:
    """Open a file, and return its writer and the list that gets its footer when the writer is closed."""
    names, bloom = schema.names, {"ndv": max(group_rows, 1), "fpp": _FALSE_POSITIVES}
    footers: list[Any] = []
    out = folder.create_file(path)
    writer = parquet.ParquetWriter(
        out,
        schema,
        compression="zstd",
        write_statistics=[name for name in names if name not in _NO_STATISTICS],
        use_dictionary=[name for name in names if name not in _DIFFERING],
        metadata_collector=footers,
        bloom_filter_options={name: bloom for name in SEARCHED if name in names},
        **_PAGES,
    )
    writer.file_handle = out  # close() closes it
    return writer, footers
