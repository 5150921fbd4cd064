"""Parse message headers into typed columns of a DataFrame. The main function is `parse_headers`.

The functions give to Spark what arrow_headers.py parses. The result is the same in every session, whatever its time
zone is and whether it is in ANSI mode.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, MapType, StringType, StructField, StructType

from rowpost.archive.arrow_headers import headers_of, parsed
from rowpost.errors import InvalidMessage
from rowpost.spark.archive.schemas import PARSED

__all__ = ["has_failed", "parse_headers", "read_headers", "readable_headers"]

_PARSED = "_parsed"
_MAP = MapType(StringType(), StringType())
_READ = StructType([*(column for column in PARSED if column.name != "body_bytes"), StructField("day", DateType())])


def parse_headers(df: DataFrame, *, day: bool = False) -> DataFrame:
    """Add the columns of schemas.PARSED to messages. With `day`, they have `archived_at`, and get their day too.

    Works on streams too.
    """
    archived_at = F.col("archived_at") if day else F.lit(None).cast("timestamp")
    read = F.arrow_udf(_parsed, _READ)  # type: ignore[call-overload]  # its annotation forgets StructType
    whole = df.withColumn(_PARSED, read(F.col("id"), F.col("headers"), archived_at))
    found = {name: F.col(_PARSED).getField(name) for name in _READ.fieldNames()}
    found["body_bytes"] = F.coalesce(F.octet_length("body"), F.lit(0)).cast("long")
    names = [*PARSED.fieldNames(), *(["day"] if day else [])]
    return whole.select(*df.columns, *(found[name].alias(name) for name in names))


def read_headers(headers: Column) -> Column:
    """Parse a JSON object to a map of strings; null if it is not a JSON object."""
    return F.arrow_udf(_maps, _MAP)(headers)  # type: ignore[call-overload, no-any-return]  # its annotation forgets MapType


def readable_headers(headers: Column, id: Column) -> Column:
    """Parse as `read_headers` does.

    No headers at all are null; a task that reads others which are not a JSON object raises InvalidMessage.
    """
    return F.arrow_udf(_readable, _MAP)(headers, id)  # type: ignore[call-overload, no-any-return]  # its annotation forgets MapType


def has_failed() -> Column:
    """Return the condition that a message failed, on the columns of schemas.PARSED."""
    return F.col("processing_ended").isNull() & F.col("time_of_failure").isNotNull()


def _parsed(ids: pa.Array, headers: pa.Array, archived_at: pa.Array) -> pa.Array:
    found = parsed(ids, headers, archived_at)
    return pa.StructArray.from_arrays([found[name] for name in _READ.fieldNames()], _READ.fieldNames())


def _maps(headers: pa.Array) -> pa.Array:
    read = (headers_of(text) for text in headers.to_pylist())
    return pa.array([None if each is None else list(each.items()) for each in read], pa.map_(pa.string(), pa.string()))


def _readable(headers: pa.Array, ids: pa.Array) -> pa.Array:
    found = _maps(headers)
    for read, text, id in zip(found, headers.to_pylist(), ids.to_pylist(), strict=True):
        if text and not read.is_valid:
            raise InvalidMessage(
                f"The headers of the message {id} are not a JSON object, so that no endpoint can read it. Add to the "
                "condition: headers_valid"
            )
    return found
