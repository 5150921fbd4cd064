"""Parse message headers into typed columns with Spark's functions. The main function is `parse_headers`.

The archiver parses them in Python instead (arrow_headers.py), with the names and patterns of this module.

An unreadable header never fails a job: its column is null, and `headers_valid` tells whether the headers are JSON. In
ANSI mode Spark's usual functions raise an error for a value that they cannot parse, and one message would end the whole
job. This module therefore uses only the variants that return null.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from rowpost.spark.archive.schemas import PARSED
from rowpost.wire.headers import (
    CONTENT_TYPE,
    CONVERSATION_ID,
    DELIVER_AT,
    ENCLOSED_MESSAGE_TYPES,
    EXCEPTION_MESSAGE,
    EXCEPTION_TYPE,
    FAILED_QUEUE,
    MESSAGE_ID,
    MESSAGE_INTENT,
    ORIGINATING_ENDPOINT,
    ORIGINATING_MACHINE,
    PROCESSING_ENDED,
    PROCESSING_ENDPOINT,
    PROCESSING_MACHINE,
    PROCESSING_STARTED,
    RELATED_TO,
    TIME_OF_FAILURE,
    TIME_SENT,
)
from rowpost.wire.message_types import FULL_NAME

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "DAY_TIMES",
    "EARLIEST_DAY",
    "FAILED_TABLE",
    "FIRST_TYPE",
    "LATEST_YEAR",
    "NAMES",
    "TIMES",
    "has_failed",
    "header",
    "message_day",
    "parse_headers",
    "read_headers",
    "wire_time",
]

#: Columns that have a header's text, and columns that have its time.
NAMES = {
    "conversation_id": CONVERSATION_ID,
    "related_to": RELATED_TO,
    "intent": MESSAGE_INTENT,
    "sending_endpoint": ORIGINATING_ENDPOINT,
    "sending_machine": ORIGINATING_MACHINE,
    "machine": PROCESSING_MACHINE,
    "content_type": CONTENT_TYPE,
    "exception_type": EXCEPTION_TYPE,
    "exception_message": EXCEPTION_MESSAGE,
    "failed_queue": FAILED_QUEUE,
}
TIMES = {
    "time_sent": TIME_SENT,
    "processing_started": PROCESSING_STARTED,
    "processing_ended": PROCESSING_ENDED,
    "deliver_at": DELIVER_AT,
    "time_of_failure": TIME_OF_FAILURE,
}
_WIRE_TIME = "yyyy-MM-dd HH:mm:ss:SSSSSS 'Z'"
#: Times before 1970 or after this one are not read.
LATEST_YEAR = datetime(9999, 1, 1, tzinfo=UTC)
#: The times that determine the day of a message, the first one that it has.
DAY_TIMES = ("processing_ended", "time_of_failure", "time_sent")
#: Messages of earlier times are stored by the time at which they were archived.
EARLIEST_DAY = datetime(2000, 1, 1, tzinfo=UTC)
#: The name of the first type, with its generic arguments and without its assembly.
FIRST_TYPE = "^" + FULL_NAME
#: The table in the address of a failed queue.
FAILED_TABLE = r'^(?:"(?:[^"]|"")+"\.)?"?((?:[^"@]|"")+)'
_MAP = "_headers"


def read_headers(headers: Column) -> Column:
    """Parse a JSON object to a map of strings; null if it is not a JSON object. The last of duplicate names is used, as handlers do."""
    found = F.from_json(headers, "map<string,string>", {"mode": "PERMISSIVE"})
    names = F.map_keys(found)
    last = F.filter(F.map_entries(found), lambda entry, place: F.array_position(F.slice(names, place + 2, F.size(names)), entry.key) == 0)
    return F.when(F.size(F.array_distinct(names)) < F.size(names), F.map_from_entries(last)).otherwise(found)


def header(headers: Column, name: str) -> Column:
    """Return a header's value from the result of `read_headers`; null if it is missing, null or empty."""
    return F.nullif(F.element_at(headers, F.lit(name)), F.lit(""))


def wire_time(text: Column) -> Column:
    """Parse a time in the wire format; null for other formats, and for years that Python cannot represent in every time zone."""
    time = F.try_to_timestamp(text, F.lit(_WIRE_TIME))
    return F.when(time.between(F.lit("1970-01-01").cast("timestamp"), F.lit(LATEST_YEAR)), time)


def parse_headers(df: DataFrame) -> DataFrame:
    """Add the columns of schemas.PARSED to a DataFrame with id, headers and body. Works on streams too."""
    h = F.col(_MAP)
    found = {name: header(h, wire) for name, wire in NAMES.items()}
    found |= {name: wire_time(header(h, wire)) for name, wire in TIMES.items()}
    found["headers_valid"] = (F.col("headers") == "") | h.isNotNull()
    found["message_id"] = F.coalesce(header(h, MESSAGE_ID), F.col("id"))
    found["message_type"] = _trimmed(F.regexp_extract(header(h, ENCLOSED_MESSAGE_TYPES), FIRST_TYPE, 1))
    failed_table = _trimmed(F.regexp_extract(found["failed_queue"], FAILED_TABLE, 1))
    found["endpoint"] = F.coalesce(header(h, PROCESSING_ENDPOINT), failed_table)
    found["body_bytes"] = F.coalesce(F.octet_length("body"), F.lit(0)).cast("long")
    columns = [found[column.name].cast(column.dataType).alias(column.name) for column in PARSED]
    return df.withColumn(_MAP, read_headers(F.col("headers"))).select(*df.columns, *columns)


def message_day() -> Column:
    """Return the day of the first time that can be right: a wrong one must not create a folder for a day in the year 9999."""
    latest = F.col("archived_at") + F.expr("INTERVAL 1 DAY")
    times = [F.when((F.col(name) <= latest) & (F.col(name) >= F.lit(EARLIEST_DAY)), F.col(name)) for name in DAY_TIMES]
    return F.to_date(F.coalesce(*times, F.col("archived_at")))


def has_failed() -> Column:
    """Return the condition that a message failed, on the columns of schemas.PARSED."""
    return F.col("processing_ended").isNull() & F.col("time_of_failure").isNotNull()


def _trimmed(text: Column) -> Column:
    return F.nullif(F.trim(text), F.lit(""))
