"""Summarise conversations: who sends what to whom, and how long and deep each conversation is."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from rowpost.spark.archive.headers import has_failed
from rowpost.spark.archive.schemas import CONVERSATIONS, EDGES, shaped
from rowpost.spark.jobs.metrics import PERCENTILE_ACCURACY
from rowpost.wire.conversation import ConversationStep, depth

__all__ = ["conversations", "edges", "one_conversation"]

#: Messages of one conversation: an endless conversation must not exhaust a worker's memory.
MAX_MESSAGES = 100_000
_STEP = ("message_id", "related_to", "message_type", "intent", "sending_endpoint", "endpoint", "time_sent")


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
