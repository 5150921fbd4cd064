"""Turn the bodies of messages into typed columns, by message type.

    schemas = read_schemas(Path("schemas"))
    decode(read_archive(spark, "archive/"), schemas)["Shop.PlaceOrder"].select("message_id", "OrderId", "_rescued")

`decode` gives a DataFrame for each type, and `undecoded` counts the types without a schema. decoded_tables.py writes tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from rowpost.spark.archive.headers import parse_headers
from rowpost.spark.bodies.decoding import decode_batch, decoded_type
from rowpost.spark.bodies.schema_files import Schema

__all__ = ["decode", "decode_type", "undecoded"]

_DECODED = "_decoded"


def decode(df: DataFrame, schemas: Mapping[str, Schema]) -> dict[str, DataFrame]:
    """Return the messages of each type that has a schema, as `decode_type` does. Works on streams too."""
    return {name: decode_type(df, schema) for name, schema in schemas.items()}


def decode_type(df: DataFrame, schema: Schema, columns: StructType | None = None) -> DataFrame:
    """Return the messages of one type with the columns of their bodies, `_rescued` and `_error`.

    `df` has archived messages (schemas.ARCHIVE, or some of its columns with message_type, content_type and body), or the
    messages of a queue (schemas.MESSAGE). A message of several types is of the first one. A field whose name is a column of
    an archive gets the prefix `body_`. `columns` are the columns of a table for these messages, if it has more than the schema.
    """
    kind = columns or decoded_type(schema)

    def decoded(bodies: pa.Array, content_types: pa.Array) -> pa.Array:
        return decode_batch(bodies, content_types, schema, kind)

    function = F.arrow_udf(decoded, kind)  # type: ignore[call-overload]  # its annotation forgets StructType
    named = _with_types(df).where(F.col("message_type") == schema.message_type)
    whole = named.withColumn(_DECODED, function("body", "content_type"))
    return whole.select(*named.columns, *(F.col(_DECODED).getField(name).alias(name) for name in kind.fieldNames()))


def undecoded(df: DataFrame, schemas: Collection[str]) -> DataFrame:
    """Count the messages of each type without a schema: message_type (null if the header is missing) and messages."""
    known = F.coalesce(F.col("message_type").isin(*schemas), F.lit(False))
    return _with_types(df).where(~known).groupBy("message_type").agg(F.count(F.lit(1)).alias("messages"))


def _with_types(df: DataFrame) -> DataFrame:
    return df if "message_type" in df.columns else parse_headers(df)
