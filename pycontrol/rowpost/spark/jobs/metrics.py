"""Compute throughput, processing time and critical time by hour, endpoint and message type.

`metrics` works on an archive. `live` and `start_live` work on a stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from rowpost.spark.archive.headers import has_failed
from rowpost.spark.archive.schemas import FLOW_HOURLY, LIVE, shaped
from rowpost.spark.jobs.archive import BatchWriter, archive
from rowpost.spark.versions import start_query, stream_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["PERCENTILE_ACCURACY", "live", "metrics", "skipped", "start_live", "with_times"]

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
#: Accuracy of percentile_approx: a relative error of 0.1 %.
PERCENTILE_ACCURACY = 1000
_MAX_LATENESS = "10 minutes"


def metrics(df: DataFrame) -> DataFrame:
    """Compute schemas.FLOW_HOURLY from archived messages (schemas.ARCHIVE). Works on streams too.

    A message counts in the hour in which it was handled or failed. A message without such a time, or with a time more
    than an hour after `archived_at`, is left out: on a stream it would make all following messages late. On a stream, an
    event-time watermark on `at` determines when an hour is complete (see `live`).
    """
    timed = df if "at" in df.columns else with_times(df)
    hour = F.window("at", "1 hour").alias("window")
    grouped = timed.where(F.col("at").isNotNull()).groupBy(hour, "endpoint", "message_type").agg(
        F.count_if(F.col("processing_ended").isNotNull()).alias("messages"),
        F.count_if(has_failed()).alias("failed"),
        *_spread("processing_ms"),
        *_spread("critical_ms"),
        F.sum((F.coalesce(F.col("processing_ms") < 0, F.lit(False)) | F.coalesce(F.col("critical_ms") < 0, F.lit(False))).cast("int")).alias("clamped"),
        F.sum("body_bytes").alias("bytes"),
    )  # fmt: skip
    return shaped(grouped.withColumn("hour", F.col("window.start")), FLOW_HOURLY)


def with_times(df: DataFrame) -> DataFrame:
    """Add `at` (the time of handling or failure), `processing_ms` and `critical_ms`, which can be negative."""
    at = F.coalesce("processing_ended", "time_of_failure")
    due = F.greatest("time_sent", "deliver_at")  # greatest skips nulls
    return (
        df.withColumn("at", F.when(at <= F.col("archived_at") + F.expr("INTERVAL 1 HOUR"), at))
        .withColumn("processing_ms", _milliseconds("processing_started", F.col("processing_ended")))
        .withColumn("critical_ms", F.when(F.col("time_sent").isNotNull(), _between(due, F.col("processing_ended"))))
    )


def skipped(df: DataFrame) -> int:
    """Count the messages that `metrics` leaves out."""
    return with_times(df).where(F.col("at").isNull()).count()


def live(messages: DataFrame, queue: str) -> DataFrame:
    """Compute the metrics of a stream of messages (schemas.MESSAGE).

    An hour is emitted when a message arrives whose time is ten minutes after the end of that hour.
    """
    return metrics(with_times(archive(messages, queue)).withWatermark("at", _MAX_LATENESS))


def start_live(spark: SparkSession, queue: str, path: str, checkpoint: str, *, environment: str | None = None,
               every: str | None = None) -> StreamingQuery:  # fmt: skip
    """Write the metrics of a stream to a Delta table in `path`, each hour once."""
    reader = spark.readStream.format("rowpost").option("queue", queue).option("mode", "tail").option("startingOffsets", "earliest")
    reader = reader if environment is None else reader.option("environment", environment)
    reader = reader.options(**stream_options(ends=every is None))
    hours = live(reader.load(), queue).withColumn("queue", F.lit(queue)).withColumn("day", F.to_date("hour"))
    stream = hours.writeStream.outputMode("append").foreachBatch(BatchWriter(path, checkpoint, LIVE, queue)).option("checkpointLocation", checkpoint)
    return start_query(stream, every)


def _milliseconds(start: str, end: Column) -> Column:
    return _between(F.col(start), end)


def _between(start: Column, end: Column) -> Column:
    return (F.unix_micros(end) - F.unix_micros(start)) / 1000.0


def _spread(name: str) -> list[Column]:
    value = F.greatest(F.col(name), F.when(F.col(name).isNotNull(), F.lit(0.0)))
    several = F.percentile_approx(value, list(PERCENTILES.values()), PERCENTILE_ACCURACY)
    return [several.getItem(i).alias(f"{name}_{label}") for i, label in enumerate(PERCENTILES)] + [F.max(value).alias(f"{name}_max")]
