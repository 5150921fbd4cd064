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
from pyspark.sql.types import DataType, StringType, StructField, StructType

from rowpost.archive import columns
from rowpost.errors import SettingsError

if TYPE_CHECKING:
    from rowpost.archive.table import ArchiveTable

__all__ = [
    "ARCHIVE", "CONVERSATIONS", "EDGES", "ESSENTIAL", "FAILURE_GROUPS", "FLOW_HOURLY", "FLOW_MERGED", "LIVE",
    "MESSAGE", "PARSED", "arrow_schema", "check_schema", "schema_of", "shaped",
]  # fmt: skip


def _struct(schema: pa.Schema) -> StructType:
    fields = []
    for each in schema:
        metadata = {name.decode(): text.decode() for name, text in (each.metadata or {}).items()}
        fields.append(StructField(each.name, from_arrow_type(each.type), each.nullable, metadata))
    return StructType(fields)


def _columns(text: str) -> StructType:
    """Read columns, one in each line: the name, the type, which ends with ! if the column is never null, a comment."""
    schema = StructType()
    for line in text.strip().splitlines():
        name, kind, *comment = line.split(maxsplit=2)
        schema.add(name, kind.rstrip("!"), not kind.endswith("!"), {"comment": "".join(comment)})
    return schema


#: A message as it is stored in its queue.
MESSAGE = _struct(columns.MESSAGE)
#: The columns that headers.parse_headers adds.
PARSED = _struct(columns.PARSED)
#: Columns that archives of every version have.
ESSENTIAL = columns.ESSENTIAL
#: The result of `archive`. The columns queue and day are folders.
ARCHIVE = _struct(columns.ARCHIVE)

#: The result of `metrics`: throughput and times by hour.
FLOW_HOURLY = _columns("""
    hour                   timestamp!  start of the hour
    endpoint               string      the receiver
    message_type           string      type of the handled message
    messages               long!       handled messages, from the audit queue
    failed                 long!       messages moved to the error queue
    processing_ms_p50      double      processing_ended - processing_started, milliseconds
    processing_ms_p95      double
    processing_ms_p99      double
    processing_ms_max      double
    critical_ms_p50        double      processing_ended - time_sent (delayed messages: - deliver_at), milliseconds
    critical_ms_p95        double
    critical_ms_p99        double
    critical_ms_max        double
    clamped                long!       negative times, from clocks that differ, counted as 0
    bytes                  long!       size of all bodies
    processing_ms_sketch   binary      KLL sketch of the processing times, which `merged` merges; null if there are none
    critical_ms_sketch     binary      KLL sketch of the critical times
""")

#: The result of `merged`: hours as days or months.
FLOW_MERGED = StructType([*_columns("period timestamp! start of the day or month"), *FLOW_HOURLY.fields[1:]])

#: The table of `metrics --live`: the hours with their queue and day.
LIVE = StructType([*FLOW_HOURLY]).add("queue", "string", False).add("day", "date", False)

#: A result of `conversations`: who sends what to whom.
EDGES = _columns("""
    day              date!   day on which the messages were handled
    from_endpoint    string  the sender
    to_endpoint      string  the receiver
    from_type        string  type of the message whose handler sent this one; null at the start of a conversation
    to_type          string  type of the sent message
    intent           string  Send, Publish, Reply, …
    messages         long!
    latency_ms_p50   double  processing_started - time_sent, milliseconds
    latency_ms_p95   double
""")

#: A result of `conversations`: one row for each conversation.
CONVERSATIONS = _columns("""
    conversation_id  string!
    started          timestamp  the first time_sent
    ended            timestamp  the last processing_ended or time_of_failure
    messages         long!      handled and failed messages
    endpoints        long!      number of endpoints that handled messages
    depth            integer!   levels of the tree of messages; 1 if no message caused another
    failed           long!
    root_type        string     type of the first message
""")

#: The result of `failures`: what fails, where, and the trend.
FAILURE_GROUPS = _columns("""
    exception_type   string
    endpoint         string     endpoint in which it failed
    message_type     string
    stack_hash       string     8 hexadecimal digits: hash of the stack trace without its numbers
    sample_message   string     text of the latest exception
    first_seen       timestamp
    last_seen        timestamp
    messages         long!
    last_24h         long!      in the 24 hours before the report
    previous_24h     long!      in the 24 hours before those
    trend            double     last_24h / previous_24h; null if there were none
""")


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
    known: dict[str, DataType] = {field.name: field.dataType for field in MESSAGE} | (
        {"queue": StringType()} if has_queue else {}
    )
    for field in schema:
        if known.get(field.name) != field.dataType:
            there = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
            raise SettingsError(
                f"A message has no column {field.name} {field.dataType.simpleString()}. Its columns are: {there}."
            )
    return arrow_schema(schema)
