"""Define the columns of what the data source reads and the jobs write, as Spark's schemas.

All times are UTC. Headers and bodies are kept unchanged in addition to the parsed columns. docs/guides/spark-columns.md
shows them as tables, which tests/docs/test_spark_guide.py compares with this module.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
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

from rowpost.archive import columns
from rowpost.errors import SettingsError

if TYPE_CHECKING:
    from rowpost.archive.table import ArchiveTable

__all__ = [
    "ARCHIVE", "CONVERSATIONS", "EDGES", "ESSENTIAL", "FAILURE_GROUPS", "FLOW_HOURLY", "FLOW_MERGED", "LIVE",
    "MESSAGE", "PARSED", "arrow_schema", "check_schema", "schema_of", "shaped",
]  # fmt: skip

_TEXT, _TIME, _COUNT, _NUMBER = StringType(), TimestampType(), LongType(), DoubleType()


def _column(name: str, kind: DataType, comment: str, nullable: bool = True) -> StructField:
    return StructField(name, kind, nullable, {"comment": comment})


def _struct(schema: pa.Schema) -> StructType:
    fields = []
    for each in schema:
        metadata = {name.decode(): text.decode() for name, text in (each.metadata or {}).items()}
        fields.append(StructField(each.name, from_arrow_type(each.type), each.nullable, metadata))
    return StructType(fields)


#: A message as it is stored in its queue.
MESSAGE = _struct(columns.MESSAGE)
#: The columns that headers.parse_headers adds.
PARSED = _struct(columns.PARSED)
#: Columns that archives of every version have.
ESSENTIAL = columns.ESSENTIAL
#: The result of `archive`. The columns queue and day are folders.
ARCHIVE = _struct(columns.ARCHIVE)

_MEASURED = {
    "processing": "processing_ended - processing_started, milliseconds",
    "critical": "processing_ended - time_sent (delayed messages: - deliver_at), milliseconds",
}
#: The result of `metrics`: throughput and times by hour.
FLOW_HOURLY = StructType(
    [
        _column("hour", _TIME, "start of the hour", False),
        _column("endpoint", _TEXT, "the receiver"),
        _column("message_type", _TEXT, "type of the handled message"),
        _column("messages", _COUNT, "handled messages, from the audit queue", False),
        _column("failed", _COUNT, "messages moved to the error queue", False),
        *(
            _column(f"{name}_ms_{of}", _NUMBER, text if of == "p50" else "")
            for name, text in _MEASURED.items()
            for of in ("p50", "p95", "p99", "max")
        ),
        _column("clamped", _COUNT, "negative times, from clocks that differ, counted as 0", False),
        _column("bytes", _COUNT, "size of all bodies", False),
        _column(
            "processing_ms_sketch",
            BinaryType(),
            "KLL sketch of the processing times, which `merged` merges; null if there are none",
        ),
        _column("critical_ms_sketch", BinaryType(), "KLL sketch of the critical times"),
    ]
)

#: The result of `merged`: hours as days or months.
FLOW_MERGED = StructType(
    [
        _column("period", _TIME, "start of the day or month", False),
        *(column for column in FLOW_HOURLY if column.name != "hour"),
    ]
)

#: The table of `metrics --live`: the hours with their queue and day.
LIVE = StructType([*FLOW_HOURLY, StructField("queue", StringType(), False), StructField("day", DateType(), False)])

#: A result of `conversations`: who sends what to whom.
EDGES = StructType(
    [
        _column("day", DateType(), "day on which the messages were handled", False),
        _column("from_endpoint", _TEXT, "the sender"),
        _column("to_endpoint", _TEXT, "the receiver"),
        _column(
            "from_type", _TEXT, "type of the message whose handler sent this one; null at the start of a conversation"
        ),
        _column("to_type", _TEXT, "type of the sent message"),
        _column("intent", _TEXT, "Send, Publish, Reply, …"),
        _column("messages", _COUNT, "", False),
        _column("latency_ms_p50", _NUMBER, "processing_started - time_sent, milliseconds"),
        _column("latency_ms_p95", _NUMBER, ""),
    ]
)

#: A result of `conversations`: one row for each conversation.
CONVERSATIONS = StructType(
    [
        _column("conversation_id", _TEXT, "", False),
        _column("started", _TIME, "the first time_sent"),
        _column("ended", _TIME, "the last processing_ended or time_of_failure"),
        _column("messages", _COUNT, "handled and failed messages", False),
        _column("endpoints", _COUNT, "number of endpoints that handled messages", False),
        _column("depth", IntegerType(), "levels of the tree of messages; 1 if no message caused another", False),
        _column("failed", _COUNT, "", False),
        _column("root_type", _TEXT, "type of the first message"),
    ]
)

#: The result of `failures`: what fails, where, and the trend.
FAILURE_GROUPS = StructType(
    [
        _column("exception_type", _TEXT, ""),
        _column("endpoint", _TEXT, "endpoint in which it failed"),
        _column("message_type", _TEXT, ""),
        _column("stack_hash", _TEXT, "8 hexadecimal digits: hash of the stack trace without its numbers"),
        _column("sample_message", _TEXT, "text of the latest exception"),
        _column("first_seen", _TIME, ""),
        _column("last_seen", _TIME, ""),
        _column("messages", _COUNT, "", False),
        _column("last_24h", _COUNT, "in the 24 hours before the report", False),
        _column("previous_24h", _COUNT, "in the 24 hours before those", False),
        _column("trend", _NUMBER, "last_24h / previous_24h; null if there were none"),
    ]
)


def shaped(df: DataFrame, schema: StructType) -> DataFrame:
    """Select the columns of a schema, in its order and with its types."""
    return df.select([F.col(column.name).cast(column.dataType).alias(column.name) for column in schema])


def schema_of(table: ArchiveTable) -> StructType:
    """Return the columns of a table. Other programs may have added some."""
    return StructType.fromJson(json.loads(table.schema_json))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Convert columns to those of the Arrow batches that Spark accepts. Times are in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def check_schema(schema: StructType, *, has_queue: bool = False) -> pa.Schema:
    """Convert a requested schema to Arrow.

    Raises SettingsError for a column that a message does not have. With `has_queue`, it has `queue`.
    """
    known = {field.name: field.dataType for field in MESSAGE} | ({"queue": _TEXT} if has_queue else {})
    for field in schema:
        if known.get(field.name) != field.dataType:
            there = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
            raise SettingsError(
                f"A message has no column {field.name} {field.dataType.simpleString()}. Its columns are: {there}."
            )
    return arrow_schema(schema)
