"""The columns of everything that the source reads and the pipelines write: one place, documented, tested.

Names are snake_case on both engines. All times are UTC. Headers and bodies stand verbatim beside what was parsed.
docs/guides/spark.md shows these tables; a test compares it with this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "ARCHIVE",
    "CONVERSATIONS",
    "EDGES",
    "FAILURE_GROUPS",
    "FLOW_HOURLY",
    "MESSAGE",
    "OUTGOING",
    "OUTPUTS",
    "PARSED",
    "shaped",
]

_TEXT, _TIME, _COUNT, _NUMBER = StringType(), TimestampType(), LongType(), DoubleType()


def _column(name: str, kind: DataType, comment: str, nullable: bool = True) -> StructField:
    return StructField(name, kind, nullable, {"comment": comment})


#: a message as it lies in its queue
MESSAGE = StructType([
    StructField("id", StringType()),
    StructField("correlation_id", StringType()),
    StructField("reply_to_address", StringType()),
    StructField("recoverable", BooleanType()),
    StructField("expires", TimestampType()),
    StructField("headers", StringType(), nullable=False),
    StructField("body", BinaryType()),
    StructField("row_version", LongType(), nullable=False),
])

#: what is written to a queue; a row without an id gets one from the sink
OUTGOING = StructType([
    StructField("id", StringType()),
    StructField("headers", StringType(), nullable=False),
    StructField("body", BinaryType()),
])

#: what headers.py makes of the headers
PARSED = StructType([
    _column("headers_valid", BooleanType(), "whether the headers could be read; where not, the columns below are null", False),
    _column("message_id", _TEXT, "NServiceBus.MessageId; the row's id where a sender left it out"),
    _column("conversation_id", _TEXT, "NServiceBus.ConversationId"),
    _column("related_to", _TEXT, "NServiceBus.RelatedTo: the message whose handler sent this one"),
    _column("intent", _TEXT, "NServiceBus.MessageIntent: Send, Publish, Reply, …"),
    _column("message_type", _TEXT, "first of NServiceBus.EnclosedMessageTypes, without its assembly"),
    _column("sending_endpoint", _TEXT, "NServiceBus.OriginatingEndpoint"),
    _column("endpoint", _TEXT, "NServiceBus.ProcessingEndpoint; the failed queue's table where it is missing"),
    _column("sending_machine", _TEXT, "NServiceBus.OriginatingMachine"),
    _column("machine", _TEXT, "NServiceBus.ProcessingMachine"),
    _column("time_sent", _TIME, "NServiceBus.TimeSent"),
    _column("processing_started", _TIME, "NServiceBus.ProcessingStarted"),
    _column("processing_ended", _TIME, "NServiceBus.ProcessingEnded"),
    _column("deliver_at", _TIME, "NServiceBus.DeliverAt, of delayed messages"),
    _column("content_type", _TEXT, "NServiceBus.ContentType"),
    _column("exception_type", _TEXT, "NServiceBus.ExceptionInfo.ExceptionType"),
    _column("exception_message", _TEXT, "NServiceBus.ExceptionInfo.Message"),
    _column("failed_queue", _TEXT, "NServiceBus.FailedQ: the address where it failed"),
    _column("time_of_failure", _TIME, "NServiceBus.TimeOfFailure"),
    _column("body_bytes", _COUNT, "length of the body; 0 for none", False),
])

#: what `archive` keeps; queue, day and batch are folders
ARCHIVE = StructType([
    *MESSAGE,
    *PARSED,
    _column("archived_at", _TIME, "when its batch was read", False),
    _column("queue", _TEXT, "the queue it was read from (folder)", False),
    _column("day", DateType(), "of processing_ended, else time_of_failure, else time_sent, else arrival (folder)", False),
])

#: `metrics`: throughput and times, by the hour
FLOW_HOURLY = StructType([
    _column("hour", _TIME, "the hour's beginning", False),
    _column("endpoint", _TEXT, "who handled"),
    _column("message_type", _TEXT, "what was handled"),
    _column("messages", _COUNT, "handled, as the audit says", False),
    _column("failed", _COUNT, "moved to the error queue", False),
    _column("processing_ms_p50", _NUMBER, "processing_ended - processing_started, milliseconds"),
    _column("processing_ms_p95", _NUMBER, ""),
    _column("processing_ms_p99", _NUMBER, ""),
    _column("processing_ms_max", _NUMBER, ""),
    _column("critical_ms_p50", _NUMBER, "processing_ended - time_sent, for delayed messages - deliver_at; milliseconds"),
    _column("critical_ms_p95", _NUMBER, ""),
    _column("critical_ms_p99", _NUMBER, ""),
    _column("critical_ms_max", _NUMBER, ""),
    _column("clamped", _COUNT, "negative times, by clocks that disagree, that were taken as 0", False),
    _column("bytes", _COUNT, "of all bodies", False),
])

#: `conversations`: who sends what to whom
EDGES = StructType([
    _column("day", DateType(), "of the handling", False),
    _column("from_endpoint", _TEXT, "who sent"),
    _column("to_endpoint", _TEXT, "who handled"),
    _column("from_type", _TEXT, "the message whose handler sent; null at the beginning of a conversation"),
    _column("to_type", _TEXT, "the message sent"),
    _column("intent", _TEXT, "Send, Publish, Reply, …"),
    _column("messages", _COUNT, "", False),
    _column("latency_ms_p50", _NUMBER, "processing_started - time_sent, milliseconds"),
    _column("latency_ms_p95", _NUMBER, ""),
])

#: `conversations`: one row each
CONVERSATIONS = StructType([
    _column("conversation_id", _TEXT, "", False),
    _column("started", _TIME, "the first time_sent"),
    _column("ended", _TIME, "the last processing_ended or time_of_failure"),
    _column("messages", _COUNT, "handlings, failed ones among them", False),
    _column("endpoints", _COUNT, "that took part", False),
    _column("depth", IntegerType(), "of the tree of messages; 1 for a message that caused none", False),
    _column("failed", _COUNT, "", False),
    _column("root_type", _TEXT, "the message that began it"),
])

#: `failures`: what fails, where, with which trend
FAILURE_GROUPS = StructType([
    _column("exception_type", _TEXT, ""),
    _column("endpoint", _TEXT, "where it failed"),
    _column("message_type", _TEXT, ""),
    _column("stack_hash", _TEXT, "8 digits of the stack trace without its numbers"),
    _column("sample_message", _TEXT, "the exception's text of the latest one"),
    _column("first_seen", _TIME, ""),
    _column("last_seen", _TIME, ""),
    _column("messages", _COUNT, "", False),
    _column("last_24h", _COUNT, "in the 24 hours before the report", False),
    _column("previous_24h", _COUNT, "in the 24 hours before those", False),
    _column("trend", _NUMBER, "last_24h / previous_24h; null where there were none"),
])

#: by the name that the guide gives them
OUTPUTS = {
    "archive": ARCHIVE,
    "flow_hourly": FLOW_HOURLY,
    "edges": EDGES,
    "conversations": CONVERSATIONS,
    "failure_groups": FAILURE_GROUPS,
}


def shaped(df: DataFrame, schema: StructType) -> DataFrame:
    """The schema's columns in its order and types, nothing else."""
    return df.select([F.col(column.name).cast(column.dataType).alias(column.name) for column in schema])
