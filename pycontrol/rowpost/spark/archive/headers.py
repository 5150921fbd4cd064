"""Headers into typed columns. One bad header never fails a job: what cannot be read is null, and says so.

Spark's own functions raise on a value that they cannot parse, as ANSI SQL wants it, and end the whole job for one
message; here each of them is the kind that gives null.
"""

from __future__ import annotations

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

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["header", "parse_headers", "read_headers", "wire_time"]

_NAMES = {
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
_TIMES = {
    "time_sent": TIME_SENT,
    "processing_started": PROCESSING_STARTED,
    "processing_ended": PROCESSING_ENDED,
    "deliver_at": DELIVER_AT,
    "time_of_failure": TIME_OF_FAILURE,
}
_WIRE_TIME = "yyyy-MM-dd HH:mm:ss:SSSSSS 'Z'"
_YEARS = ("1970-01-01", "9999-01-01")
# the first type's name, with the arguments of a generic one, without its assembly
_FIRST_TYPE = r"^\s*([^;,\[]+(?:\[[^;]*\])?)"
_TABLE = r'^(?:"(?:[^"]|"")+"\.)?"?((?:[^"@]|"")+)'
_MAP = "_headers"


def read_headers(headers: Column) -> Column:
    """The JSON object as a map of texts; null where it is none. Of a name that comes twice, the first one counts."""
    return F.from_json(headers, "map<string,string>", {"mode": "PERMISSIVE"})


def header(headers: Column, name: str) -> Column:
    """One header's value out of such a map: null where it is missing, null or empty."""
    return F.nullif(F.element_at(headers, F.lit(name)), F.lit(""))


def wire_time(text: Column) -> Column:
    """The wire's time; null for any other form, and for the years that Python cannot show in every time zone."""
    time = F.try_to_timestamp(text, F.lit(_WIRE_TIME))
    return F.when(time.between(*(F.lit(year).cast("timestamp") for year in _YEARS)), time)


def parse_headers(df: DataFrame) -> DataFrame:
    """The columns of schemas.PARSED beside those that are there. Works on streams as well.

    `df` needs id, headers and body.
    """
    h = F.col(_MAP)
    found = {name: header(h, wire) for name, wire in _NAMES.items()}
    found |= {name: wire_time(header(h, wire)) for name, wire in _TIMES.items()}
    found["headers_valid"] = (F.col("headers") == "") | h.isNotNull()
    found["message_id"] = F.coalesce(header(h, MESSAGE_ID), F.col("id"))
    found["message_type"] = _trimmed(F.regexp_extract(header(h, ENCLOSED_MESSAGE_TYPES), _FIRST_TYPE, 1))
    failed_table = _trimmed(F.regexp_extract(found["failed_queue"], _TABLE, 1))
    found["endpoint"] = F.coalesce(header(h, PROCESSING_ENDPOINT), failed_table)
    found["body_bytes"] = F.coalesce(F.octet_length("body"), F.lit(0)).cast("long")
    columns = [found[column.name].cast(column.dataType).alias(column.name) for column in PARSED]
    return df.withColumn(_MAP, read_headers(F.col("headers"))).select(*df.columns, *columns)


def _trimmed(text: Column) -> Column:
    return F.nullif(F.trim(text), F.lit(""))
