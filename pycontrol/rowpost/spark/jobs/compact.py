"""Merge all small files of each day, also those that the archiver leaves (archive/merging.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

from pyspark.sql import SparkSession

from rowpost.archive.maintenance_lock import maintenance_lock
from rowpost.archive.merging import FILE_BYTES, small_files
from rowpost.archive.parts import NewFile
from rowpost.archive.table import ArchiveTable, DataFile, open_table
from rowpost.errors import SparkFailed
from rowpost.spark.archive.rows import merge_files
from rowpost.spark.describing import describing
from rowpost.spark.jobs.maintenance import FileReplacement, RewriteCounts, work

__all__ = ["phases", "run"]

_SMALL_BYTES = FILE_BYTES // 2
_GROUPS_IN_STEP = 8  # a step that loses one file to another job is done again


def phases(
    spark: SparkSession,
    table: ArchiveTable,
    groups: Callable[[Sequence[DataFile]], list[tuple[DataFile, ...]]],
    counts: RewriteCounts,
) -> Iterator[str]:
    """Merge the groups of files that `groups` chooses. A group that another job has changed is skipped."""

    def plan(files: Sequence[DataFile]) -> list[FileReplacement]:
        chosen = groups(files)
        chunks = [chosen[start : start + _GROUPS_IN_STEP] for start in range(0, len(chosen), _GROUPS_IN_STEP)]
        return [
            FileReplacement(tuple(chain(*chunk)), partial(_merged, spark, table, chunk), same_rows=True)
            for chunk in chunks
        ]

    return work(table, "compact", plan, counts, again=False)


def _merged(spark: SparkSession, table: ArchiveTable, groups: Sequence[Sequence[DataFile]], name: str) -> list[NewFile]:
    new = merge_files(spark, table, groups, name)
    before, after = sum(file.rows for file in chain(*groups)), sum(file.rows for file in new)
    if before != after:
        table.folder.delete(file.path for file in new)
        raise SparkFailed(
            f"Cannot merge files of {table.address}: {before} rows would become {after}. Nothing was changed. Run "
            "`rowpost spark verify`."
        )
    return new


@describing("compact")
def run(
    spark: SparkSession,
    path: str,
    now: datetime,
    older_than: timedelta = timedelta(0),
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, int]:
    """Merge the small files that are older than `older_than`, and delete files that were replaced a day ago.

    Returns counts. Raises ArchiveNotFound, SparkFailed.
    """
    table, counts = open_table(path), RewriteCounts()
    newest = (now - older_than).timestamp() * 1000

    def groups(files: Sequence[DataFile]) -> list[tuple[DataFile, ...]]:
        return small_files([file for file in files if file.modified <= newest], 2, tiers=(_SMALL_BYTES,))

    with maintenance_lock(table.folder, "compact"):
        for _ in phases(spark, table, groups, counts):
            progress(counts.files_before, counts.files_after)
        vacuumed = table.vacuum()
    return {
        "days": len(counts.days),
        "files_before": counts.files_before,
        "files_after": counts.files_after,
        "messages": counts.rows_after,
        "skipped": counts.replanned,
        "vacuumed": len(vacuumed),
    }
