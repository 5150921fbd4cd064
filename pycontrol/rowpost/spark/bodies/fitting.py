"""Fit the plain values of a body to the types of a schema, and collect what does not fit.

`reader(schema)` compiles a schema once to a function that returns the values of the columns, and adds to `Rest` what
has no column, what is of another type, and what is missing. It never raises an error for a value. JSON has types, so a
text is not taken as a number, nor a number as a text. XML has none: its texts are read by the types of the columns.

Spark's `from_json` is not used, because it loses values without an error, and Spark has no column for what is left over
(`rescuedDataColumn` is an option of Databricks). It leaves out fields without a column and what follows the first
value, takes the number 1.10 for the text 1.1, rounds 1.234 to a DECIMAL(4,2), and takes 0 for a time in 1970. It reads
no list of messages and no byte order mark. `test_sparks_own_readers_lose_what_decode_keeps` compares them.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any
from uuid import UUID

from pyspark.sql import types as T

from rowpost.spark.bodies.parsing import Nodes, Text, as_json, plain

__all__ = ["DATE", "ELEMENT", "ENTRY", "TIME", "Path", "Rest", "reader", "spelled"]

Path = tuple[str | int, ...]
#: In a place of a schema: the elements of an array, and the values of a map.
ELEMENT, ENTRY = 0, -1
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?")
_INFINITE = {"INF": "inf", "-INF": "-inf", "NaN": "nan"}
_FLAGS = {"true": True, "false": False, "1": True, "0": False}
_BITS: dict[type, int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_LONG_DIGITS = 19
_FLOAT_MAX = 3.4028235677973366e38
_WIDE = Context(prec=80)


@dataclass
class Rest:
    """What of a body is in no column: values by path, and reasons; for reports, places with a value or a problem."""

    values: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    problems: set[tuple[Path, str]] = field(default_factory=set)
    seen: set[Path] = field(default_factory=set)

    def unknown(self, path: Path, value: Any, place: Path) -> None:
        """Keep a value that has no column. A null says nothing, and is not kept."""
        if value is None:
            return
        self.values[self._free(path)] = plain(value)
        if value not in ([], {}) and not (isinstance(value, Text) and not value.strip()):
            self.problems.add((place, "new"))

    def misfit(self, path: Path, value: Any, wanted: str, place: Path) -> None:
        """Keep a value that is not of its column's type."""
        self.values[self._free(path)] = plain(value)
        self.reasons.append(f"{spelled(path)} is not {wanted}")
        self.problems.add((place, "changed"))

    def missing(self, path: Path, place: Path) -> None:
        """Note that a column that is NOT NULL has no value."""
        self.reasons.append(f"{spelled(path)} is missing")
        self.problems.add((place, "missing"))

    @property
    def rescued(self) -> str | None:
        return as_json(self.values) if self.values else None

    @property
    def error(self) -> str | None:
        return "; ".join(self.reasons) or None

    def _free(self, path: Path) -> str:
        name, number = spelled(path), 1
        while name in self.values:  # XML has a second element of this name
            number += 1
            name = f"{spelled(path)}[{number}]"
        return name


def spelled(path: Path) -> str:
    """Return a path in JSON path notation.

    >>> spelled(("Lines", 0, "a b"))
    "$.Lines[0]['a b']"
    """
    return "$" + "".join(
        f"[{each}]" if isinstance(each, int) else f".{each}" if _PLAIN_NAME.fullmatch(each) else f"[{each!r}]"
        for each in path
    )


Reader = Callable[[Any, Path, Rest], Any]
#: How the values of each Python type become those of a column. A value of another type does not fit.
Converters = Mapping[type, Callable[[Any], Any]]


def reader(schema: T.StructType) -> Callable[[Any, Rest], dict[str, Any]]:
    """Compile a schema.

    The result takes a message and returns the values of the columns, by the names of the fields.
    """
    read = _compile(schema, ())
    return lambda value, rest: read(value, (), rest) or {}


def _compile(kind: T.DataType, place: Path) -> Reader:
    if isinstance(kind, T.StructType):
        readers = {column.name: _compile(column.dataType, (*place, column.name)) for column in kind}
        required = [column.name for column in kind if not column.nullable]
        return partial(_read, place, "an object", partial(_struct, place, readers, required))
    if isinstance(kind, T.ArrayType):
        return partial(_read, place, "an array", partial(_array, _compile(kind.elementType, (*place, ELEMENT))))
    if isinstance(kind, T.MapType):
        return partial(_read, place, "a map", partial(_map, place, _compile(kind.valueType, (*place, ENTRY))))
    converters = _converters(kind)
    name = kind.simpleString().upper()
    return partial(_read, place, name, lambda value, path, rest: converters[type(value)](value))


def _read(place: Path, wanted: str, read: Reader, value: Any, path: Path, rest: Rest) -> Any:
    try:
        found = read(value, path, rest)
    except (ValueError, KeyError, TypeError, OverflowError, InvalidOperation):
        rest.misfit(path, value, wanted, place)
        return None
    rest.seen.add(place)
    return found


def _parts(value: Any, kind: type[dict[Any, Any] | list[Any]]) -> Iterable[Any]:
    """Return the pairs of an object or the values of an array, which an element of XML may be too."""
    if isinstance(value, Text) and not value.strip():
        return ()
    if isinstance(value, Nodes):
        return value if kind is dict else [each for _, each in value]
    if not isinstance(value, kind):
        raise TypeError
    return value.items() if isinstance(value, dict) else value


