"""Change an archive's files beside the archiver and other jobs: plan on a snapshot, write new files, commit or plan again.

The jobs compact, retain, erase and repair say which files they replace with what (`Step`). `work` executes the steps. If
another job has replaced one of a step's files in the meantime, the step's new files are deleted, and the job looks at the
files that have come since. Files that others add are looked at too, until a look finds nothing more to do.

`work` is a generator that yields before and after each phase, so that tests run two jobs in every order.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from rowpost.archive.merging import FILE_BYTES
from rowpost.archive.parts import NewFile
from rowpost.archive.table import ArchiveTable, DataFile
from rowpost.errors import SparkFailed
from rowpost.spark.archive.removed import remember_removed
from rowpost.spark.archive.rows import merge_files, read_files, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Counts", "Plan", "Step", "without_rows", "work"]

_T = TypeVar("_T")
_DELETING = ("erase", "retain")


@dataclass(frozen=True)
class Step:
    """Files that are replaced in one commit.

    Attributes:
        files: the files to replace.
        make: changes the rows of the files. If it is None, the files are removed, or merged if there are `groups`.
        groups: the files in groups of one queue and day. Each group becomes one file with the same rows.
        changed: the number of rows that `make` changes and keeps.
    """

    files: tuple[DataFile, ...]
    make: Callable[[DataFrame], DataFrame] | None = None
    groups: tuple[tuple[DataFile, ...], ...] = ()
    changed: int = 0


@dataclass
class Counts:
    """What a job has done so far."""

    steps: int = 0
    files_before: int = 0
    files_after: int = 0
    rows_before: int = 0
    rows_after: int = 0
    changed: int = 0
    replanned: int = 0
    days: set[tuple[str, str]] = field(default_factory=set)

    def add(self, step: Step, new: Sequence[NewFile]) -> None:
        self.steps += 1
        self.files_before += len(step.files)
        self.files_after += len(new)
        self.rows_before += sum(file.rows for file in step.files)
        self.rows_after += sum(file.rows for file in new)
        self.changed += step.changed
        self.days |= {(file.queue, file.day) for file in step.files}


def without_rows(
    deleted: Mapping[DataFile, int], keep: Callable[[DataFrame], DataFrame], changed: Mapping[DataFile, int] | None = None
) -> list[Step]:
    """Return the steps that remove rows: files that keep none are removed, the others of each day are rewritten together.

    Args:
        deleted: the number of rows to delete, by file.
        keep: returns the rows that stay.
        changed: the number of rows that `keep` changes, by file.
    """
    changed = changed or {}
    of_day: dict[tuple[str, str, bool], list[DataFile]] = defaultdict(list)
    for file in dict.fromkeys([*deleted, *changed]):
        of_day[file.queue, file.day, deleted.get(file, 0) == file.rows].append(file)
    return [
        Step(tuple(files), None if empty else keep, changed=sum(changed.get(file, 0) for file in files)) for (_, _, empty), files in of_day.items()
    ]


#: Takes the files that the job has not looked at yet, and returns the steps.
Plan = Callable[[Sequence[DataFile]], Sequence[Step]]


def work(spark: SparkSession, table: ArchiveTable, kind: str, plan: Plan, counts: Counts, *, again: bool = True) -> Iterator[str]:
    """Execute a plan, and yield the name of each phase that is over: planned, written, committed.

    Args:
        kind: the job's name, for the log.
        plan: see Plan.
        counts: is updated after each commit.
        again: look at the files of other writers too. If false, a step that lost its files is skipped.

    Raises:
        SparkFailed: the table must not be changed, or a file cannot be read.
    """
    table.refresh()
    table.check_writable()
    seen: set[str] = set()
    while fresh := [file for file in table.files() if file.path not in seen]:
        steps = _attempt(table, fresh, partial(plan, fresh))
        if steps is None:
            continue
        seen |= {file.path for file in fresh}
        yield "planned"
        for step in steps:
            new = _write(spark, table, kind, step)
            if new is None:
                counts.replanned += 1
                continue
            yield "written"
            if _commit(table, kind, step, new):
                seen |= {file.path for file in new}
                counts.add(step, new)
                yield "committed"
            else:
                table.discard(new)
                counts.replanned += 1
        if not again:
            return
        table.refresh()


def _attempt(table: ArchiveTable, files: Sequence[DataFile], act: Callable[[], _T]) -> _T | None:
    """Read files of a snapshot. Returns None if that failed and another job has replaced one of them, and perhaps deleted it."""
    try:
        return act()
    except Exception:
        table.refresh()
        if table.are_live(files):
            raise
        return None


def _write(spark: SparkSession, table: ArchiveTable, kind: str, step: Step) -> list[NewFile] | None:
    """Write the new files of a step. Returns None if another job has replaced the step's files."""
    table.refresh()
    if not table.are_live(step.files):
        return None
    name = f"{kind}-{uuid.uuid4().hex[:8]}"
    if step.groups:
        return _attempt(table, step.files, lambda: _merged(spark, table, step, name))
    if step.make is None:
        return []
    make, size = step.make, sum(file.bytes for file in step.files)

    def rewrite() -> list[NewFile]:
        rows = make(read_files(spark, table, step.files)).coalesce(max(1, -(-size // FILE_BYTES)))
        return write_files(rows, table, name)

    return _attempt(table, step.files, rewrite)


def _merged(spark: SparkSession, table: ArchiveTable, step: Step, name: str) -> list[NewFile]:
    new = merge_files(spark, table, step.groups, name)
    before, after = sum(file.rows for file in step.files), sum(file.rows for file in new)
    if before != after:
        table.folder.delete(file.path for file in new)
        raise SparkFailed(
            f"Cannot merge files of {table.address}: {before} rows would become {after}. Nothing was changed. Run `rowpost spark verify`."
        )
    return new


def _commit(table: ArchiveTable, kind: str, step: Step, new: Sequence[NewFile]) -> bool:
    """Commit a step. Returns False if another job has replaced one of its files."""
    note = {"job": kind, "rows": sum(file.rows for file in new)}
    deletes = kind in _DELETING and "headers" in table.names
    removed = _attempt(table, step.files, lambda: remember_removed(table, step.files, new)) if deletes else []
    if removed is None:
        return False
    while not table.commit(new, step.files, note=note, same_rows=bool(step.groups)):
        table.refresh()
        if not table.are_live(step.files):
            table.folder.delete(removed)
            return False
    return True
