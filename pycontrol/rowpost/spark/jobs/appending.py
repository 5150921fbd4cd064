"""Add rows to a table that it does not have yet: in one commit, however often and by whomever this is repeated."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rowpost.spark.archive.parts import NewFile
from rowpost.spark.archive.rows import read_files, write_files
from rowpost.spark.archive.table import ArchiveTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["append", "not_in"]


def append(table: ArchiveTable, job: str, rows: Callable[[], DataFrame], note: Mapping[str, Any]) -> list[NewFile]:
    """Write rows and commit them. If another process has changed the table meanwhile, `rows` is called again.

    Returns the new files, none if there are no rows.
    """
    while True:
        table.refresh()
        new = write_files(rows(), table, f"{job}-{uuid.uuid4().hex[:8]}")
        if not new or table.commit(new, note={"job": job, **note, "rows": sum(file.rows for file in new)}):
            return new
        table.folder.delete(file.path for file in new)


def not_in(
    spark: SparkSession, table: ArchiveTable, rows: DataFrame, key: Sequence[str], days: Collection[tuple[str, str]] | None = None
) -> DataFrame:
    """Leave out the rows whose key a table has. With `days`, only these days of queues are compared, to which all rows belong."""
    there = [file for file in table.files() if days is None or (file.queue, file.day) in days]
    return rows.join(read_files(spark, table, there).select(*key), list(key), "left_anti") if there else rows
