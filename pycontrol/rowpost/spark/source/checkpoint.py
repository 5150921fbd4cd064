"""What a stream's checkpoint says: how far it has come for good, and the end of a run's last batch.

Spark commits a batch to its source when it builds the next one. So the last batch of a run, stored for good as it is,
would lie in the spool until messages come again: `finalize` looks into Spark's own log and drops it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rowpost.spark.source.connection import open_database
from rowpost.spark.source.options import read_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["committed_offset", "finalize"]

_OFFSETS = 2  # lines of an offset file before those of the sources: version, metadata


def committed_offset(checkpoint: str | Path, spark: SparkSession | None = None, source: int = 0) -> dict[str, Any] | None:
    """The offset up to which a query has stored everything for good; None before its first batch is.

    `spark` reads checkpoints that are named with a scheme, such as s3a://; file:/ needs none.
    """
    where = str(checkpoint)
    if spark is None and where.startswith("file:/"):
        where = urlsplit(where).path
    numbers = [int(name) for name in _names(where, "commits", spark) if name.isdecimal()]
    if not numbers:
        return None
    line = _text(where, f"offsets/{max(numbers)}", spark).splitlines()[_OFFSETS + source]
    return None if line == "-" else json.loads(line)


def finalize(options: Mapping[str, str], checkpoint: str | Path, spark: SparkSession | None = None, *, release: bool = False) -> int:
    """After a query of mode drain has ended: deletes from the spool what it has stored; returns how many messages.

    Args:
        options: the stream's own, or at least queue and environment.
        checkpoint: the query's.
        spark: for a checkpoint that is no local folder.
        release: the stream will not come back: if the spool is empty now, another one may drain the queue.

    Raises:
        SpoolTaken: the spool belongs to another stream.
    """
    offset = committed_offset(checkpoint, spark)
    if offset is None or "owner" not in offset:
        return 0
    asked = read_options({**options, "mode": "drain"})
    with open_database(asked.environment) as database:
        return database.call("drop_spool", asked.queue, owner=offset["owner"], upto=offset["number"], release=release)[0][0]


def _names(where: str, folder: str, spark: SparkSession | None) -> list[str]:
    if ":/" not in where:
        path = Path(where) / folder
        return [each.name for each in path.iterdir()] if path.is_dir() else []
    from pyspark.errors import AnalysisException

    try:
        rows = _session(spark, where).read.format("binaryFile").load(f"{where}/{folder}").select("path").collect()
    except AnalysisException:  # no such folder: no batch yet
        return []
    return [row.path.rpartition("/")[2] for row in rows]


def _text(where: str, file: str, spark: SparkSession | None) -> str:
    if ":/" not in where:
        return (Path(where) / file).read_text(encoding="utf-8")
    row = _session(spark, where).read.format("binaryFile").load(f"{where}/{file}").select("content").first()
    return bytes(row.content).decode()


def _session(spark: SparkSession | None, where: str) -> SparkSession:
    if spark is None:
        raise ValueError(f"The checkpoint {where} is no local folder: a Spark session is needed to read it.")
    return spark
