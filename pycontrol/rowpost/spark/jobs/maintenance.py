"""Change an archive's files beside the archiver and other jobs: plan on a snapshot, write new files, commit or plan
again.

The jobs retain, erase and repair say which files they replace with what (`FileReplacement`). Those that delete
or redact rows say which (`RowChange`), and only files with such rows are replaced. `work` executes the steps. If
another job has replaced one of a step's files in the meantime, the step's new files are deleted, and the job looks at
the files that have come since. Files that others add are looked at too, until a look finds nothing more to do.

`work` is a generator that yields before and after each phase, so that tests run two jobs in every order.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from rowpost.archive.merging import FILE_BYTES
from rowpost.archive.parts import NewFile
from rowpost.archive.table import ArchiveTable, DataFile
from rowpost.spark.archive.records import remember_removed
from rowpost.spark.archive.rows import FILE, read_files, relative, write_files

__all__ = ["ACTION", "DELETE", "REDACT", "FileReplacement", "RewriteCounts", "RowChange", "rewrite", "work"]

DELETE, REDACT = "delete", "redact"
#: The column that a job adds to rows: DELETE, REDACT or null. A body may have a field of any other name.
ACTION = "_rowpost_action"
_DELETING = ("erase", "retain")


@dataclass(frozen=True)
class FileReplacement:
    """Files that are replaced in one commit.

    Attributes:
        write: takes the beginning of the names of the new files, and writes them. If it is None, the files are only
            removed.
        changed: the number of rows that are changed and kept.
    """

    files: tuple[DataFile, ...]
    write: Callable[[str], list[NewFile]] | None = None
    changed: int = 0


@dataclass
class RewriteCounts:
    """What a job has done so far: steps and replaced files, rows that it removed, and rows that it changed."""

    steps: int = 0
    files: int = 0
    removed: int = 0
    changed: int = 0
    days: set[tuple[str, str]] = field(default_factory=set)

    def add(self, step: FileReplacement, new: Sequence[NewFile]) -> None:
        self.steps += 1
        self.files += len(step.files)
        self.removed += sum(file.rows for file in step.files) - sum(file.rows for file in new)
        self.changed += step.changed
        self.days |= {(file.queue, file.day) for file in step.files}


@dataclass(frozen=True)
class RowChange:
    """Rows of a table that are deleted or redacted.

    Attributes:
        mark: adds ACTION to rows.
        redacted: the columns that a redaction changes, with their new values.
        where: a condition that all of these rows meet. It reaches the readers of files, which skip what it excludes.
    """

    mark: Callable[[DataFrame], DataFrame]
    redacted: Callable[[DataFrame], Mapping[str, Column]] = lambda df: {}
    where: str | None = None

    def of(self, df: DataFrame) -> DataFrame:
        """Return the rows that are deleted or redacted, with ACTION."""
        marked = self.mark(df).where(F.col(ACTION).isNotNull())
        return marked if self.where is None else marked.where(self.where)

    def apply(self, df: DataFrame) -> DataFrame:
        """Return the rows that stay, of which some are redacted."""
        stays = F.col(ACTION).isNull()
        new = {
            name: F.when(stays, F.col(name)).otherwise(value).cast(df.schema[name].dataType)
            for name, value in self.redacted(df).items()
        }
        return self.mark(df).where(stays | (F.col(ACTION) == REDACT)).withColumns(new).drop(ACTION)

    def find(
        self, spark: SparkSession, table: ArchiveTable, files: Sequence[DataFile], *sums: Column
    ) -> list[tuple[DataFile, Row]]:
        """Count the rows of each file and action as `messages`, with further sums. Other files have none."""
        known = {file.path: file for file in files}
        rows = self.of(read_files(spark, table, files, with_file=True)).groupBy(FILE, ACTION)
        counted = rows.agg(F.count(F.lit(1)).alias("messages"), *sums).collect()
        return [(known[relative(table, row[FILE])], row) for row in counted]

    def steps(
        self, spark: SparkSession, table: ArchiveTable, found: Sequence[tuple[DataFile, Row]]
    ) -> list[FileReplacement]:
        """Return the steps for what was found: files that keep no row are removed, the others of each day are rewritten
        together.
        """
        deleted, redacted = (
            {file: row.messages for file, row in found if row[ACTION] == action} for action in (DELETE, REDACT)
        )
        of_day: dict[tuple[str, str, bool], list[DataFile]] = defaultdict(list)
        for file in dict.fromkeys([*deleted, *redacted]):
            of_day[file.queue, file.day, deleted.get(file, 0) == file.rows].append(file)
        return [
            FileReplacement(
                tuple(files),
                None if empty else partial(rewrite, spark, table, files, self.apply),
                changed=sum(redacted.get(file, 0) for file in files),
            )
            for (_, _, empty), files in of_day.items()
        ]

    def plan(self, spark: SparkSession, table: ArchiveTable, files: Sequence[DataFile]) -> list[FileReplacement]:
        """Return the steps that change the rows of files."""
        return self.steps(spark, table, self.find(spark, table, files))


#: Takes the files that the job has not looked at yet, and returns the steps.
Planner = Callable[[Sequence[DataFile]], Sequence[FileReplacement]]


def work(table: ArchiveTable, kind: str, plan: Planner, counts: RewriteCounts) -> Iterator[str]:
    """Execute a plan, and yield the name of each phase that is over: planned, written, committed.

    Args:
        kind: the job's name, for the log.
        counts: is updated after each commit.

    Raises:
        SparkFailed: the table must not be changed, or a file cannot be read.
    """
    table.refresh()
    table.check_writable()
    seen: set[str] = set()
    while fresh := [file for file in table.files() if file.path not in seen]:
        steps = table.attempt(fresh, partial(plan, fresh))
        if steps is None:
            continue
        seen |= {file.path for file in fresh}
        yield "planned"
        for step in steps:
            new = _write(table, kind, step)
            if new is None:
                continue
            yield "written"
            if _commit(table, kind, step, new):
                seen |= {file.path for file in new}
                counts.add(step, new)
                yield "committed"
            else:
                table.discard(new)
        table.refresh()


def rewrite(
    spark: SparkSession,
    table: ArchiveTable,
    files: Sequence[DataFile],
    make: Callable[[DataFrame], DataFrame],
    name: str,
) -> list[NewFile]:
    """Write what `make` makes of the rows of files."""
    size = sum(file.bytes for file in files)
    return write_files(make(read_files(spark, table, files)).coalesce(max(1, -(-size // FILE_BYTES))), table, name)


def _write(table: ArchiveTable, kind: str, step: FileReplacement) -> list[NewFile] | None:
    """Write the new files of a step. Returns None if another job has replaced the step's files."""
    table.refresh()
    if not table.are_live(step.files):
        return None
    if step.write is None:
        return []
    return table.attempt(step.files, partial(step.write, f"{kind}-{uuid.uuid4().hex[:8]}"))


def _commit(table: ArchiveTable, kind: str, step: FileReplacement, new: Sequence[NewFile]) -> bool:
    """Commit a step. Returns False if another job has replaced one of its files."""
    note = {"job": kind, "rows": sum(file.rows for file in new)}
    deletes = kind in _DELETING and "headers" in table.names
    removed = table.attempt(step.files, lambda: remember_removed(table, step.files, new)) if deletes else []
    if removed is None:
        return False
    while not table.commit(new, step.files, note=note):
        table.refresh()
        if not table.are_live(step.files):
            table.folder.delete(removed)
            return False
    return True
