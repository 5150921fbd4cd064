"""Report conversations (who sends what to whom, and how long and deep each one is) and groups of failed messages."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from rowpost.spark.archive.headers import has_failed, read_headers
from rowpost.spark.archive.schemas import CONVERSATIONS, EDGES, FAILURE_GROUPS, shaped
from rowpost.spark.jobs.metrics import PERCENTILE_ACCURACY, in_utc
from rowpost.wire.conversation import ConversationStep, depth
from rowpost.wire.headers import EXCEPTION_STACK_TRACE

__all__ = ["conversations", "edges", "failures", "one_conversation", "write_csv"]

#: Messages of one conversation: an endless conversation must not exhaust a worker's memory.
MAX_MESSAGES = 100_000
_STEP = ("message_id", "related_to", "message_type", "intent", "sending_endpoint", "endpoint", "time_sent")
_GROUP = ("exception_type", "endpoint", "message_type", "stack_hash")
_HASH_LENGTH = 8


def edges(df: DataFrame) -> DataFrame:
    """Compute schemas.EDGES from archived messages that were handled."""
    handled = df.where(F.col("processing_ended").isNotNull())
    # several endpoints handle an event with the same id; only the sender's own handling caused the next message
    causes = handled.where(F.col("endpoint").isNotNull()).select(
        F.col("message_id").alias("cause"), F.col("endpoint").alias("causer"), F.col("message_type").alias("from_type")
    ).dropDuplicates(["cause", "causer"])  # fmt: skip
    joined = handled.join(
        causes, (F.col("related_to") == F.col("cause")) & (F.col("sending_endpoint") == F.col("causer")), "left"
    )
    latency = F.greatest((F.unix_micros("processing_started") - F.unix_micros("time_sent")) / 1000.0, F.lit(0.0))
    latency = F.when(F.col("time_sent").isNotNull() & F.col("processing_started").isNotNull(), latency)
    sender, receiver = F.col("sending_endpoint").alias("from_endpoint"), F.col("endpoint").alias("to_endpoint")
    edge = ("day", sender, receiver, "from_type", F.col("message_type").alias("to_type"), "intent")
    grouped = joined.groupBy(*edge).agg(
        F.count(F.lit(1)).alias("messages"),
        *(F.percentile_approx(latency, p / 100, PERCENTILE_ACCURACY).alias(f"latency_ms_p{p}") for p in (50, 95)),
    )
    return shaped(grouped, EDGES)


def conversations(df: DataFrame) -> DataFrame:
    """Compute schemas.CONVERSATIONS from archived messages. The depth uses at most MAX_MESSAGES messages."""
    measure = F.udf(
        lambda steps: depth([(step.message_id, step.related_to) for step in steps]), IntegerType(), useArrow=False
    )
    root = F.when(F.col("related_to").isNull(), F.col("message_type"))
    step = F.struct("message_id", "related_to")
    grouped = df.where(F.col("conversation_id").isNotNull()).groupBy("conversation_id").agg(
        F.min("time_sent").alias("started"),
        F.max(F.coalesce("processing_ended", "time_of_failure")).alias("ended"),
        F.count(F.lit(1)).alias("messages"),
        F.count_distinct("endpoint").alias("endpoints"),
        F.slice(F.collect_set(step), 1, MAX_MESSAGES).alias("steps"),
        F.count_if(has_failed()).alias("failed"),
        F.min_by(F.coalesce(root, "message_type"), F.struct(root.isNull(), "time_sent")).alias("root_type"),
    )  # fmt: skip
    return shaped(grouped.withColumn("depth", measure("steps")), CONVERSATIONS)


def one_conversation(df: DataFrame, conversation_id: str) -> list[ConversationStep]:
    """Return the steps of one conversation in the order of sending, at most MAX_MESSAGES."""
    failed = has_failed().alias("failed")
    took = ((F.unix_micros("processing_ended") - F.unix_micros("processing_started")) / 1000.0).alias("took_ms")
    found = df.where(F.col("conversation_id") == conversation_id).select(*_STEP, failed, took)
    return [
        ConversationStep(**row.asDict())
        for row in found.orderBy("time_sent", "message_id", "endpoint").limit(MAX_MESSAGES).collect()
    ]


def failures(df: DataFrame, now: datetime) -> DataFrame:
    """Compute schemas.FAILURE_GROUPS, the largest first, from messages with parsed headers.

    A time after `now` counts as `now`.
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
    """Write the groups as CSV with times in ISO 8601, and no formula for a spreadsheet. Returns their number."""
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
