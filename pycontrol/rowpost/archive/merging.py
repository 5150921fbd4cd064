"""Merge the small files of a day: an archiver with a batch every ten seconds writes thousands of files a day.

`small_files` chooses groups of files, and `merge` replaces each group by one file. An archiver merges files of similar
size when there are ten of them, so that each message is rewritten two or three times at most. `compact` merges all
small files.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import partial

import pyarrow as pa
from pyarrow import parquet

from rowpost.archive.clustering import merged
from rowpost.archive.columns import PARTITIONS
from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.maintenance_lock import maintenance_lock
from rowpost.archive.parts import NewFile, conform, write_parts
from rowpost.archive.table import ArchiveTable, DataFile, open_table
from rowpost.errors import SparkFailed

__all__ = ["AUTOMATIC_FILES", "FILE_BYTES", "compact", "merge", "small_files", "write_merged"]

#: Small files of one day, of about the same size, that an archiver merges.
AUTOMATIC_FILES = 10
#: The size of the files that jobs write, in bytes.
FILE_BYTES = 128 << 20
#: The archiver leaves larger files to `compact`: readers gain little, and a message would be rewritten while the
#: archiver is busy.
_AUTOMATIC_BYTES = 32 << 20
_SMALL_BYTES = FILE_BYTES // 2
_TIERS = (1 << 20, 8 << 20, _AUTOMATIC_BYTES)
_MAX_ROWS, _BATCH_BYTES = 8192, 8 << 20


def small_files(
    files: Iterable[DataFile], at_least: int, *, tiers: Sequence[int] = _TIERS
) -> list[tuple[DataFile, ...]]:
    """Return groups of `at_least` small files of one queue, day and tier of size, each for one file of FILE_BYTES at
    most.
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


def compact(
    address: str,
    now: datetime,
    older_than: timedelta = timedelta(0),
    progress: Callable[[int, int], object] = lambda done, of: None,
) -> dict[str, int]:
    """Merge small files that are older than `older_than`, and delete files that were replaced a day ago.

    Returns counts. Raises ArchiveNotFound.
    """
    table, done, skipped = open_table(address), list[tuple[Sequence[DataFile], Sequence[NewFile]]](), 0
    newest = (now - older_than).timestamp() * 1000
    with maintenance_lock(table.folder, "compact"):
        table.refresh()
        table.check_writable()
        old = [file for file in table.files() if file.modified <= newest]
        for phase, group, new in merge(table, small_files(old, 2, tiers=(_SMALL_BYTES,))):
            skipped += phase == "skipped"
            if phase == "committed":
                done.append((group, new))
                progress(sum(len(files) for files, _ in done), len(done))
        vacuumed = table.vacuum()
    return {
        "days": len({(files[0].queue, files[0].day) for files, _ in done}),
        "files_before": sum(len(files) for files, _ in done),
        "files_after": len(done),
        "messages": sum(file.rows for files, _ in done for file in files),
        "skipped": skipped,
        "vacuumed": len(vacuumed),
    }


def merge(
    table: ArchiveTable, groups: Iterable[Sequence[DataFile]]
) -> Iterator[tuple[str, Sequence[DataFile], Sequence[NewFile]]]:
    """Replace each group of files by one file with the same rows. The caller holds the lock.

    Yields each group with its new file when it is written, and again when it is committed; or skipped, because another
    job has changed the group.
    """
    for group in groups:
        files = [(file.path, file.queue, file.day) for file in group]
        place, name = table.folder.path, f"compact-{uuid.uuid4().hex[:8]}"
        new = table.attempt(group, partial(write_merged, files, place, table.arrow_schema, name))
        if new is None:
            yield "skipped", group, ()
            continue
        before, rows = sum(file.rows for file in group), sum(file.rows for file in new)
        if before != rows:
            table.discard(new)
            raise SparkFailed(
                f"Cannot merge files of {table.address}: {before} rows would become {rows}. Nothing was changed. Run "
                "`rowpost spark verify`."
            )
        yield "written", group, new
        while table.are_live(group):
            if table.commit(new, group, note={"job": "compact", "rows": rows}, same_rows=True):
                yield "committed", group, new
                break
            table.refresh()
        else:
            table.discard(new)
            yield "skipped", group, new


def write_merged(files: Sequence[tuple[str, str, str]], root: str, schema: pa.Schema, name: str) -> list[NewFile]:
    """Write the rows of files (path, queue and day) of one partition to one file, sorted. See `write_parts`."""
    whole = pa.schema([*schema, pa.field("queue", pa.string()), pa.field("day", pa.date32())])
    return list(write_parts(merged(conform(batch, whole) for batch in _rows_of(files, root)), root, schema, name))


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
