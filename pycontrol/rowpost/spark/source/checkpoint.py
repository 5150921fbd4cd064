"""Read a stream's checkpoint: the last committed offset, and the last batch of a finished drain.

Spark reports a batch as committed to its source only when it builds the next batch. The last batch of a run would therefore
stay in the spool until new messages arrive. `finalize` reads Spark's own commit log and drops that batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowpost.archive.address import local_path
from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.identity import Offset, Progress, by_epoch
from rowpost.archive.source.reconnect import PatientConnection
from rowpost.database.connection import Connection
from rowpost.spark.source.options import in_environment, read_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Checkpoint", "committed_offset", "finalize", "offsets_by_queue"]

_HEADER_LINES = 2  # an offset file starts with a version and metadata; one line a source follows


@dataclass(frozen=True)
class Checkpoint:
    """What Spark has stored of a query. `spark` reads a checkpoint whose URI has a scheme such as s3a://. Without it, pyarrow does."""

    place: str
    spark: SparkSession | None = None

    @cached_property
    def query(self) -> str | None:
        """The query's id. None before its first start."""
        text = _text(self.place, "metadata", self.spark)
        return None if text is None else json.loads(text)["id"]

    def last(self, folder: str) -> int:
        """Return the number of the last batch in `offsets` (planned) or `commits`, or -1."""
        return max((int(name) for name in _names(self.place, folder, self.spark) if name.isdecimal()), default=-1)

    def offset(self, number: int, source: int = 0) -> dict[str, Any] | None:
        """Return the offset at the end of a batch. None if it is not stored, or not any more."""
        text = None if number < 0 else _text(self.place, f"offsets/{number}", self.spark)
        line = "-" if text is None else text.splitlines()[_HEADER_LINES + source]
        return None if line == "-" else json.loads(line)

    def progress(self) -> Progress:
        """Return what an archive compares with its table."""

        def offsets(number: int) -> Mapping[str, Offset] | None:
            found = self.offset(number)
            return None if found is None else by_epoch(found)

        return Progress(self.place, self.query, self.last("offsets"), self.last("commits"), offsets)


def committed_offset(checkpoint: str | Path, spark: SparkSession | None = None, source: int = 0) -> dict[str, Any] | None:
    """Return the offset of the last batch that a query has committed. Returns None before its first commit.

    Args:
        checkpoint: a path or URI.
        spark: reads a checkpoint whose URI has a scheme such as s3a://. Without it, pyarrow does.
        source: position of the source in the query, from 0.
    """
    stored = Checkpoint(str(checkpoint), spark)
    return stored.offset(stored.last("commits"), source)


def finalize(
    options: Mapping[str, str], checkpoint: str | Path, spark: SparkSession | None = None, *, release: bool = False,
    confirmed: Mapping[str, Offset] | None = None,
) -> int:  # fmt: skip
    """Delete the committed messages of an ended drain from the spool, and return their number.

    Args:
        options: the stream's options; queue and environment are enough.
        checkpoint: the query's checkpoint.
        spark: reads a checkpoint that is not a local folder.
        release: give up the queue if the spool is empty afterwards, so that another stream may drain it.
        confirmed: the offsets, by the identity of the queue, up to which the target has the messages. Messages above stay in the spool.

    Raises:
        SpoolTaken: the spool belongs to another stream.
    """
    asked = in_environment(read_options({**options, "mode": "drain"}, stream=True))
    committed = committed_offset(checkpoint, spark)
    connection = PatientConnection(asked)
    try:
        found = offsets_by_queue(committed, asked.queue).items()
        drained = {queue: _confirmed(offset, confirmed or {}) for queue, offset in found if "owner" in offset}
        return sum(connection.run(partial(_drop, queue, offset, release)) for queue, offset in drained.items())
    finally:
        connection.close()


def _confirmed(offset: Offset, confirmed: Mapping[str, Offset]) -> Offset:
    known = confirmed.get(offset["queue"], offset)
    return {**offset, "number": min(offset["number"], known["number"]) if known.get("owner") == offset["owner"] else 0}


def offsets_by_queue(offset: Mapping[str, Any] | None, queue: str) -> Mapping[str, Any]:
    """Return the offset of each queue: those of a stream that reads several, or the one of `queue`."""
    return {} if offset is None else offset.get("queues", {queue: offset})


def _drop(queue: str, offset: Mapping[str, Any], release: bool, database: Connection) -> int:
    return database.call("drop_spool", queue, owner=offset["owner"], upto=offset["number"], release=release)[0][0]


def _names(where: str, folder: str, spark: SparkSession | None) -> list[str]:
    if spark is None or local_path(where) is not None:
        return [name.rpartition("/")[2] for name, _ in ArchiveFolder(where).contents(folder, recursive=False)]
    from pyspark.errors import AnalysisException

    try:
        rows = spark.read.format("binaryFile").load(f"{where}/{folder}").select("path").collect()
    except AnalysisException:  # the folder appears with the first batch
        return []
    return [row.path.rpartition("/")[2] for row in rows]


def _text(where: str, file: str, spark: SparkSession | None) -> str | None:
    """Read a file of a checkpoint. Returns None if it does not exist."""
    if spark is None or local_path(where) is not None:
        try:
            return ArchiveFolder(where).text(file)
        except FileNotFoundError:
            return None
    from pyspark.errors import AnalysisException

    try:
        (row,) = spark.read.format("binaryFile").load(f"{where}/{file}").select("content").collect()
    except AnalysisException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        return None
    return bytes(row.content).decode()
