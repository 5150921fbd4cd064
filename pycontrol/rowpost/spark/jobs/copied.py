"""Do to the copies of an archive's messages what happens to the messages: to the tables of `decode`, which archive/records.py finds.

`erase` and `retain` say what happens, and `follow` does it in each table, before the archive is changed: as long as a message is
in the archive, a run that was killed is repeated with the same copies. Of the copy of a redacted message, only ROW stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from rowpost.archive.lease import lease
from rowpost.archive.table import ArchiveTable
from rowpost.errors import ArchiveNotFound
from rowpost.spark.archive.records import places, tables_in
from rowpost.spark.archive.rows import FILE
from rowpost.spark.jobs.decoded_tables import KEY, ROW
from rowpost.spark.jobs.maintenance import ACTION, DELETE, REDACT, Change, Counts, work

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["MATCHES", "Copies", "actions_of", "change_of_copies", "follow", "has_body"]

#: A column that is added while a job runs, like ACTION.
MATCHES = "_rowpost_matches"
_OWN = "_rowpost_copied_"


@dataclass
class Copies:
    """What was done to copies: rows deleted and redacted, places without a table."""

    deleted: int = 0
    redacted: int = 0
    missing: list[str] = field(default_factory=list)


def change_of_copies(actions: DataFrame, matching: Callable[[DataFrame], DataFrame] = lambda df: df.withColumn(MATCHES, F.lit(False))) -> Change:
    """Return what happens to the rows of a table with copies. Only rows with something of the body are redacted.

    Args:
        actions: KEY and ACTION of the archive's messages that are deleted or redacted, each message once.
        matching: adds MATCHES to a table's rows: those that are deleted because of what the table itself says.
    """
    of, action = actions.select(*(F.col(name).alias(f"{_OWN}{name}") for name in (*KEY, ACTION))), F.col(f"{_OWN}{ACTION}")

    def mark(df: DataFrame) -> DataFrame:
        found = matching(df).join(of, [F.col(name) == F.col(f"{_OWN}{name}") for name in KEY], "left")
        done = F.when(F.col(MATCHES) | (action == DELETE), F.lit(DELETE)).when((action == REDACT) & has_body(df), F.lit(REDACT))
        return found.withColumn(ACTION, done).select(*df.columns, ACTION)

    return Change(mark, lambda df: {name: F.lit(None) for name in df.columns if name not in ROW})


def has_body(df: DataFrame) -> Column:
    """Return the condition that a row of a decoded table has something of its message's body."""
    return reduce(or_, (F.col(name).isNotNull() for name in df.columns if name not in (*ROW, FILE)), F.lit(False))


def actions_of(df: DataFrame, action: Column) -> DataFrame:
    """Return what happens to messages of an archive, for `change_of_copies`. What happens to one of several equal messages happens to its copy."""
    return df.withColumn(ACTION, action).where(F.col(ACTION).isNotNull()).groupBy(*KEY).agg(F.min(ACTION).alias(ACTION))  # DELETE comes first


def follow(spark: SparkSession, archive: ArchiveTable, job: str, change: Change, done: Copies) -> Iterator[ArchiveTable]:
    """Change all tables to which messages of an archive were copied, and delete the replaced files.

    Yields each table after its change, while the job holds its lease. What was done is added to `done`. Raises SparkFailed.
    """
    for place in places(archive.folder):
        try:
            tables = list(tables_in(place))
        except ArchiveNotFound:
            done.missing.append(place)
            continue
        for table in tables:
            counts = Counts()
            with lease(table.folder, job):
                for _ in work(spark, table, job, partial(change.plan, spark, table), counts):
                    pass
                table.vacuum(at_once=True)
                yield table
            done.deleted += counts.rows_before - counts.rows_after
            done.redacted += counts.changed
