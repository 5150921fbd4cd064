"""Send the rows of Parquet, CSV or JSON files as messages, each exactly once.

A message's id is computed from the job and the row's key, so that a repeated run produces the same messages.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from rowpost.errors import InvalidMessages
from rowpost.spark.archive.load_map import LoadMap
from rowpost.spark.archive.schemas import OUTGOING, shaped
from rowpost.spark.jobs.replay import partitions_for, send
from rowpost.wire.headers import (
    CONTENT_TYPE,
    CONVERSATION_ID,
    CORRELATION_ID,
    ENCLOSED_MESSAGE_TYPES,
    MESSAGE_ID,
    MESSAGE_INTENT,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["FORMATS", "check", "load", "read_files", "run"]

FORMATS = ("parquet", "csv", "json")
_KEY_SEPARATOR = "\x1f"


def read_files(spark: SparkSession, files: Sequence[str], format: str | None = None) -> DataFrame:
    """Read files of one format, which is the extension of their names unless `format` is given.

    The first line of a CSV file names its columns, and all its values are strings. A JSON file has one object a line.

    Raises:
        InvalidMessages: the files have different or unknown formats.
    """
    kinds = {format or PurePosixPath(file).suffix.lstrip(".").lower() for file in files}
    kind = {"jsonl": "json", "ndjson": "json"}.get(*kinds, *kinds) if len(kinds) == 1 else None
    if kind not in FORMATS:
        raise InvalidMessages(
            f"Cannot load files of format {', '.join(sorted(kinds))}: all files must be {' or all '.join(FORMATS)}. Use --format if the names do not show it."
        )
    reader = spark.read.option("header", "true").option("mode", "FAILFAST") if kind == "csv" else spark.read
    return reader.format(kind).load(list(files))


def load(df: DataFrame, spec: LoadMap, job: str) -> DataFrame:
    """Convert rows to schemas.OUTGOING. The id is a UUID of version 5 of the job and the row's key."""
    namespace = uuid.uuid5(uuid.NAMESPACE_OID, f"rowpost load {job}")
    key = F.concat_ws(_KEY_SEPARATOR, *(F.col(f"`{name}`").cast("string") for name in spec.key))
    made = df.withColumn("__id", _uuid5(namespace, key))
    fixed = {
        MESSAGE_ID: F.col("__id"),
        CONVERSATION_ID: F.col("__id"),
        CORRELATION_ID: F.col("__id"),
        MESSAGE_INTENT: F.lit("Send"),
        ENCLOSED_MESSAGE_TYPES: F.lit(spec.type),
        CONTENT_TYPE: F.lit(spec.content_type),
        "Rowpost.Load": F.lit(job),
    }
    own = {name: F.col(f"`{column}`").cast("string") for name, column in spec.headers}
    pairs = [each for name, value in {**fixed, **own}.items() for each in (F.lit(name), value)]
    headers = F.to_json(F.create_map(*pairs), {"ignoreNullFields": "false"})
    return shaped(made.select(F.col("__id").alias("id"), headers.alias("headers"), _body(df, spec).alias("body")), OUTGOING)


def _body(df: DataFrame, spec: LoadMap) -> Column:
    if spec.body_column is not None:
        return F.col(f"`{spec.body_column}`").cast("binary")
    names = spec.body or df.columns
    return F.to_json(F.struct(*(F.col(f"`{name}`") for name in names)), {"ignoreNullFields": "false"}).cast("binary")


def _uuid5(namespace: uuid.UUID, name: Column) -> Column:
    """Compute uuid.uuid5 with Spark functions."""
    digits = F.sha1(F.concat(F.unhex(F.lit(namespace.hex)), F.encode(name, "UTF-8")))
    variant = F.translate(F.substring(digits, 17, 1), "0123456789abcdef", "89ab" * 4)
    parts = (F.substring(digits, 1, 8), F.substring(digits, 9, 4), F.concat(F.lit("5"), F.substring(digits, 14, 3)),
             F.concat(variant, F.substring(digits, 18, 3)), F.substring(digits, 21, 12))  # fmt: skip
    return F.concat_ws("-", *parts)


def check(df: DataFrame, spec: LoadMap) -> int:
    """Check columns and keys, and return the number of rows. Raises InvalidMessages for missing columns and for null or duplicate keys."""
    missing = sorted(spec.columns - set(df.columns))
    if missing:
        raise InvalidMessages(f"The files have no column {', '.join(missing)}. Nothing was sent. Their columns are {', '.join(df.columns)}.")
    key = [F.col(f"`{name}`") for name in spec.key]
    empty = F.count_if(F.greatest(*(each.isNull().cast("int") for each in key), F.lit(0)) == 1)
    rows, nulls, distinct = df.agg(F.count(F.lit(1)), empty, F.count_distinct(F.struct(*key))).collect()[0]
    if nulls:
        raise InvalidMessages(
            f"{nulls} of {rows} rows have no {' or '.join(spec.key)}, which the message id is computed from. Nothing was sent. Remove these rows or choose another key."
        )
    if distinct < rows:
        raise InvalidMessages(f"{rows - distinct} of {rows} rows repeat the key of another row. Nothing was sent. Add columns to key.")
    return rows


def run(spark: SparkSession, files: Sequence[str], queue: str, spec: LoadMap, job: str, *,
        format: str | None = None, environment: str | None = None) -> dict[str, object]:  # fmt: skip
    """Load files into a queue, once for each `job`. Returns counts. Raises InvalidMessages, and what the sink raises."""
    df = read_files(spark, files, format)
    rows = check(df, spec)
    outgoing = load(df, spec, job).withColumn("row_version", F.lit(0))
    send(outgoing, queue, f"load/{job}", partitions_for(rows), environment)
    return {"key": job, "queue": queue, "messages": rows}
