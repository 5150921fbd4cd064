"""Do to the copies of an archive's messages what happens to the messages: to the tables of `decode`, which
archive/records.py finds.

`erase` and `retain` say what happens, and `follow` does it in each table, before the archive is changed: as long as a
message is in the archive, a run that was killed is repeated with the same copies. Of the copy of a redacted message,
only ROW stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rowpost.archive.lease import lease
from rowpost.archive.table import ArchiveTable
from rowpost.errors import ArchiveNotFound
from rowpost.spark.archive.records import places, tables_in
from rowpost.spark.archive.rows import FILE
from rowpost.spark.jobs.decode import KEY, ROW
from rowpost.spark.jobs.maintenance import ACTION, DELETE, REDACT, RewriteCounts, RowChange, work

__all__ = ["MATCHES", "ChangedCopies", "follow", "has_body"]

#: A column that is added while a job runs, like ACTION.
MATCHES = "_rowpost_matches"
_OWN = "_rowpost_copied_"


@dataclass
class ChangedCopies:
    """What was done to copies.

    Attributes:
        deleted, redacted: rows.
        missing: places without a table.
        unfinished: files that a job may be about to commit.
        undecided: rows to which a condition cannot be applied, by the path of their table: the archive has no such
            messages any more.
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

    Yields each table with what was changed, while the job holds the table's lease.

    Args:
        job: names the job, for leases and logs.
        messages: the archive's messages with ACTION. What happens to one of several equal messages happens to its copy.
        done: what was done is added to it.
        matching: adds MATCHES to a table's rows: those that are deleted because of what the table itself says.

    Raises:
        SparkFailed: another job holds a lease, or a table must not be changed.
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
            with lease(table.folder, job):
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
