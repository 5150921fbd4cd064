"""Whether an archive is whole: counts, messages that are there twice, batches that are missing, what killed writers left."""

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

__all__ = ["Finding", "Report", "compare", "duplicates", "holes", "run"]

SHOWN = 20


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be, and what to do."""

    kind: str
    what: str
    advice: str


@dataclass(frozen=True)
class Report:
    """Rows by queue and day, findings, and counts."""

    days: list[tuple[str, str, int, int]]
    findings: list[Finding]
    counts: dict[str, int] = field(default_factory=dict)


def duplicates(df: DataFrame) -> DataFrame:
    """Queue, id and row_version of archived messages that are there more than once."""
    return df.groupBy("queue", "id", "row_version").count().where(F.col("count") > 1)


def holes(batches: Iterable[Batch], journal: Iterable[dict]) -> dict[tuple[str, str], list[int]]:
    """By queue and stream, numbers of batches that are missing, and that no change to the archive took away."""
    there: dict[tuple[str, str], set[int]] = defaultdict(set)
    names = [(batch.queue, batch.name) for batch in batches]
    names += [(change["queue"], name) for change in journal for name in change["batches"]]
    for queue, name in names:
        number = Batch(queue, "", name, "").number
        if number is not None:
            there[queue, number[0]].add(number[1])
    found = {key: sorted(set(range(max(numbers) + 1)) - numbers) for key, numbers in there.items()}
    return {key: missing for key, missing in found.items() if missing}


def compare(archived: DataFrame, waiting: DataFrame) -> dict[str, int]:
    """What a queue (id, row_version) holds that its archive does not: yet to come, or missed."""
    known = archived.select("id", "row_version")
    newest = known.agg(F.max("row_version")).first()[0]
    absent = waiting.select("id", "row_version").join(known, ["id", "row_version"], "left_anti")
    missed = F.count_if(F.col("row_version") <= F.lit(-1 if newest is None else newest))
    row = absent.agg(F.count(F.lit(1)).alias("absent"), missed.alias("missed")).first()
    return {"not_archived_yet": row.absent - row.missed, "missed": row.missed}


def run(spark: SparkSession, path: str, waiting: DataFrame | None = None, queue: str | None = None) -> Report:
    """Looks through an archive, and compares it with what its queue holds (id, row_version) if that is given.

    Raises ArchiveNotFound.
    """
    folder = ArchiveFolder(path)
    folder.must_exist()
    batches = [] if folder.is_delta else folder.batches()
    findings = [Finding("unfinished change", name, "rowpost spark compact or retain finishes it") for name in folder.unfinished()]
    findings += [Finding("leftover", name, "a killed writer's; readers do not see it; --sweep removes it while nobody writes")
                 for name in folder.leftovers()]  # fmt: skip
    rows = {path: folder.rows_of(path) for batch in batches for path in batch.files}
    broken = [path for path, count in rows.items() if count is None]
    findings += [Finding("unreadable file", path, "restore it, or remove its batch's folder and archive that batch again")
                 for path in broken]  # fmt: skip
    findings += [
        Finding("hole", f"{key[0]}: batches {_numbers(missing)} of {key[1]}", "folders were removed by hand, or not all was copied")
        for key, missing in holes(batches, folder.journal()).items()
    ]
    counts = {"messages": sum(count or 0 for count in rows.values()), "batches": len(batches), "files": len(rows), "unreadable": len(broken)}
    if not broken:
        df = read_archive(spark, path)
        twice = duplicates(df).limit(SHOWN + 1).collect()
        findings += [Finding("twice", f"{row.queue}: {row.id} (row {row.row_version})", "archived by two streams, or sent back and archived again")
                     for row in twice[:SHOWN]]  # fmt: skip
        counts |= {"messages": df.count() if folder.is_delta else counts["messages"], "duplicates": duplicates(df).count() if twice else 0}
        if waiting is not None:
            own = df.where(F.col("queue") == queue)
            counts |= compare(own, waiting)
            if counts["missed"]:
                findings.append(Finding("missed", f"{counts['missed']} of {queue} are older than its archive's newest", "of a queue that is drained: somebody held them; else start another archive of it"))
    return Report(_by_day(batches, rows), findings, counts | {"findings": len(findings)})


def _by_day(batches: Iterable[Batch], rows: dict[str, int | None]) -> list[tuple[str, str, int, int]]:
    days: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for batch in batches:
        days[batch.queue, batch.day][0] += sum(rows[path] or 0 for path in batch.files)
        days[batch.queue, batch.day][1] += batch.bytes
    return [(*key, *sums) for key, sums in sorted(days.items())]


def _numbers(missing: list[int]) -> str:
    return ", ".join(map(str, missing[:SHOWN])) + (f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
