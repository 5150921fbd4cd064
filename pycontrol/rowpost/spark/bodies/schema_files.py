"""Read and write the schema files of message types: a folder with one file for each type, kept in version control.

    OrderId BIGINT NOT NULL COMMENT 'number in the shop',
    Lines ARRAY<STRUCT<Sku: STRING, Count: INT>>

`Shop.PlaceOrder.ddl` has the columns in Spark's own DDL, which needs no library, has one line for each column, and
takes comments and NOT NULL. `Shop.PlaceOrder.avsc` has the Avro schema with which bodies were written: Avro cannot be
read without it, and the columns follow from it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from pyspark.errors import ParseException
from pyspark.sql import types as T

from rowpost.archive.parts import STATISTICS
from rowpost.errors import SettingsError
from rowpost.settings.yaml_node import did_you_mean
from rowpost.spark.archive.schemas import ARCHIVE
from rowpost.spark.bodies.fitting import ELEMENT, ENTRY, Rest, reader
from rowpost.spark.bodies.fitting import Path as Place

__all__ = [
    "ERROR",
    "RESCUED",
    "Schema",
    "as_ddl",
    "column_names",
    "file_name",
    "folder_name",
    "named",
    "places",
    "read_schemas",
    "type_of",
]

RESCUED, ERROR = "_rescued", "_error"
_TAKEN = {name.lower() for name in (*ARCHIVE.fieldNames(), *STATISTICS, RESCUED, ERROR)}
_NOT_IN_A_NAME = re.compile(r"[ ,;{}()\n\t=.`]")
_SCALARS = (
    T.StringType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType,
    T.DecimalType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BinaryType,
)  # fmt: skip
_TYPES = (*(kind().simpleString().partition("(")[0].upper() for kind in _SCALARS), "ARRAY", "MAP", "STRUCT")
_LINE = re.compile(r"line (\d+), pos (\d+)")


@dataclass(frozen=True)
class Schema:
    """The fields of the bodies of a message type, by their names in them, from a file that messages name.

    `avro` is the Avro schema as JSON.
    """

    message_type: str
    fields: T.StructType
    file: str = ""
    avro: str | None = None

    @property
    def columns(self) -> T.StructType:
        """The columns of decoded messages. All can be null, because a broken body has none of them."""
        names = column_names(self.fields)
        return T.StructType(
            [T.StructField(names[each.name], _nullable(each.dataType), True, each.metadata) for each in self.fields]
        )

    @cached_property
    def read(self) -> Callable[[Any, Rest], dict[str, Any]]:
        """The function that takes the values of the fields from a message: see `fitting.reader`."""
        return reader(self.fields)


def column_names(fields: T.StructType) -> dict[str, str]:
    """Return the column of each field: its name, with `body_` before it if an archive has a column of this name."""
    return {
        name: _NOT_IN_A_NAME.sub("_", f"body_{name}" if name.lower() in _TAKEN else name)
        for name in fields.fieldNames()
    }


def file_name(message_type: str) -> str:
    """Return the name of a type's file, without its ending. Characters that file systems refuse are percent-encoded.

    >>> file_name("Shop.Outer+Inner"), file_name("Shop.A[[B, C]]")
    ('Shop.Outer+Inner', 'Shop.A%5B%5BB%2C%20C%5D%5D')
    """
    return quote(message_type, safe="+")


def folder_name(message_type: str) -> str:
    """Return the name of the folder of a type's table.

    It has no %, which Delta's libraries decode in the names of folders.

    >>> folder_name("Shop.Outer+Inner"), folder_name("Shop.A[[B]]~")
    ('Shop.Outer+Inner', 'Shop.A~5B~5BB~5D~5D~7E')
    """
    return file_name(message_type).replace("~", "%7E").replace("%", "~")


def type_of(name: str) -> str:
    """Return the type whose file has this name."""
    return unquote(name)


def read_schemas(folder: Path) -> dict[str, Schema]:
    """Read the schemas of a folder, by message type. A Spark session must be active.

    Raises SettingsError, with the file and the place.
    """
    propose = f"To propose schemas, run: rowpost spark schemas DIR --propose {folder}"
    if not folder.is_dir():
        raise SettingsError(f"{folder}: there is no such folder of schemas. {propose}")
    found: dict[str, Schema] = {}
    for path in sorted([*folder.glob("*.ddl"), *folder.glob("*.avsc")]):
        name = type_of(path.stem)
        if name in found:
            raise SettingsError(
                f"{path}: {found[name].file} has a schema of {name} too: keep the one in whose format the bodies are "
                "written"
            )
        found[name] = _read_avro(path, name) if path.suffix == ".avsc" else Schema(name, _read_ddl(path), str(path))
    if not found:
        raise SettingsError(f"{folder}: has no schema, such as Shop.PlaceOrder.ddl. {propose}")
    return found


def _read_ddl(path: Path) -> T.StructType:
    text = _text(path)
    if not re.sub(r"--[^\n]*", "", text).strip():  # a message without fields
        return T.StructType()
    try:
        fields = T.StructType.fromDDL(text)
    except ParseException as error:
        raise SettingsError(_refusal(path, str(error))) from error
    if not isinstance(fields, T.StructType):
        raise SettingsError(f"{path}: has a type, not columns: write a name before it, such as OrderId BIGINT")
    check_fields(str(path), fields)
    return fields


def _refusal(path: Path, said: str) -> str:
    place, unknown = _LINE.search(said), re.search(r'Unsupported data type "(\w+)', said)
    where = f"{path}: line {place[1]}, column {int(place[2]) + 1}" if place else str(path)
    if unknown:
        hint = did_you_mean(unknown[1].upper(), _TYPES) or f": known are {', '.join(_TYPES)}"
        return f"{where}: unknown type {unknown[1]}{hint}"
    reason = re.search(r"\[[A-Z_.]+\] ([^\n]*?)(?: SQLSTATE|\n|$)", said)
    return (
        f"{where}: {reason[1] if reason else 'is not DDL of Spark'} Write columns such as OrderId BIGINT, with commas "
        "between them."
    )


def _read_avro(path: Path, name: str) -> Schema:
    from rowpost.spark.bodies.avro import fields_of

    text = _text(path)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingsError(f"{path}: line {error.lineno}, column {error.colno}: is not JSON: {error.msg}") from error
    fields = fields_of(str(path), document)
    check_fields(str(path), fields)
    return Schema(name, fields, str(path), json.dumps(document))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error


def check_fields(file: str, fields: T.StructType) -> None:
    """Raise SettingsError for types that bodies or tables cannot have, and for names that Spark takes for the same."""
    for place, kind in places(fields):
        where = f"{file}: {named(place)}: " if place else f"{file}: "
        if isinstance(kind, T.StructType):
            _check_names(where, kind.fieldNames() if place else list(column_names(kind).values()))
        elif isinstance(kind, T.MapType) and not isinstance(kind.keyType, T.StringType):
            raise SettingsError(
                f"{where}the keys of a MAP are STRING in every body, not {kind.keyType.simpleString().upper()}"
            )
        elif type(kind) not in (*_SCALARS, T.ArrayType, T.MapType):
            raise SettingsError(
                f"{where}a body has no {kind.simpleString().upper()}: use one of {', '.join(_TYPES)}. A duration is a "
                "STRING."
            )


def _check_names(where: str, names: list[str]) -> None:
    twice = [name for name, number in Counter(name.lower() for name in names).items() if number > 1]
    if twice:
        same = [name for name in names if name.lower() == twice[0]]
        raise SettingsError(
            f"{where}{' and '.join(same)} are the same column for Spark, which ignores case. Keep one; the other is in "
            f"{RESCUED}."
        )


def places(kind: T.DataType, place: Place = ()) -> Iterator[tuple[Place, T.DataType]]:
    """Yield the places in a type, each with its type. A type comes before what is in it."""
    yield place, kind
    if isinstance(kind, T.StructType):
        for each in kind:
            yield from places(each.dataType, (*place, each.name))
    elif isinstance(kind, T.ArrayType):
        yield from places(kind.elementType, (*place, ELEMENT))
    elif isinstance(kind, T.MapType):
        yield from places(kind.valueType, (*place, ENTRY))


def named(place: Place) -> str:
    """Return a place in words: Lines[].Sku, Tags{}."""
    marks: dict[str | int, str] = {ELEMENT: "[]", ENTRY: "{}"}
    return "".join(marks.get(part, f".{part}") for part in place).lstrip(".")


def _nullable(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(each.name, _nullable(each.dataType), True, each.metadata) for each in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), _nullable(kind.valueType), True)
    return T.StringType() if isinstance(kind, T.StringType) else kind


def as_ddl(fields: T.StructType) -> str:
    """Write fields as the text of a schema file, one line for each.

    `read_schemas` reads the same fields from it. A Spark session must be active.
    """
    return ",\n".join(T.StructType([each]).toDDL() for each in fields) + "\n" if fields else "-- no fields\n"
