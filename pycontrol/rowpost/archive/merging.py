"""Merge the small files of a day: an archiver with a batch every ten seconds writes thousands of files a day.

`small_files` chooses groups of files, `write_merged` writes the one file that replaces a group, and `merge` does it for
an archiver, which merges files of similar size when there are ten of them, so that each message is rewritten two or
three times at most.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import date

import pyarrow as pa
from pyarrow import parquet

from rowpost.archive.clustering import merged
from rowpost.archive.columns import PARTITIONS
from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.parts import NewFile, conform, write_parts
from rowpost.archive.table import ArchiveTable, DataFile
from rowpost.errors import SparkFailed

__all__ = ["AUTOMATIC_FILES", "FILE_BYTES", "merge", "small_files", "write_merged"]

#: Small files of one day, of about the same size, that an archiver merges.
AUTOMATIC_FILES = 10
#: The size of the files that jobs write, in bytes.
FILE_BYTES = 128 << 20
#: The archiver leaves larger files to `compact`: readers gain little, and a message would be rewritten while the
#: archiver is busy.
_AUTOMATIC_BYTES = 32 << 20
_TIERS = (1 << 20, 8 << 20, _AUTOMATIC_BYTES)
_MAX_ROWS, _BATCH_BYTES = 8192, 8 << 20


def small_files(
    files: Iterable[DataFile], at_least: int, *, tiers: Sequence[int] = _TIERS
) -> list[tuple[DataFile, ...]]:
    """Return groups of small files of one queue and day, each for one new file of at most FILE_BYTES.

    Args:
        at_least: the number of files for which a group is worth rewriting, 2 or more.
        tiers: upper limits of size, in bytes. Only files of one tier are merged.
    """
    found: dict[tuple[str, str, int], list[DataFile]] = defaultdict(list)
    for file in files:
        tier = next((limit for limit in tiers if file.bytes < limit), None)
        if tier is not None:
            found[file.queue, file.day, tier].append(file)
    return [group for same in found.values() if len(same) >= at_least for group in _filled(same)]


def _filled(files: Sequence[DataFile]) -> list[tuple[DataFile, ...]]:
    """Divide files into groups of at most FILE_BYTES, the oldest first. A group of one file is left out."""
    groups: list[list[DataFile]] = [[]]
    for file in sorted(files, key=lambda file: (file.modified, file.path)):
        if sum(each.bytes for each in groups[-1]) + file.bytes > FILE_BYTES:
            groups.append([])
        groups[-1].append(file)
    return [tuple(group) for group in groups if len(group) > 1]


def merge(table: ArchiveTable, groups: Iterable[Sequence[DataFile]]) -> None:
    """Replace each group of files by one file with the same rows.

    A group that another job has changed is skipped. The caller holds the lock.
    """
    for group in groups:
        files = [(file.path, file.queue, file.day) for file in group]
        new = list(write_merged(files, table.folder.path, table.arrow_schema, f"compact-{uuid.uuid4().hex[:8]}"))
        rows = sum(file.rows for file in new)
        while rows == sum(file.rows for file in group) and table.are_live(group):
            if table.commit(new, group, note={"job": "compact", "rows": rows}, same_rows=True):
                break
            table.refresh()
        else:
            table.discard(new)


def write_merged(files: Sequence[tuple[str, str, str]], root: str, schema: pa.Schema, name: str) -> Iterator[NewFile]:
    """Write the rows of files (path, queue and day) of one partition to one file, sorted. See `write_parts`."""
    whole = pa.schema([*schema, pa.field("queue", pa.string()), pa.field("day", pa.date32())])
    return write_parts(merged(conform(batch, whole) for batch in _rows_of(files, root)), root, schema, name)


def _rows_of(files: Sequence[tuple[str, str, str]], root: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files (path, queue and day) with their partition, in batches of a few megabytes."""
    folder = ArchiveFolder(root)
    for path, queue, day in files:
        try:
            with folder.open(path) as file:
                rows = parquet.ParquetFile(file)
                size = sum(rows.metadata.row_group(number).total_byte_size for number in range(rows.num_row_groups))
                count = max(1, min(_MAX_ROWS, _BATCH_BYTES * rows.metadata.num_rows // max(size, 1)))
                # some writers store the partition in the file too
                own = [name for name in rows.schema_arrow.names if name not in PARTITIONS]
                for batch in rows.iter_batches(count):
                    named = batch.select(own).append_column("queue", pa.repeat(queue, len(batch)))
                    yield named.append_column("day", pa.repeat(date.fromisoformat(day), len(batch)))
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise SparkFailed(
                f"{path} cannot be read: the file is missing or incomplete. `rowpost spark verify` lists all such "
                "files."
            ) from error
