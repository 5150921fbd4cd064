"""Read bodies in Avro with the schema of their type, by the package fastavro.

Spark's own `from_avro` is in a separate jar, which the package pyspark does not contain. A body is the bare value, a value in
Avro's single-object encoding, or a container file with one value.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pyspark.sql import types as T

from rowpost.errors import SettingsError, SparkUnavailable
from rowpost.spark.bodies.parsing import NotReadable
from rowpost.version import install_command

__all__ = ["fields_of", "parse_avro"]

_CONTAINER, _SINGLE = b"Obj\x01", b"\xc3\x01"
_PRIMITIVES: dict[str, T.DataType] = {
    "boolean": T.BooleanType(), "int": T.IntegerType(), "long": T.LongType(), "float": T.FloatType(), "double": T.DoubleType(),
    "bytes": T.BinaryType(), "string": T.StringType(), "fixed": T.BinaryType(), "enum": T.StringType(),
}  # fmt: skip
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
        raise SparkUnavailable(f"Bodies in Avro need the package fastavro, which is not installed here. Run: {install_command('avro')}") from error
    return fastavro


def fields_of(file: str, document: Any) -> T.StructType:
    """Return the fields of an Avro schema. Raises SettingsError with the file and the field, and SparkUnavailable without fastavro."""
    try:
        _library().schema.parse_schema(document)
    except SparkUnavailable:
        raise
    except Exception as error:
        raise SettingsError(f"{file}: is not an Avro schema: {type(error).__name__}: {error}") from error
    if not isinstance(document, Mapping) or document.get("type") != "record":
        raise SettingsError(f"{file}: the schema of a message is a record")
    return _Types(file).record(document, "")


class _Types:
    """Translates the types of one schema. Named types may be used again, but not within themselves."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._named: dict[str, T.DataType | None] = {}  # None while its fields are translated

    def of(self, kind: Any, place: str) -> T.DataType:
        """Return the column type of a type at a place. Raises SettingsError."""
        if isinstance(kind, list):
            return self._union(kind, place)
        if isinstance(kind, str):
            return self._by_name(kind, place)
        match kind["type"]:
            case dict() | list() as inner:
                return self.of(inner, place)
            case "record" | "error":
                found: T.DataType = self.record(kind, place)
            case "array":
                found = T.ArrayType(self.of(kind["items"], f"{place}[]"))
            case "map":
                found = T.MapType(T.StringType(), self.of(kind["values"], f"{place}{{}}"))
            case name:
                found = self._logical(kind) or self._by_name(name, place)
        if "name" in kind:
            self._named[_short(kind["name"])] = found
        return found

    def _logical(self, kind: Mapping[str, Any]) -> T.DataType | None:
        if kind.get("logicalType") == "decimal":
            return T.DecimalType(min(kind["precision"], 38), kind.get("scale", 0))
        return _LOGICAL.get(kind.get("logicalType", ""))

    def record(self, kind: Mapping[str, Any], place: str) -> T.StructType:
        """Return the fields of a record. Raises SettingsError."""
        self._named[_short(kind["name"])] = None
        return T.StructType([self._field(each, f"{place}.{each['name']}".lstrip(".")) for each in kind["fields"]])

    def _field(self, field: Mapping[str, Any], place: str) -> T.StructField:
        comment = {"comment": field["doc"]} if field.get("doc") else {}
        return T.StructField(field["name"], self.of(field["type"], place), True, comment)

    def _union(self, kinds: list[Any], place: str) -> T.DataType:
        some = [each for each in kinds if each != "null"]
        if len(some) != 1:
            raise SettingsError(f"{self._file}: {place}: a union of {len(some)} types has no column type: only a union of null and one type has")
        return self.of(some[0], place)

    def _by_name(self, name: str, place: str) -> T.DataType:
        found = _PRIMITIVES.get(name) or self._named.get(_short(name))
        if found is None:
            why = "contains itself, which no column can" if _short(name) in self._named else "has no column type"
            raise SettingsError(f"{self._file}: {place}: {name} {why}")
        return found


def _short(name: str) -> str:
    """Return a name without its namespace."""
    return name.rpartition(".")[2]


@cache
def _parsed(schema: str) -> Any:
    return _library().schema.parse_schema(json.loads(schema))


def parse_avro(body: bytes, schema: str) -> tuple[Any, list[tuple[tuple[Any, ...], Any]]]:
    """Read a body with the schema of its type, and return the message, and further messages with their paths. Raises NotReadable."""
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
