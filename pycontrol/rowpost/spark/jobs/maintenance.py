"""Change an archive's files beside the archiver and other jobs: plan on a snapshot, write new files, commit or plan
again.

The jobs retain, erase and repair say which files they replace with what (`FileReplacement`). Those that delete or
redact rows say which (`RowChange`), and only files with such rows are replaced. `work` executes the steps. If another
job has replaced one of a step's files in the meantime, the step's new files are deleted, and the job looks at the files
that have come since, until a look finds nothing more to do. It yields before and after each phase, so that tests run
two jobs in every order.

`follow` does to the copies of messages, in the tables of `decode`, what happens to the messages, before the archive is
changed: as long as a message is in the archive, a run that was killed is repeated with the same copies. Of the copy of
a redacted message, only ROW stays.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from rowpost.archive.maintenance_lock import maintenance_lock
from rowpost.archive.merging import FILE_BYTES
from rowpost.archive.parts import NewFile
from rowpost.archive.table import ArchiveTable, DataFile
from rowpost.errors import ArchiveNotFound
from rowpost.spark.archive.records import places, remember_removed, tables_in
from rowpost.spark.archive.rows import FILE, read_files, relative, write_files
from rowpost.spark.jobs.decode import KEY, ROW

__all__ = [
    "ACTION",
    "DELETE",
    "MATCHES",
    "REDACT",
    "ChangedCopies",
    "FileReplacement",
    "RewriteCounts",
    "RowChange",
    "follow",
    "has_body",
    "rewrite",
    "work",
]

DELETE, REDACT = "delete", "redact"
#: The column that a job adds to rows: DELETE, REDACT or null. A body may have a field of any other name.
ACTION = "_rowpost_action"
_DELETING = ("erase", "retain")
#: A column that is added while a job runs, like ACTION.
MATCHES = "_rowpost_matches"
_OWN = "_rowpost_copied_"


@dataclass(frozen=True)
class FileReplacement:
    """Files that are replaced in one commit. `changed` is the number of rows that are changed and kept.

    `write` takes the beginning of the names of the new files, and writes them. If it is None, the files are only
    removed.
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
    """Rows of a table that are deleted or redacted: `mark` adds ACTION, and `redacted` gives columns their new values.

    `where` is a condition that all of these rows meet. It reaches the readers of files, which skip what it excludes.
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

    `kind` names the job in the log. Raises SparkFailed if the table must not be changed, or a file cannot be read.
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
            table.refresh()
            write = partial(step.write, f"{kind}-{uuid.uuid4().hex[:8]}") if step.write else list[NewFile]
            new = table.attempt(step.files, write) if table.are_live(step.files) else None
            if new is None:  # another job has replaced the step's files
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


@dataclass
class ChangedCopies:
    """What was done to copies: rows that were deleted and redacted, and places that have no table.

    Files that a job may be about to commit are unfinished. Undecided are rows to which a condition cannot be applied,
    by the path of their table: the archive has no such messages any more.
    """

    deleted: int = 0
    redacted: int = 0
    missing: list[str] = field(default_factory=list)
    unfinished: int = 0
    undecided: dict[str, int] = field(default_factory=dict)


def follow(
    archive: ArchiveTable,
    job: str,
    messages: DataFrame,
    done: ChangedCopies,
    matching: Callable[[DataFrame], DataFrame] = lambda df: df.withColumn(MATCHES, F.lit(False)),
) -> Iterator[tuple[ArchiveTable, RowChange]]:
    """Change all tables to which messages of an archive were copied, and delete the replaced files.

    Yields each table with what was changed, while the job holds its lock. `messages` are the archive's, with ACTION:
    what happens to one of several equal messages happens to its copy. `matching` adds MATCHES to rows that are deleted
    because of what the table itself says. Raises SparkFailed if another job holds a lock, or a table must not be
    changed.
    """
    spark, acted = messages.sparkSession, messages.where(F.col(ACTION).isNotNull())
    actions = acted.groupBy(*KEY).agg(F.min(ACTION).alias(ACTION)).persist()  # DELETE comes before REDACT
    change = _change(actions, matching)
    for place in places(archive.folder):
        try:
            tables = tables_in(place)
        except ArchiveNotFound:
            done.missing.append(place)
            continue
        for table in tables:
            counts = RewriteCounts()
            with maintenance_lock(table.folder, job):
                for _ in work(table, job, partial(change.plan, spark, table), counts):
                    pass
                table.vacuum(at_once=True)
                yield table, change
            done.deleted += counts.removed
            done.redacted += counts.changed
    actions.unpersist()


def _change(actions: DataFrame, matching: Callable[[DataFrame], DataFrame]) -> RowChange:
    """Return what happens to the rows of a table with copies. Only rows with something of the body are redacted."""
    of = actions.select(*(F.col(name).alias(f"{_OWN}{name}") for name in (*KEY, ACTION)))
    action = F.col(f"{_OWN}{ACTION}")

    def mark(df: DataFrame) -> DataFrame:
        found = matching(df).join(of, [F.col(name) == F.col(f"{_OWN}{name}") for name in KEY], "left")
        deleted = F.when(F.col(MATCHES) | (action == DELETE), F.lit(DELETE))
        done = deleted.when((action == REDACT) & has_body(df), F.lit(REDACT))
        return found.withColumn(ACTION, done).select(*df.columns, ACTION)

    return RowChange(mark, lambda df: {name: F.lit(None) for name in df.columns if name not in ROW})


def has_body(df: DataFrame) -> Column:
    """Return the condition that a row of a decoded table has something of its message's body."""
    return reduce(or_, (F.col(name).isNotNull() for name in df.columns if name not in (*ROW, FILE)), F.lit(False))
