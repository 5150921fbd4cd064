"""Measure which share of the messages of each endpoint and type is within its target, and how much of the error budget is used.

A message is judged once for each endpoint, however often it was tried, archived or failed. It is outside of its target if it
took longer, and if it failed. If it failed and was handled later, it is outside.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from rowpost.spark.archive.headers import has_failed
from rowpost.spark.archive.policy import pattern
from rowpost.spark.archive.targets import Target, Targets
from rowpost.spark.jobs.archive import read_archive
from rowpost.spark.jobs.metrics import with_times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["left_out", "measure", "run"]

_COLUMNS = {"critical_time": "critical_ms", "processing_time": "processing_ms"}
_DAY = timedelta(days=1)


def measure(df: DataFrame, targets: Targets, now: datetime) -> DataFrame:
    """Measure archived messages against targets, in the window that ends `now` (with a time zone).

    Returns a row for each target, endpoint and message type: target, endpoint, message_type, messages, inside, outside, failed,
    share (null if there is none), wanted, budget_used (the used part of the error budget: 1 is all of it; null if the target
    allows none), messages_left (messages that may still be outside; negative if there were more), breach.
    """
    recent = _in_window(with_times(df), targets.window, now)
    return reduce(lambda one, other: one.unionByName(other), [_measure(recent, target) for target in targets.targets])


def _in_window(timed: DataFrame, window: timedelta, now: datetime) -> DataFrame:
    first = now - window
    days = F.col("day") >= F.lit((first - _DAY).date())  # leaves out files; a message is stored under its day
    return timed.where(days & F.col("at").between(F.lit(first), F.lit(now)))


def _measure(timed: DataFrame, target: Target) -> DataFrame:
    chosen = timed.where(F.col("endpoint").rlike(pattern(target.endpoint)) & F.col("message_type").rlike(pattern(target.message_type)))
    time = F.when(F.col("processing_ended").isNotNull(), F.col(_COLUMNS[target.kind]))
    limit_ms = target.within.total_seconds() * 1000
    each = chosen.groupBy("endpoint", "message_type", "message_id").agg(
        F.max(has_failed()).alias("has_failed"), F.min(time <= limit_ms).alias("is_fast")
    )
    inside = ~F.col("has_failed") & F.col("is_fast")
    counted = each.where(F.col("has_failed") | F.col("is_fast").isNotNull()).groupBy("endpoint", "message_type").agg(
        F.count(F.lit(1)).alias("messages"), F.count_if(inside).alias("inside"), F.count_if("has_failed").alias("failed")
    )  # fmt: skip
    outside, allowed = F.col("messages") - F.col("inside"), F.col("messages") * F.lit(1 - target.share)
    return counted.select(
        F.lit(target.name).alias("target"), "endpoint", "message_type", "messages", "inside", outside.alias("outside"), "failed",
        (F.col("inside") / F.col("messages")).alias("share"), F.lit(target.share).alias("wanted"),
        F.when(allowed > 0, outside / F.nullif(allowed, F.lit(0.0))).alias("budget_used"),
        # a share such as 99.9 % has no exact binary form: 1000 messages allow one, not 0.999
        (F.floor(allowed + F.lit(1e-6)) - outside).alias("messages_left"),
        (outside > allowed + F.lit(1e-6)).alias("breach"),
    )  # fmt: skip


def left_out(df: DataFrame, targets: Targets, now: datetime) -> dict[str, int]:
    """Count the messages that are not measured.

    too_old: handled or failed before the window. late: after `now`, by a clock that is wrong. skipped: without a usable time.
    clamped: measured, but with a negative time, which is within every target.
    """
    timed = with_times(df)
    negative = F.coalesce((F.col("critical_ms") < 0) | (F.col("processing_ms") < 0), F.lit(False))
    (row,) = timed.agg(
        F.count_if(F.col("at") < F.lit(now - targets.window)).alias("too_old"), F.count_if(F.col("at") > F.lit(now)).alias("late"),
        F.count_if(F.col("at").isNull()).alias("skipped"), F.count_if(negative).alias("clamped"),
    ).collect()  # fmt: skip
    return row.asDict()


def run(spark: SparkSession, path: str, targets: Targets, now: datetime) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Measure an archive. Returns the rows, ordered by target, endpoint and type, and what was left out.

    A target without any message has a row without endpoint and type. Raises ArchiveNotFound.
    """
    df = read_archive(spark, path)
    found = [row.asDict() for row in measure(df, targets, now).collect()]
    for target in targets.targets:
        if not any(row["target"] == target.name for row in found):
            found.append({"target": target.name, "endpoint": None, "message_type": None, "messages": 0, "inside": 0, "outside": 0, "failed": 0,
                          "share": None, "wanted": target.share, "budget_used": None, "messages_left": 0, "breach": False})  # fmt: skip
    order = {target.name: number for number, target in enumerate(targets.targets)}
    return sorted(found, key=lambda row: (order[row["target"]], row["endpoint"] or "", row["message_type"] or "")), left_out(df, targets, now)
