"""Read bodies in Avro with the schema of their type, by the package fastavro.

Spark's own `from_avro` is in a separate jar, which the package pyspark does not contain. A body is the bare value, a
value in Avro's single-object encoding, or a container file with one value.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pyspark.sql import types as T

from rowpost.errors import SettingsError, SparkUnavailable
from rowpost.spark.bodies.parsing import NotReadable, Parsed
from rowpost.version import install_command

__all__ = ["fields_of", "parse_avro"]

_CONTAINER, _SINGLE = b"Obj\x01", b"\xc3\x01"
_PRIMITIVES: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "string": T.StringType(),
    "fixed": T.BinaryType(),
    "enum": T.StringType(),
}
_LOGICAL: dict[str, T.DataType] = {
    "date": T.DateType(), "uuid": T.StringType(), "time-millis": T.StringType(), "time-micros": T.StringType(),
    "timestamp-millis": T.TimestampType(), "timestamp-micros": T.TimestampType(),
    "local-timestamp-millis": T.TimestampNTZType(), "local-timestamp-micros": T.TimestampNTZType(),
}  # fmt: skip


def _library() -> Any:
    try:
        import fastavro
        import fastavro.schema
    except ImportError as error:
        raise SparkUnavailable(
            f"Bodies in Avro need the package fastavro, which is not installed here. Run: {install_command('avro')}"
        ) from error
    return fastavro


def fields_of(file: str, document: Any) -> T.StructType:
    """Return the fields of an Avro schema.

    Raises SettingsError with the file and the field, and SparkUnavailable without fastavro.
    """
    library = _library()
    try:
        # with the types in place of their names, but of those that contain themselves
        whole = library.schema.expand_schema(document)
    except Exception as error:
        raise SettingsError(f"{file}: is not an Avro schema: {type(error).__name__}: {error}") from error
    if not isinstance(whole, Mapping) or whole.get("type") != "record":
        raise SettingsError(f"{file}: the schema of a message is a record")
    return _record(whole, "", file)


def _record(kind: Mapping[str, Any], place: str, file: str) -> T.StructType:
    fields = T.StructType()
    for each in kind["fields"]:
        inner = _column_type(each["type"], f"{place}.{each['name']}".lstrip("."), file)
        fields.add(each["name"], inner, True, {"comment": each["doc"]} if each.get("doc") else {})
    return fields


def _column_type(kind: Any, place: str, file: str) -> T.DataType:
    """Return the column type of a type at a place. Raises SettingsError."""
    if isinstance(kind, list):
        some = [each for each in kind if each != "null"]
        if len(some) != 1:
            raise SettingsError(
                f"{file}: {place}: a union of {len(some)} types has no column type: only a union of null and one type "
                "has"
            )
        kind = some[0]
    if isinstance(kind, str):
        if kind not in _PRIMITIVES:
            raise SettingsError(
                f"{file}: {place}: {kind} "
                f"{'has no column type' if kind == 'null' else 'contains itself, which no column can'}"
            )
        return _PRIMITIVES[kind]
    match kind["type"]:
        case "record" | "error":
            return _record(kind, place, file)
        case "array":
            return T.ArrayType(_column_type(kind["items"], f"{place}[]", file))
        case "map":
            return T.MapType(T.StringType(), _column_type(kind["values"], f"{place}{{}}", file))
    if kind.get("logicalType") == "decimal":
        return T.DecimalType(min(kind["precision"], 38), kind.get("scale", 0))
    return _LOGICAL.get(kind.get("logicalType", "")) or _column_type(kind["type"], place, file)


@cache
def _parsed(schema: str) -> Any:
    return _library().schema.parse_schema(json.loads(schema))


def parse_avro(body: bytes, schema: str) -> Parsed:
    """Read a body with the schema of its type. Raises NotReadable."""
    library, parsed = _library(), _parsed(schema)
    stream = io.BytesIO(body)
    try:
        if body.startswith(_CONTAINER):
            first, *others = list(library.reader(stream, parsed))
            return first, [((number,), each) for number, each in enumerate(others, 1)]
        if body.startswith(_SINGLE):
            _check_fingerprint(library, body, parsed)
            stream.seek(10)
        found = library.schemaless_reader(stream, parsed)
    except NotReadable:
        raise
    except Exception as error:
        raise NotReadable(f"the body is not Avro of this schema: {type(error).__name__}") from error
    left = len(body) - stream.tell()
    if left:
        raise NotReadable(f"the body is not Avro of this schema: {left} bytes are left over")
    return found, []


def _check_fingerprint(library: Any, body: bytes, parsed: Any) -> None:
    own = library.schema.fingerprint(library.schema.to_parsing_canonical_form(parsed), "CRC-64-AVRO")
    if bytes.fromhex(own) != body[2:10] and bytes.fromhex(own)[::-1] != body[2:10]:
        raise NotReadable("the body is Avro of another schema: its fingerprint differs")
