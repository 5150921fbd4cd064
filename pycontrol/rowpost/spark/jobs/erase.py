"""Erase the messages of one person or case from an archive, with all copies below its folder, and write a receipt.

Only files that hold such messages are rewritten. All files that the table has replaced are then deleted, because an
earlier merge may have copied the messages: time travel ends there. The selected messages of unfinished replays are
erased too, and so are leftovers of killed jobs, and the copies in tables of decoded messages. The receipt says when,
why and how much, but not what.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from rowpost.archive.leftovers import find_leftovers
from rowpost.archive.maintenance_lock import maintenance_lock
from rowpost.archive.table import ArchiveTable, open_table
from rowpost.errors import ArchiveNotFound, InvalidMessage, SettingsError
from rowpost.spark.archive.headers import parse_headers
from rowpost.spark.archive.records import places
from rowpost.spark.archive.rows import read_files
from rowpost.spark.archive.schemas import MESSAGE, schema_of
from rowpost.spark.describing import describing
from rowpost.spark.jobs.decode import KEY, sources
from rowpost.spark.jobs.maintenance import (
    ACTION,
    DELETE,
    MATCHES,
    REDACT,
    ChangedCopies,
    RewriteCounts,
    RowChange,
    follow,
    has_body,
    work,
)
from rowpost.spark.jobs.replay import filtered, stored
from rowpost.spark.jobs.retain import is_redacted
from rowpost.wire.user import user_name

__all__ = ["Erasure", "read_lines", "run"]

_ID_COLUMNS = ("id", "message_id")


@dataclass(frozen=True)
class Erasure:
    """The messages to erase: those that meet a condition on schemas.ARCHIVE, and those with an id.

    It is that of the row or message, in any case.
    """

    where: str | None = None
    ids: tuple[str, ...] = ()

    def mark(self, df: DataFrame) -> DataFrame:
        """Add the column MATCHES to archived messages. Raises InvalidMessage for a condition that is not valid."""
        matches = F.lit(False)
        if self.where is not None:
            filtered(df, self.where, "condition")
            matches = F.coalesce(F.expr(self.where), F.lit(False))
        if self.ids:
            ids = df.sparkSession.createDataFrame([(each.lower(),) for each in self.ids], "id string").distinct()
            for name in _ID_COLUMNS:
                own = F.broadcast(ids.select(F.col("id").alias(f"_rowpost_{name}")))
                df = df.join(own, F.lower(F.col(name)) == F.col(f"_rowpost_{name}"), "left")
                matches |= F.col(f"_rowpost_{name}").isNotNull()
        return df.withColumn(MATCHES, matches).drop(*(f"_rowpost_{name}" for name in _ID_COLUMNS))

    @property
    def change(self) -> RowChange:
        """The deletion of the selected messages."""
        where = None if self.ids else self.where
        return RowChange(
            lambda df: self.mark(df).withColumn(ACTION, F.when(F.col(MATCHES), F.lit(DELETE))).drop(MATCHES),
            where=where,
        )

    def mark_copies(self, df: DataFrame) -> DataFrame:
        """Add the column MATCHES to copies. If they lack a column of the condition, only the ids decide."""
        return (self if self.is_valid_for(df) else replace(self, where=None)).mark(df)

    def is_valid_for(self, df: DataFrame) -> bool:
        """Tell whether rows have all columns of the condition."""
        try:
            self.mark(df)
        except InvalidMessage:
            return False
        return True


def read_lines(path: Path) -> tuple[str, ...]:
    """Read ids or texts, one in each line. Raises SettingsError for a file without any."""
    try:
        lines = map(str.strip, path.read_text(encoding="utf-8").splitlines())
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not a text file in UTF-8: write one id or text in each line.") from error
    if not (found := tuple(dict.fromkeys(filter(None, lines)))):
        raise SettingsError(f"{path} is empty: write one id or text in each line.")
    return found


@describing("erase")
def run(
    spark: SparkSession, path: str, selection: Erasure, reason: str, now: datetime, *, idle: bool = False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:  # fmt: skip
    """Erase messages, and return the receipt, with `reason` and `now`. The reason must not contain what is erased.

    If the archive is `idle`, no job writes to it now, so that all leftovers can be deleted. Raises ArchiveNotFound,
    InvalidMessage for a condition that is not valid, and SparkFailed if another job maintains the archive, its log may
    have statistics of ids, or a file cannot be read.
    """
    table, counts = open_table(path), RewriteCounts()
    table.check_columns(("id", "row_version"))  # the tables of `decode` are erased too
    table.check_plain_log()
    table.check_writable()  # before copies are erased by what its files say
    copied = ChangedCopies()
    with maintenance_lock(table.folder, "erase"):
        table.refresh()  # what `decode` has read meanwhile has copies
        if places(table.folder):
            _erase_copies(spark, table, selection, copied, idle=idle)  # first: the archive says which messages they are
        for _ in phases(spark, table, selection, counts):
            progress(counts.removed, counts.files)
        swept, unsure = _sweep(spark, table, selection.change, idle=idle)
        replayed = sum(_erase_replay(spark, table, selection, place) for place in table.folder.replays())
    receipt = {
        "time": now.isoformat(timespec="seconds"),
        "reason": reason,
        "user": user_name(),
        "host": socket.gethostname(),
        "archive": table.path,
        "selected_by": [name for name, used in (("where", selection.where), ("ids", selection.ids)) if used],
        "ids": len(selection.ids),
        "erased": counts.removed,
        "files_rewritten": counts.files,
        "leftovers_deleted": swept,
        "replayed_erased": replayed,
        "copies_erased": copied.deleted,
        "copies_redacted": copied.redacted,
        "copies_missing": copied.missing,
        "copies_undecided": copied.undecided,
        "unfinished": unsure + copied.unfinished,
        "version": table.version,
    }
    table.folder.write(f"erasures/{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}.json", receipt)
    return receipt


def phases(spark: SparkSession, table: ArchiveTable, selection: Erasure, counts: RewriteCounts) -> Iterator[str]:
    """Erase messages from the table, and delete the replaced files."""
    yield from work(table, "erase", partial(selection.change.plan, spark, table), counts)
    table.vacuum(at_once=True)
    yield "vacuumed"


def _erase_copies(
    spark: SparkSession, archive: ArchiveTable, selection: Erasure, done: ChangedCopies, *, idle: bool
) -> None:
    """Erase the selected messages from all tables with copies, and redact there what `retain` has redacted."""
    kept = read_files(spark, archive, archive.files())
    messages = selection.mark(kept).withColumn(
        ACTION, F.when(F.col(MATCHES), F.lit(DELETE)).when(is_redacted(), F.lit(REDACT))
    )
    for table, change in follow(archive, "erase", messages, done, selection.mark_copies):
        done.unfinished += _sweep(spark, table, change, idle=idle)[1]
        rows = read_files(spark, table, table.files())
        if not selection.is_valid_for(rows):
            known = _keys_of_sources(spark, kept, archive, table)
            if unknown := rows.where(has_body(rows)).join(known, KEY, "left_anti").count():
                done.undecided[table.path] = unknown


def _keys_of_sources(spark: SparkSession, kept: DataFrame, archive: ArchiveTable, table: ArchiveTable) -> DataFrame:
    """Return the keys of the messages in all archives of which a table has copies. One that was deleted has none."""
    keys = kept.select(*KEY)
    for path in sources(table.path):
        if path != archive.folder.path:
            with suppress(ArchiveNotFound):
                other = open_table(path)
                keys = keys.union(read_files(spark, other, other.files()).select(*KEY))
    return keys


def _sweep(spark: SparkSession, table: ArchiveTable, change: RowChange, *, idle: bool) -> tuple[int, int]:
    """Delete leftovers that no job can commit. Returns how many, and how many others may hold a selected message."""
    leftovers = find_leftovers(table)
    swept = [each for each in leftovers if idle or each.is_over]
    table.folder.delete(each.path for each in swept)
    unsure = sum(
        table.folder.footer(each.path) is None or not change.of(read_files(spark, table, [each.as_file()])).isEmpty()
        for each in leftovers
        if each not in swept
    )
    return len(swept), unsure


def _erase_replay(spark: SparkSession, table: ArchiveTable, selection: Erasure, place: str) -> int:
    """Erase messages of an unfinished replay, and return their number. Its other messages are still sent."""
    folder, rows, kept = table.folder, f"{place}/rows", f"{place}/rows-kept"
    if not folder.exists(rows):  # an earlier run was killed between the two last steps
        folder.move(kept, rows)
    df = stored(spark, f"{table.path}/{rows}")
    marked = selection.mark(_as_archived(df, schema_of(table)))
    number = marked.where(MATCHES).count()
    if number:
        folder.delete([kept])  # of an erasure that was killed: a step that is empty now would stay in it
        marked.where(~F.col(MATCHES)).select(df.columns).write.partitionBy("step").parquet(f"{table.path}/{kept}")
        folder.delete([rows])
        folder.move(kept, rows)
    return number


def _as_archived(df: DataFrame, schema: StructType) -> DataFrame:
    """Add the columns of the table to the messages of a replay. Columns that a replay does not store are null."""
    names = set(df.columns)
    missing = [column for column in MESSAGE if column.name not in names]
    whole = parse_headers(df.withColumns({column.name: F.lit(None).cast(column.dataType) for column in missing}))
    return whole.withColumns({c.name: F.lit(None).cast(c.dataType) for c in schema if c.name not in whole.columns})
