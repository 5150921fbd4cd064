"""Compute throughput, processing time and critical time by hour, endpoint and message type.

`metrics` works on an archive. `live` and `start_live` work on a stream. `merged` makes days or months of hours:
percentiles of hours cannot be merged, but each hour has sketches of its times, which can.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from rowpost.archive.table import create_table
from rowpost.errors import SparkFailed
from rowpost.spark.archive.headers import has_failed
from rowpost.spark.archive.schemas import FLOW_HOURLY, FLOW_MERGED, LIVE, shaped
from rowpost.spark.jobs.archive import BatchWriter, archive, given, start_query, where_it_begins
from rowpost.spark.source.checkpoint import Checkpoint

__all__ = [
    "MAX_LATENESS",
    "PERCENTILE_ACCURACY",
    "Lateness",
    "in_utc",
    "live",
    "merged",
    "metrics",
    "skipped",
    "start_live",
    "with_times",
]

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
#: Accuracy of percentile_approx: a relative error of 0.1 %.
PERCENTILE_ACCURACY = 1000
#: Size of the KLL sketches: a merged percentile is one of a rank at most 0.005 away.
SKETCH_K = 1000
#: How long a stream waits for messages of an hour that has ended.
MAX_LATENESS = "10 minutes"
_SKETCHED = ("processing_ms", "critical_ms")
_HOURS = "rowpost_hours"
_HOUR_S = 3600
#: Hours of one batch that are counted exactly.
_COUNTED_HOURS, _TRACKED_HOURS = 5_000, 65_536
_DAY_S = 86_400


def metrics(df: DataFrame) -> DataFrame:
    """Compute schemas.FLOW_HOURLY from archived messages (schemas.ARCHIVE). Works on streams too.

    A message counts in the hour in which it was handled or failed. One without such a time, or with a time more than an
    hour after `archived_at`, is left out: on a stream it would make all following messages late. On a stream, an
    event-time watermark on `at` determines when an hour is complete.
    """
    timed = df if "at" in df.columns else with_times(df)
    hour = F.window("at", "1 hour").alias("window")
    grouped = (
        timed.where(F.col("at").isNotNull())
        .groupBy(hour, "endpoint", "message_type")
        .agg(
            F.count_if(F.col("processing_ended").isNotNull()).alias("messages"),
            F.count_if(has_failed()).alias("failed"),
            *_spread("processing_ms"),
            *_spread("critical_ms"),
            F.sum(F.coalesce(F.least(*_SKETCHED) < 0, F.lit(False)).cast("int")).alias("clamped"),
            F.sum("body_bytes").alias("bytes"),
            *map(_sketch, _SKETCHED),  # last, because checkpoints of `live` have the sums in this order
        )
    )
    return shaped(grouped.withColumn("hour", F.col("window.start")), FLOW_HOURLY)


def merged(hours: DataFrame, unit: Literal["day", "month"] = "day") -> DataFrame:
    """Merge hours (schemas.FLOW_HOURLY, from one or several queues) to days or months (schemas.FLOW_MERGED).

    Percentiles come from the sketches of the hours: each is the value of a rank that is at most 0.005 away from its
    own.
    """
    sums = [F.sum(name).alias(name) for name in ("messages", "failed", "clamped", "bytes")]
    largest = [F.max(f"{name}_max").alias(f"{name}_max") for name in _SKETCHED]
    sketches = [F.kll_merge_agg_double(f"{name}_sketch", SKETCH_K).alias(f"{name}_sketch") for name in _SKETCHED]
    grouped = hours.groupBy(start_of(unit, F.col("hour")).alias("period"), "endpoint", "message_type").agg(
        *sums, *largest, *sketches
    )
    ranks = F.array(*map(F.lit, PERCENTILES.values()))
    for name in _SKETCHED:
        sketch = F.when(F.col(f"{name}_max").isNotNull(), F.col(f"{name}_sketch"))
        several = F.kll_sketch_get_quantile_double(sketch, ranks)
        grouped = grouped.withColumns(
            {f"{name}_{label}": several.getItem(i) for i, label in enumerate(PERCENTILES)} | {f"{name}_sketch": sketch}
        )
    return shaped(grouped, FLOW_MERGED)


def with_times(df: DataFrame) -> DataFrame:
    """Add `at` (the time of handling or failure), `processing_ms` and `critical_ms`, which can be negative."""
    at, ended = F.coalesce("processing_ended", "time_of_failure"), F.col("processing_ended")
    due = F.greatest("time_sent", "deliver_at")  # greatest skips nulls
    times = {
        "at": F.when(at <= F.col("archived_at") + F.expr("INTERVAL 1 HOUR"), at),
        "processing_ms": _milliseconds(F.col("processing_started"), ended),
        "critical_ms": F.when(F.col("time_sent").isNotNull(), _milliseconds(due, ended)),
    }
    return df.withColumns(times)


def skipped(df: DataFrame) -> int:
    """Count the messages that `metrics` leaves out."""
    return with_times(df).where(F.col("at").isNull()).count()


def live(messages: DataFrame, queue: str, lateness: str = MAX_LATENESS) -> DataFrame:
    """Compute the metrics of a stream of messages (schemas.MESSAGE).

    An hour is emitted when a message arrives whose time is `lateness` after its end. Later ones are in no hour: see
    `Lateness`.
    """
    timed = with_times(archive(messages, queue))
    hours = F.expr(
        f"approx_top_k(unix_seconds(at) - pmod(unix_seconds(at), {_HOUR_S}), {_COUNTED_HOURS}, {_TRACKED_HOURS})"
    )
    timed = timed.observe(_HOURS, hours.alias("hours"), F.count_if(F.col("at").isNull()).alias("skipped"))
    return metrics(timed.withWatermark("at", lateness))


class Lateness:
    """Counts the messages of a live stream that are in no hour: late ones, and those without a usable time (`skipped`).

    Spark drops late rows after it has grouped them, and counts groups. The stream therefore counts its messages by
    hour: those of an hour that the watermark of the batch before, in the checkpoint, had closed are late.
    """

    def __init__(self, checkpoint: str) -> None:
        self.late = self.skipped = 0
        self._checkpoint = Checkpoint(checkpoint)

    def __call__(self, progress: Mapping[str, Any]) -> int:
        """Count the late messages of one progress, and return their number."""
        observed = (progress.get("observedMetrics") or {}).get(_HOURS)
        if not observed or not progress["numInputRows"]:
            return 0
        closed = self._checkpoint.watermark_ms(progress["batchId"] - 1)
        late = sum(
            each["count"]
            for each in observed["hours"] or ()
            if each["item"] is not None and (each["item"] + _HOUR_S) * 1000 <= closed
        )
        self.late += late
        self.skipped += observed["skipped"] or 0
        return int(late)


def start_live(spark: SparkSession, queue: str, path: str, checkpoint: str, *, environment: str | None = None,
               every: str | None = None, lateness: str = MAX_LATENESS) -> StreamingQuery:  # fmt: skip
    """Write the metrics of a stream to the table in `path`, each hour once.

    Raises SparkFailed if the checkpoint does not belong to the table.
    """
    table = create_table(path, LIVE.json())
    way_out = "Write the metrics to another folder with --out."
    stored = Checkpoint(checkpoint)
    if where_it_begins(table, stored, (queue,), way_out) and stored.query is None:
        raise SparkFailed(
            f"{path} has hours of {queue} from another checkpoint than {checkpoint}, which would write them again. "
            f"{way_out}"
        )
    options = given(queue=queue, environment=environment, mode="tail", startingOffsets="earliest")
    messages = spark.readStream.format("rowpost").options(**options).load()
    hours = live(messages, queue, lateness).withColumn("queue", F.lit(queue)).withColumn("day", day_of(F.col("hour")))
    stream = hours.writeStream.outputMode("append").foreachBatch(
        BatchWriter(path, checkpoint, LIVE, queue, way_out=way_out)
    )
    return start_query(stream.option("checkpointLocation", checkpoint), every)


def _milliseconds(start: Column, end: Column) -> Column:
    return (F.unix_micros(end) - F.unix_micros(start)) / 1000.0


def _not_negative(name: str) -> Column:
    return F.greatest(F.col(name), F.when(F.col(name).isNotNull(), F.lit(0.0)))


def _spread(name: str) -> list[Column]:
    value = _not_negative(name)
    several = F.percentile_approx(value, list(PERCENTILES.values()), PERCENTILE_ACCURACY)
    return [several.getItem(i).alias(f"{name}_{label}") for i, label in enumerate(PERCENTILES)] + [
        F.max(value).alias(f"{name}_max")
    ]


def _sketch(name: str) -> Column:
    value = _not_negative(name)
    return F.when(F.max(value).isNotNull(), F.kll_sketch_agg_double(value, SKETCH_K)).alias(f"{name}_sketch")


def day_of(time: Column) -> Column:
    """Return the day of a time in UTC. Spark's `to_date` uses the session's time zone."""
    return F.date_from_unix_date(F.floor(F.unix_seconds(time) / _DAY_S).cast("int"))


def start_of(unit: Literal["day", "month"], time: Column) -> Column:
    """Return the time at which the day or month of a time begins in UTC.

    Spark's `date_trunc` uses the session's time zone.
    """
    day = day_of(time)
    return F.timestamp_seconds(F.unix_date(F.trunc(day, unit) if unit == "month" else day).cast("long") * _DAY_S)


def in_utc(time: datetime) -> datetime:
    """Convert a time that PySpark has collected: it has no zone, and is in the zone of this process."""
    return time.astimezone(UTC)
