"""Check an archive: count messages, and find duplicates, missing batches, unreadable files and leftovers.

`run` returns a `Report` with one `Finding` for each problem.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from rowpost.spark.archive.folder import ArchiveFolder, Batch
from rowpost.spark.jobs.archive import read_archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Finding", "Report", "Waiting", "compare", "duplicates", "missing_batches", "run"]

MAX_SHOWN = 20


@dataclass(frozen=True)
class Finding:
    """A problem, and what to do about it."""

    kind: str
    what: str
    advice: str


@dataclass(frozen=True)
class Report:
    """The result of a check. `days` has queue, day, messages and bytes."""

    days: list[tuple[str, str, int, int]]
    findings: list[Finding]
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Waiting:
    """The messages that are in a queue now. `messages` has the columns id and row_version."""

    queue: str
    messages: DataFrame


def duplicates(df: DataFrame) -> DataFrame:
    """Return queue, id and row_version of messages that were archived more than once."""
    return df.groupBy("queue", "id", "row_version").count().where(F.col("count") > 1)


def missing_batches(batches: Iterable[Batch], journal: Iterable[dict]) -> dict[tuple[str, str], list[int]]:
    """Return the numbers of missing batches by queue and stream. Batches that a recorded change replaced are not missing."""
    present: dict[tuple[str, str], set[int]] = defaultdict(set)
    names = [(batch.queue, batch.name) for batch in batches]
    names += [(change["queue"], name) for change in journal for name in change["batches"]]
    for queue, name in names:
        number = Batch(queue, "", name, "").number
        if number is not None:
            present[queue, number[0]].add(number[1])
    found = {key: sorted(set(range(max(numbers) + 1)) - numbers) for key, numbers in present.items()}
    return {key: missing for key, missing in found.items() if missing}


def compare(archived: DataFrame, waiting: DataFrame) -> dict[str, int]:
    """Count a queue's messages (id, row_version) that its archive lacks: newer ones (not archived yet) and older ones (missed)."""
    known = archived.select("id", "row_version")
    newest = known.agg(F.max("row_version")).collect()[0][0]
    absent = waiting.select("id", "row_version").join(known, ["id", "row_version"], "left_anti")
    missed = F.count_if(F.col("row_version") <= F.lit(-1 if newest is None else newest))
    (row,) = absent.agg(F.count(F.lit(1)).alias("absent"), missed.alias("missed")).collect()
    return {"not_archived_yet": row.absent - row.missed, "missed": row.missed}


def run(spark: SparkSession, path: str, waiting: Waiting | None = None) -> Report:
    """Check an archive, and compare it with the messages that are in a queue now.

    Raises ArchiveNotFound.
    """
    folder = ArchiveFolder(path)
    folder.check_exists()
    batches = [] if folder.is_delta else folder.batches()
    findings = [Finding("unfinished change", name, "run rowpost spark compact or retain, which finishes it") for name in folder.unfinished()]
    findings += [Finding("leftover", name, "left by a killed writer, ignored by readers; remove it with --sweep while no job writes")
                 for name in folder.leftovers()]  # fmt: skip
    rows = {path: folder.rows_of(path) for batch in batches for path in batch.files}
    broken = [path for path, count in rows.items() if count is None]
    findings += [Finding("unreadable file", path, "restore it, or delete its batch's folder and archive that batch again")
                 for path in broken]  # fmt: skip
    findings += [
        Finding("missing batches", f"{key[0]}: batches {_numbers(missing)} of {key[1]}", "folders were deleted, or a copy is incomplete; restore them")
        for key, missing in missing_batches(batches, folder.journal()).items()
    ]
    counts = {"messages": sum(count or 0 for count in rows.values()), "batches": len(batches), "files": len(rows), "unreadable": len(broken)}
    if not broken:
        df = read_archive(spark, path)
        twice = duplicates(df).limit(MAX_SHOWN + 1).collect()
        findings += [Finding("duplicate", f"{row.queue}: {row.id} (row version {row.row_version})", "two streams archived it, or a new checkpoint archived it again; readers must use distinct id and row_version")
                     for row in twice[:MAX_SHOWN]]  # fmt: skip
        counts |= {"messages": df.count() if folder.is_delta else counts["messages"], "duplicates": duplicates(df).count() if twice else 0}
        if waiting is not None:
            own = df.where(F.col("queue") == waiting.queue)
            counts |= compare(own, waiting.messages)
            if counts["missed"]:
                what = f"{counts['missed']} messages of {waiting.queue} are older than the newest archived message"
                findings.append(Finding("missed", what, "a drain archives messages that were locked in its next run; after a tail, start a new archive"))
    return Report(_by_day(batches, rows), findings, counts | {"findings": len(findings)})


def _by_day(batches: Iterable[Batch], rows: dict[str, int | None]) -> list[tuple[str, str, int, int]]:
    days: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for batch in batches:
        days[batch.queue, batch.day][0] += sum(rows[path] or 0 for path in batch.files)
        days[batch.queue, batch.day][1] += batch.bytes
    return [(queue, day, rows_of_day, size) for (queue, day), (rows_of_day, size) in sorted(days.items())]


def _numbers(missing: list[int]) -> str:
    return ", ".join(map(str, missing[:MAX_SHOWN])) + (f" and {len(missing) - MAX_SHOWN} more" if len(missing) > MAX_SHOWN else "")
