"""Merge the small files of a day: a stream with a batch every ten seconds writes thousands of files a day.

The archiver merges files of similar size when there are ten of them, so that each message is rewritten two or three times
at most. The command merges all small files of each day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rowpost.spark.archive.lease import lease
from rowpost.spark.archive.opening import open_table
from rowpost.spark.archive.table import ArchiveTable, DataFile
from rowpost.spark.describing import describing
from rowpost.spark.jobs.maintenance import FILE_BYTES, Counts, Step, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["merge", "phases", "run", "small_files"]

_SMALL_BYTES = FILE_BYTES // 2
_GROUPS_IN_STEP = 8  # a step that loses one file to another job is done again
#: The archiver leaves larger files to `compact`: readers gain little, and a message would be rewritten while the archiver is busy.
_AUTOMATIC_BYTES = 32 << 20
_TIERS = (1 << 20, 8 << 20, _AUTOMATIC_BYTES)


def small_files(files: Iterable[DataFile], at_least: int, *, tiers: Sequence[int] = _TIERS) -> list[tuple[DataFile, ...]]:
    """Return groups of small files of one queue and day, each for one new file of at most FILE_BYTES.

    Args:
        files: the files of a snapshot.
        at_least: the number of files for which a group is worth rewriting, 2 or more.
        tiers: upper limits of size, in bytes. Only files of one tier are merged.
    """
    found: dict[tuple[str, str, int], list[DataFile]] = defaultdict(list)
    for file in files:
        tier = next((limit for limit in tiers if file.bytes < limit), None)
        if tier is not None:
            found[file.queue, file.day, tier].append(file)
    groups: list[tuple[DataFile, ...]] = []
    for same in found.values():
        if len(same) >= at_least:
            groups += _filled(same)
    return groups


def _filled(files: Sequence[DataFile]) -> Iterable[tuple[DataFile, ...]]:
    """Divide files into groups of at most FILE_BYTES, the oldest first. A group of one file is left out."""
    group: list[DataFile] = []
    for file in sorted(files, key=lambda file: (file.modified, file.path)):
        if sum(each.bytes for each in group) + file.bytes > FILE_BYTES:
            yield from [tuple(group)] * (len(group) > 1)
            group = []
        group.append(file)
    yield from [tuple(group)] * (len(group) > 1)


def phases(
    spark: SparkSession, table: ArchiveTable, groups: Callable[[Sequence[DataFile]], list[tuple[DataFile, ...]]], counts: Counts
) -> Iterator[str]:
    """Merge the groups of files that `groups` chooses. A group that another job has changed is skipped."""

    def plan(files: Sequence[DataFile]) -> list[Step]:
        chosen = groups(files)
        chunks = [chosen[start : start + _GROUPS_IN_STEP] for start in range(0, len(chosen), _GROUPS_IN_STEP)]
        return [Step(tuple(file for group in chunk for file in group), groups=tuple(chunk)) for chunk in chunks]

    return work(spark, table, "compact", plan, counts, again=False)


def merge(spark: SparkSession, table: ArchiveTable, groups: list[tuple[DataFile, ...]]) -> None:
    """Merge groups of files. The caller holds the lease."""
    for _ in phases(spark, table, lambda files: groups, Counts()):
        pass


@describing("compact")
def run(
    spark: SparkSession, path: str, now: datetime, older_than: timedelta = timedelta(0), progress: Callable[[int, int], None] = lambda done, of: None
) -> dict[str, int]:
    """Merge the small files that are older than `older_than`, and delete files that were replaced a day ago.

    Returns counts. Raises ArchiveNotFound, SparkFailed.
    """
    table, counts = open_table(path), Counts()
    newest = (now - older_than).timestamp() * 1000

    def groups(files: Sequence[DataFile]) -> list[tuple[DataFile, ...]]:
        return small_files([file for file in files if file.modified <= newest], 2, tiers=(_SMALL_BYTES,))

    with lease(table.folder, "compact"):
        for _ in phases(spark, table, groups, counts):
            progress(counts.files_before, counts.files_after)
        vacuumed = table.vacuum()
    return {"days": len(counts.days), "files_before": counts.files_before, "files_after": counts.files_after, "messages": counts.rows_after,
            "skipped": counts.replanned, "vacuumed": len(vacuumed)}  # fmt: skip
