"""Read a stream's checkpoint: the last committed offset, and the last batch of a finished drain.

Spark reports a batch as committed to its source only when it builds the next batch. The last batch of a run would therefore
stay in the spool until new messages arrive. `finalize` reads Spark's own commit log and drops that batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowpost.database.connection import Connection
from rowpost.spark.archive.address import local_path
from rowpost.spark.archive.folder import ArchiveFolder
from rowpost.spark.source.connection import in_environment
from rowpost.spark.source.options import read_options
from rowpost.spark.source.reconnect import PatientConnection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["committed_offset", "finalize", "offsets_by_queue"]

_HEADER_LINES = 2  # an offset file starts with a version and metadata; one line a source follows


def committed_offset(checkpoint: str | Path, spark: SparkSession | None = None, source: int = 0) -> dict[str, Any] | None:
    """Return the offset of the last batch that a query has committed. Returns None before its first commit.

    Args:
        checkpoint: a path or URI.
        spark: reads a checkpoint whose URI has a scheme such as s3a://. Without it, pyarrow does.
        source: position of the source in the query, from 0.
    """
    where = str(checkpoint)
    numbers = [int(name) for name in _names(where, "commits", spark) if name.isdecimal()]
    if not numbers:
        return None
    line = _text(where, f"offsets/{max(numbers)}", spark).splitlines()[_HEADER_LINES + source]
    return None if line == "-" else json.loads(line)


def finalize(options: Mapping[str, str], checkpoint: str | Path, spark: SparkSession | None = None, *, release: bool = False) -> int:
    """Delete the committed messages of an ended drain from the spool, and return their number.

    Args:
        options: the stream's options; queue and environment are enough.
        checkpoint: the query's checkpoint.
        spark: reads a checkpoint that is not a local folder.
        release: give up the queue if the spool is empty afterwards, so that another stream may drain it.

    Raises:
        SpoolTaken: the spool belongs to another stream.
    """
    asked = in_environment(read_options({**options, "mode": "drain"}, stream=True))
    committed = committed_offset(checkpoint, spark)
    connection = PatientConnection(asked)
    try:
        drained = {queue: offset for queue, offset in offsets_by_queue(committed, asked.queue).items() if "owner" in offset}
        return sum(connection.run(partial(_drop, queue, offset, release)) for queue, offset in drained.items())
    finally:
        connection.close()


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


def _text(where: str, file: str, spark: SparkSession | None) -> str:
    if spark is None or local_path(where) is not None:
        return ArchiveFolder(where).text(file)
    (row,) = spark.read.format("binaryFile").load(f"{where}/{file}").select("content").collect()
    return bytes(row.content).decode()
