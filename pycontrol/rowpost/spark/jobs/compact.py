"""Combine the small batches of a day into one: a stream with a batch every ten seconds creates 8,640 folders a day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from rowpost.spark.archive.folder import ArchiveFolder, Batch
from rowpost.spark.archive.rewriting import new_name, replace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["compactable", "run"]

FILE_BYTES = 128 << 20
_MIN_BATCHES = 2


def compactable(batches: Iterable[Batch], now: datetime, older_than: timedelta) -> list[list[Batch]]:
    """Return the batches to combine, grouped by queue and day.

    The newest batch of a stream is excluded: it may be written again, and would then exist twice.
    """
    batches = list(batches)
    newest: dict[tuple[str, str], int] = {}
    for batch in batches:
        if batch.number is not None:
            key, number = batch.number
            newest[batch.queue, key] = max(number, newest.get((batch.queue, key), 0))
    days: dict[tuple[str, str], list[Batch]] = defaultdict(list)
    for batch in batches:
        last = batch.number is not None and newest[batch.queue, batch.number[0]] == batch.number[1]
        if not last and now - batch.written >= older_than:
            days[batch.queue, batch.day].append(batch)
    return [day for day in days.values() if len(day) >= _MIN_BATCHES]


def run(
    spark: SparkSession, path: str, now: datetime, older_than: timedelta, progress: Callable[[int, int], None] = lambda done, of: None
) -> dict[str, int]:
    """Compact an archive, and return counts. Raises ArchiveNotFound, SparkFailed."""
    folder = ArchiveFolder(path)
    folder.check_exists()
    folder.check_parquet("compact")
    counts = {"recovered": folder.recover(), "days": 0, "batches": 0, "files_before": 0, "files_after": 0, "messages": 0}
    days = compactable(folder.batches(), now, older_than)
    for number, batches in enumerate(days):
        progress(number, len(days))
        name = new_name(now.strftime("%Y%m%dT%H%M%S"))
        files = -(-sum(batch.bytes for batch in batches) // FILE_BYTES)

        def combine(df, name=name, files=files):
            return df.withColumn("batch", F.lit(name)).coalesce(max(files, 1)).sortWithinPartitions("row_version")

        change = replace(spark, folder, batches, combine, name=name, kind="compact", keeps_rows=True)
        counts["days"] += 1
        counts["batches"] += len(batches)
        counts["files_before"] += len(change.old)
        counts["files_after"] += max(files, 1)
        counts["messages"] += change.rows_after
    progress(len(days), len(days))
    return counts