def _struct(
    place: Path, readers: Mapping[str, Reader], required: list[str], value: Any, path: Path, rest: Rest
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    refused = set()
    for name, each in _parts(value, dict):
        read = readers.get(name)
        if read is None or name in found:
            rest.unknown((*path, name), each, (*place, name))
            refused.add(name)
        else:
            found[name] = None if each is None else read(each, (*path, name), rest)
            if each is not None and found[name] is None:
                refused.add(name)
    for name in required:
        if found.get(name) is None and name not in refused:
            rest.missing((*path, name), (*place, name))
    return found


def _array(read: Reader, value: Any, path: Path, rest: Rest) -> list[Any]:
    values = enumerate(_parts(value, list))
    return [None if _is_null(each) else read(each, (*path, number), rest) for number, each in values]


def _is_null(value: Any) -> bool:
    """NServiceBus writes null for a number without value in a list."""
    return value is None or (isinstance(value, Text) and value == "null")


def _map(place: Path, read: Reader, value: Any, path: Path, rest: Rest) -> list[tuple[str, Any]]:
    pairs = _parts(value, dict)
    if isinstance(value, Nodes):
        if not all(_is_pair(each) for _, each in value):
            raise TypeError
        pairs = [(str(dict(each)["Key"]), dict(each).get("Value")) for _, each in value]
    known: dict[str, Any] = {}
    for key, each in pairs:
        if key in known or not _is_text(key):
            rest.unknown((*path, key), each, (*place, ENTRY))
        else:
            known[key] = None if each is None else read(each, (*path, key), rest)
    return list(known.items())


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, Nodes)
        and isinstance(dict(value).get("Key"), Text)
        and {name for name, _ in value} <= {"Key", "Value"}
    )


# ---------------------------------------------------------------------------------------------- scalars
def _converters(kind: T.DataType) -> Converters:
    if isinstance(kind, T.DecimalType):  # rowpost's DecimalText, and pydantic, write decimals as texts
        return dict.fromkeys((str, Text, int, Decimal), partial(_decimal, kind.precision, kind.scale))
    if bits := _BITS.get(type(kind)):
        return dict.fromkeys((Text, int, Decimal), partial(_integer, 1 << (bits - 1)))
    return _SCALARS[type(kind)]


def _is_text(value: str) -> bool:
    """Whether a text is Unicode: JSON can hold a surrogate without its partner, which no column can."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: str) -> str:
    if not _is_text(value):
        raise ValueError
    return str(value)


def _digits(text: str) -> str:
    """Return a text that may hold a number. Python also reads underscores and the digits of other scripts."""
    if "_" in text or not text.isascii():
        raise ValueError
    return text.strip()


def _integer(limit: int, value: Any) -> int:
    if isinstance(value, Decimal) and not (value.adjusted() < _LONG_DIGITS and value == value.to_integral_value()):
        raise TypeError  # 3.0 is an integer
    number = int(_digits(value) if isinstance(value, Text) else value)
    if not -limit <= number < limit:
        raise OverflowError
    return number


def _float(value: int | Decimal, *, limit: float = math.inf) -> float:
    number = float(value)
    if math.isinf(number) or abs(number) > limit:
        raise OverflowError
    return number


_single = partial(_float, limit=_FLOAT_MAX)


def _float_of_text(value: str) -> float:
    text = _digits(value)
    return float(text if text[-1:].isdigit() else _INFINITE[text])


def _decimal(precision: int, scale: int, value: Any) -> Decimal:
    number = Decimal(_digits(value) if isinstance(value, str) else value)
    if not number.is_finite() or number.adjusted() >= precision - scale + (number == 0) * precision:
        raise OverflowError
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or (-exponent > scale and any(digits[max(len(digits) + exponent + scale, 0) :])):
        raise ValueError  # digits would be lost
    return number.quantize(Decimal(1).scaleb(-scale), context=_WIDE)


def _date(value: str) -> date:
    if not DATE.fullmatch(value.strip()):
        raise ValueError
    return date.fromisoformat(value.strip())


def _time(value: datetime | str, *, zoned: bool) -> datetime:
    """Read a time.

    Without a time zone, it is taken as UTC if the column has one, and kept as it is if the column has none.
    """
    if isinstance(value, str):
        if not TIME.fullmatch(value.strip()):
            raise ValueError
        value = datetime.fromisoformat(value.strip())
    if zoned:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if value.tzinfo is not None:
        raise ValueError
    return value


def _binary(value: str) -> bytes:
    return base64.b64decode("".join(value.split()), validate=True)


_SCALARS: dict[type, Converters] = {
    T.StringType: {str: _text, Text: _text, UUID: str, time: time.isoformat},
    T.BooleanType: {bool: bool, Text: lambda value: _FLAGS[value.strip().lower()]},
    # a float is of Avro, which has NaN and infinity
    T.FloatType: {float: float, Text: _float_of_text, int: _single, Decimal: _single},
    T.DoubleType: {float: float, Text: _float_of_text, int: _float, Decimal: _float},
    T.DateType: {str: _date, Text: _date, date: lambda value: value},
    T.TimestampType: dict.fromkeys((datetime, str, Text), partial(_time, zoned=True)),
    T.TimestampNTZType: dict.fromkeys((datetime, str, Text), partial(_time, zoned=False)),
    T.BinaryType: {bytes: bytes, str: _binary, Text: _binary},
}
