"""Group failed messages by exception, endpoint, message type and stack trace."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from rowpost.spark.archive.headers import read_headers
from rowpost.spark.archive.schemas import FAILURE_GROUPS, shaped
from rowpost.spark.archive.times import in_utc
from rowpost.wire.headers import EXCEPTION_STACK_TRACE

__all__ = ["failures", "write_csv"]

_GROUP = ("exception_type", "endpoint", "message_type", "stack_hash")
_HASH_LENGTH = 8


def failures(df: DataFrame, now: datetime) -> DataFrame:
    """Compute schemas.FAILURE_GROUPS from archived messages or from an error queue with parsed headers, the largest
    first.

    `now` is the end of the last 24 hours. A later time of failure, from a clock that is ahead, counts as `now`.
    """
    end = F.lit(now)
    at = F.least(F.col("time_of_failure"), end)
    text = F.nullif(F.element_at(read_headers(F.col("headers")), F.lit(EXCEPTION_STACK_TRACE)), F.lit(""))
    stack = F.substring(F.sha2(F.regexp_replace(text, r"0x[0-9a-fA-F]+|\d+", ""), 256), 1, _HASH_LENGTH)
    failed = df.where(F.col("exception_type").isNotNull() | F.col("time_of_failure").isNotNull())
    failed = failed.where(F.col("processing_ended").isNull()).withColumns({"failed_at": at, "stack_hash": stack})
    # an interval of Spark's would be of days of the session's time zone
    one, two = F.lit(now - timedelta(hours=24)), F.lit(now - timedelta(hours=48))
    grouped = failed.groupBy(*_GROUP).agg(
        F.max_by("exception_message", "failed_at").alias("sample_message"),
        F.min("failed_at").alias("first_seen"),
        F.max("failed_at").alias("last_seen"),
        F.count(F.lit(1)).alias("messages"),
        F.count_if(F.col("failed_at") > one).alias("last_24h"),
        F.count_if((F.col("failed_at") <= one) & (F.col("failed_at") > two)).alias("previous_24h"),
    )
    trend = F.try_divide(F.col("last_24h").cast("double"), F.col("previous_24h"))
    return shaped(grouped.withColumn("trend", trend), FAILURE_GROUPS).orderBy(F.desc("messages"), *_GROUP)


def write_csv(path: Path, rows: Iterable[Row]) -> int:
    """Write the groups as CSV with times in ISO 8601, and return their number.

    A cell that a spreadsheet would evaluate as a formula is marked as text.
    """
    cells = [list(map(_cell, row)) for row in rows]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(FAILURE_GROUPS.fieldNames())
        out.writerows(cells)
    return len(cells)


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return f"{in_utc(value):%Y-%m-%dT%H:%M:%S.%fZ}"
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value
