"""Check an archive: count messages, and find duplicates, missing and unreadable files; `repair` mends what can be
mended.

`run` returns an `ArchiveReport` with one `Remark` for each problem. Leftovers of killed writers are notes: readers
never see them. `absent` searches every byte below the archive, and below the tables to which messages were copied, for
texts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ArrowInvalid, parquet
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.leftovers import find_leftovers
from rowpost.archive.maintenance_lock import maintenance_lock
from rowpost.archive.table import ArchiveTable, DataFile, open_table
from rowpost.spark.archive.records import places, removed_row_versions
from rowpost.spark.archive.rows import FILE, read_files, read_table, relative
from rowpost.spark.archive.schemas import ESSENTIAL
from rowpost.spark.describing import describing
from rowpost.spark.jobs.maintenance import FileReplacement, RewriteCounts, rewrite, work

__all__ = ["ArchiveReport", "Remark", "Waiting", "absent", "contains", "duplicates", "repair", "run", "sweep_all"]

MAX_SHOWN = 20
_KEY = ["queue", "id", "row_version"]
_THREADS = 8
_RESTORE = "restore it from a backup; to go on without its messages, take it out of the table with --repair"
#: what to do about each kind of problem
_ADVICE = {
    "leftover": (
        "left by a killed writer or being written; readers ignore it; remove it with --sweep while no job writes"
    ),
    "unreadable file": _RESTORE,
    "missing file": _RESTORE,
    "duplicate": "two programs have archived it; remove the later copies with --repair",
    "missed": "find out who removed them from the archive; if nobody meant to, restore it from a backup",
    "not searched": "messages were copied there, and nothing is there now; search where you moved it",
    "not erased": "erase it, or run erase again when no job writes",
}
_CHUNK_BYTES = 8 << 20
_OVERLAP_BYTES = 4096  # longer than any text that is searched for
_ROWS = 1024


@dataclass(frozen=True)
class Remark:
    """A problem or a note, and what to do about it."""

    kind: str
    what: str
    advice: str

    @classmethod
    def of(cls, kind: str, what: str) -> Remark:
        return cls(kind, what, _ADVICE[kind])


@dataclass(frozen=True)
class ArchiveReport:
    """The result of a check. `days` has queue, day, messages and bytes. `notes` are no problems."""

    days: list[tuple[str, str, int, int]]
    findings: list[Remark]
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[Remark] = field(default_factory=list)


@dataclass(frozen=True)
class Waiting:
    """The messages that are in a queue now.

    `messages` has the columns id and row_version, `epoch` is the identity of the queue.
    """

    queue: str
    messages: DataFrame
    epoch: str | None = None


def duplicates(df: DataFrame) -> DataFrame:
    """Return queue, id and row_version of messages that were archived more than once."""
    return df.groupBy(*_KEY).count().where(F.col("count") > 1)


def compare(
    archived: DataFrame, waiting: DataFrame, removed: DataFrame | None = None, upto: int | None = None
) -> dict[str, int]:
    """Count a queue's messages (id, row_version) that its archive lacks: removed, not archived yet, and missed.

    `removed` are the row versions that were deleted from it. It was archived up to `upto`, or its newest archived
    message.
    """
    known = archived.select("id", "row_version")
    if upto is None:
        upto = known.agg(F.coalesce(F.max("row_version"), F.lit(-1))).collect()[0][0]
    absent = waiting.select("id", "row_version").join(known, ["id", "row_version"], "left_anti")
    lost = absent if removed is None else absent.join(removed.distinct(), "row_version", "left_anti")
    missed = F.count_if(F.col("row_version") <= F.lit(upto))
    (row,) = lost.agg(F.count(F.lit(1)).alias("lost"), missed.alias("missed")).collect()
    return {
        "removed": 0 if removed is None else absent.count() - row.lost,
        "not_archived_yet": row.lost - row.missed,
        "missed": row.missed,
    }


@describing("verify")
def run(spark: SparkSession, path: str, waiting: Waiting | None = None) -> ArchiveReport:
    """Check a snapshot of an archive, and compare it with the messages that are in a queue now.

    Raises ArchiveNotFound.
    """
    table = open_table(path)
    table.check_columns(ESSENTIAL)
    notes = [Remark.of("leftover", each.path) for each in find_leftovers(table)]
    files = table.files()
    findings = _unreadable(table, files)
    counts = {
        "messages": sum(file.rows for file in files),
        "files": len(files),
        "version": table.version,
        "unreadable": len(findings),
    }
    days = _by_day(files)
    if not findings:
        df = read_table(spark, table)
        if table.needs_jar:  # not all rows of its files are rows of the table
            rows = {(row.queue, str(row.day)): row["count"] for row in df.groupBy("queue", "day").count().collect()}
            days = [(queue, day, rows.get((queue, day), 0), size) for queue, day, _, size in days]
            counts["messages"] = sum(rows.values())
        twice = duplicates(df).limit(MAX_SHOWN + 1).collect()
        findings += [
            Remark.of("duplicate", f"{row.queue}: {row.id} (row version {row.row_version})")
            for row in twice[:MAX_SHOWN]
        ]
        counts["duplicates"] = duplicates(df).count() if twice else 0
        if waiting is not None:
            removed = removed_row_versions(table, waiting.queue, waiting.epoch)
            known = table.recorded().get(waiting.epoch or "")
            # what is in a queue now is archived by the next run of a drain, whose offset has no row version
            upto = None if known is None else known.end.get("row_version", -1)
            gone = spark.createDataFrame(removed) if len(removed) else None
            counts |= compare(df.where(F.col("queue") == waiting.queue), waiting.messages, gone, upto)
            if counts["missed"]:
                what = (
                    f"{counts['missed']} messages of {waiting.queue} are not in the archive any more, and neither "
                    "erase nor retain has deleted them"
                )
                findings.append(Remark.of("missed", what))
    return ArchiveReport(days, findings, counts | {"findings": len(findings), "leftovers": len(notes)}, notes)


def _unreadable(table: ArchiveTable, files: Sequence[DataFile]) -> list[Remark]:
    """Find files that are missing, incomplete or of another length than the log says."""
    with ThreadPoolExecutor(_THREADS) as threads:
        footers = list(threads.map(lambda file: table.folder.footer(file.path), files))
    wrong = [
        file for file, footer in zip(files, footers, strict=True) if footer is None or footer.num_rows != file.rows
    ]
    if wrong:  # another job may have replaced the file since the snapshot
        table.refresh()
    return [
        Remark.of("unreadable file" if table.folder.exists(file.path) else "missing file", file.path)
        for file in wrong
        if table.are_live([file])
    ]


def sweep_all(path: str) -> int:
    """Delete all leftovers, and return their number. Call it only while no job writes to the archive."""
    table = open_table(path)
    leftovers = find_leftovers(table)
    table.folder.delete(each.path for each in leftovers)
    return len(leftovers)


def repair(spark: SparkSession, path: str) -> dict[str, int]:
    """Remove later copies of messages, and files that cannot be read, from the table. Returns counts.

    The files are kept for a day.
    """
    table, lost, doubled = open_table(path), RewriteCounts(), RewriteCounts()

    def gone(files: Sequence[DataFile]) -> list[FileReplacement]:
        wrong = {finding.what for finding in _unreadable(table, files)}
        return [FileReplacement(tuple(file for file in files if file.path in wrong))] if wrong else []

    def twice(files: Sequence[DataFile]) -> list[FileReplacement]:
        everything = table.files()
        df = read_files(spark, table, everything, with_file=True).select(*_KEY, FILE)
        held = df.join(duplicates(df), _KEY, "left_semi").select("queue", FILE).distinct().collect()
        known, by_queue = {file.path: file for file in everything}, defaultdict(list)
        for row in held:
            by_queue[row.queue].append(known[relative(table, row[FILE])])
        return [
            FileReplacement(tuple(same), partial(rewrite, spark, table, same, _first_copies))
            for same in by_queue.values()
        ]

    with maintenance_lock(table.folder, "repair"):
        for plan, counts in ((gone, lost), (twice, doubled)):
            for _ in work(table, "repair", plan, counts):
                pass
    return {
        "files_taken_out": lost.files,
        "messages_lost": lost.removed,
        "copies_removed": doubled.removed,
    }


def _first_copies(df: DataFrame) -> DataFrame:
    place = F.row_number().over(Window.partitionBy(*_KEY).orderBy("archived_at"))
    return df.withColumn("_copy", place).where("_copy = 1").drop("_copy")


def absent(spark: SparkSession, path: str, texts: Sequence[str]) -> list[Remark]:
    """Search every file below an archive and the places of copies, as it is and in each column of a Parquet file.

    Returns those with a text.
    """
    own, pattern = open_table(path).folder, "|".join(map(re.escape, texts))
    copied = [place for place in places(own) if not place.startswith(f"{own.path}/")]
    files = {
        (folder.path, name)
        for folder in (own, *map(ArchiveFolder, copied))
        for name, info in folder.contents()
        if info.is_file
    }
    gone = sorted(set(copied) - {root for root, _ in files})
    holds = F.udf(lambda root, path: contains(root, path, pattern), "boolean", useArrow=False)
    found = spark.createDataFrame(sorted(files), "root string, path string").where(holds("root", "path")).collect()
    named = [row.path if row.root == own.path else f"{row.root}/{row.path}" for row in found]
    return [Remark.of("not searched", place) for place in gone] + [Remark.of("not erased", path) for path in named]


def _by_day(files: Iterable[DataFile]) -> list[tuple[str, str, int, int]]:
    rows, size = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for file in files:
        rows[file.queue, file.day] += file.rows
        size[file.queue, file.day] += file.bytes
    return [(*day, rows[day], size[day]) for day in sorted(rows)]


def contains(root: str, path: str, pattern: str) -> bool:
    """Whether a file has a text that matches, in its bytes or in a text or binary value. A deleted file has none."""
    compiled = re.compile(pattern.encode())
    try:
        opened = ArchiveFolder(root).open(path)
    except FileNotFoundError:
        return False
    with opened as file:
        before = b""
        while chunk := file.read(_CHUNK_BYTES):
            if compiled.search(before + chunk):
                return True
            before = chunk[-_OVERLAP_BYTES:]
        if not path.endswith(".parquet"):
            return False
        try:
            rows = parquet.ParquetFile(file)
        except ArrowInvalid:  # incomplete, so only its bytes can be searched
            return False
        return any(
            _in_column(column, pattern) for batch in rows.iter_batches(batch_size=_ROWS) for column in batch.columns
        )


def _in_column(column: pa.Array, pattern: str) -> bool:
    """Whether a value of a column matches, also within structs, lists and maps."""
    if pa.types.is_struct(column.type):
        return any(_in_column(column.field(number), pattern) for number in range(column.type.num_fields))
    if pa.types.is_map(column.type):
        return _in_column(column.keys, pattern) or _in_column(column.items, pattern)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return _in_column(column.flatten(), pattern)
    if not (
        pa.types.is_string(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_string(column.type)
    ):
        return False
    return bool(pc.any(pc.match_substring_regex(column.cast(pa.binary()), pattern)).as_py())
