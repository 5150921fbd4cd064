"""Decode batches of bodies in Spark's Python workers: Arrow arrays of bodies in, an Arrow struct of columns out.

A body never fails a batch: what cannot be read or does not fit is in `_rescued` and `_error`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from rowpost.spark.bodies.avro import parse_avro
from rowpost.spark.bodies.fitting import Rest
from rowpost.spark.bodies.parsing import NotReadable, Parsed, as_json, content, kind_of, parse_json, parse_xml
from rowpost.spark.bodies.schema_files import ERROR, RESCUED, Schema, column_names

__all__ = ["decode_batch", "decoded_type", "message_of", "read_body"]

_REFUSED = (pa.ArrowException, ValueError, TypeError, OverflowError)


def decoded_type(schema: Schema) -> T.StructType:
    """Return the columns of a schema with those for what does not fit."""
    return T.StructType([*schema.columns, T.StructField(RESCUED, T.StringType()), T.StructField(ERROR, T.StringType())])


def message_of(body: bytes, content_type: str | None, message_type: str, avro: str | None) -> Parsed:
    """Parse a body. Returns the message, and what else the body holds. Raises NotReadable."""
    kind = kind_of(content_type, body)
    if kind == "avro":
        if avro is None:
            raise NotReadable("the body is Avro, which needs an .avsc file")
        return parse_avro(body, avro)
    if kind == "json":
        return parse_json(body)
    if kind == "xml":
        return parse_xml(body, message_type)
    raise NotReadable(f"the content type {content_type} is not JSON, XML or Avro")


def read_body(body: bytes | None, content_type: str | None, schema: Schema) -> tuple[dict[str, Any], Rest]:
    """Read a body with a schema. Returns the values of the fields, and the rest."""
    rest = Rest()
    try:
        if body is None:
            raise NotReadable("there is no body")
        message, others = message_of(body, content_type, schema.message_type, schema.avro)
    except NotReadable as error:
        if body is not None:
            rest.values["$"] = content(body)
        rest.reasons.append(str(error))
        rest.problems.add(((), "broken"))
        return {}, rest
    found = schema.read(message, rest)
    for path, value in others:
        rest.unknown(path, value, path[:1])
    return found, rest


def decode_batch(bodies: pa.Array, content_types: pa.Array, schema: Schema, columns: T.StructType) -> pa.Array:
    """Decode the bodies of one batch to a struct of `columns`: those of `decoded_type(schema)`, in any order and with
    more fields.
    """
    names = column_names(schema.fields)
    kind = to_arrow_type(columns, timezone="UTC")
    rows, raw = [], bodies.to_pylist()
    for body, content_type in zip(raw, content_types.to_pylist(), strict=True):
        found, rest = read_body(body, content_type, schema)
        rows.append({names[name]: value for name, value in found.items()} | {RESCUED: rest.rescued, ERROR: rest.error})
    try:
        return pa.array(rows, kind)
    except _REFUSED:  # a value that Arrow refuses must not fail the others
        return pa.array([_safe(row, body, kind) for row, body in zip(rows, raw, strict=True)], kind)


def _safe(row: dict[str, Any], body: bytes | None, kind: pa.DataType) -> dict[str, Any]:
    try:
        pa.array([row], kind)
    except _REFUSED as error:
        return {
            RESCUED: as_json({"$": None if body is None else content(body)}),
            ERROR: f"a value has no column: {type(error).__name__}",
        }
    return row
