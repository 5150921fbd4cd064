"""Observe which fields bodies have, and propose the fields of a schema from it.

`shapes` describes a body without a schema, `changes` compares one with its schema. Both run in Spark's workers, and
return paths as JSON, each with a word and a place among its siblings. A path has the names of fields, 0 for the
elements of an array, and -1 for the values of a map. `propose` gives the same fields for the same observations.

Numbers are proposed in types that hold later values too: whole ones as BIGINT, others as DECIMAL(38,10), or DOUBLE if
they have more digits. If the values of a field are of several kinds, the most frequent kind is proposed; the others are
rescued.

Spark's own inference (`spark.read.json`, `schema_of_json`) is not used, because it does not count messages: one wrong
value makes a column a STRING, a field that is always null becomes one too, a dictionary becomes a STRUCT with a column
for each key, and a number with a fraction a DOUBLE.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import inf
from typing import Any

from pyspark.sql import types as T

from rowpost.spark.bodies.decoding import message_of, read_body
from rowpost.spark.bodies.fitting import DATE, ELEMENT, ENTRY, TIME, Path
from rowpost.spark.bodies.parsing import Nodes, NotReadable, Text
from rowpost.spark.bodies.schema_files import Schema

__all__ = ["FieldObservation", "changes", "propose", "shapes"]

#: An object with more keys is taken for a dictionary.
MAX_KEYS = 100
_PAIR = "NServiceBus.KeyValuePairOf"
#: Names that NServiceBus gives to the elements of a list of values.
_VALUE = re.compile(r"Boolean|Byte|Char|DateTime(Offset)?|Decimal|Double|Guid|Int(16|32|64)|Single|String|TimeSpan")
_WHOLE, _NUMBER = re.compile(r"-?(0|[1-9]\d{0,18})"), re.compile(r"-?(0|[1-9]\d*)\.\d+(E[+-]?\d+)?")
_LONG = 1 << 63
_MAX_SCALE, _MAX_DIGITS = 10, 28
_NUMBERS = ("long", "number", "double")
_SCALARS: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "long": T.LongType(),
    "number": T.DecimalType(38, 10),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
}
_TEXTS = ("string", "date", "timestamp", "timestamp_ntz")


def shapes(body: bytes | None, content_type: str | None, message_type: str | None) -> list[tuple[str, str, int]]:
    """Return the paths of a body with the kind of each value. The kind of a broken or missing body is "broken"."""
    try:
        message, _ = message_of(body or b"", content_type, message_type or "", None)
    except NotReadable:
        return [("[]", "broken", 0)]
    found: dict[tuple[Path, str], int] = {}
    _walk(message, (), 0, found)
    return [(json.dumps(path), kind, place) for (path, kind), place in found.items()]


def _walk(value: Any, path: Path, place: int, found: dict[tuple[Path, str], int]) -> None:
    kind, children = _kind_of(value, path)
    found[path, kind] = min(place, found.get((path, kind), place))
    for number, (name, child) in enumerate(children):
        _walk(child, (*path, name), number, found)


def _kind_of(value: Any, path: Path) -> tuple[str, list[tuple[str | int, Any]]]:
    """Return the kind of a value, and its children with the next part of their paths."""
    if isinstance(value, dict):
        if len(value) > MAX_KEYS:
            return "map", [(ENTRY, each) for each in value.values()]
        return "object", list(value.items())
    if isinstance(value, Nodes):
        return _kind_of_nodes(value, path)
    if isinstance(value, list):
        return "array", [(ELEMENT, each) for each in value]
    return _scalar(value), []


def _kind_of_nodes(nodes: Nodes, path: Path) -> tuple[str, list[tuple[str | int, Any]]]:
    names = Counter(name for name, _ in nodes)
    if path and all(name.startswith(_PAIR) for name in names):
        return "map", [(ENTRY, dict(each).get("Value")) for _, each in nodes if isinstance(each, Nodes)]
    if path and len(names) == 1 and (len(nodes) > 1 or _VALUE.fullmatch(nodes[0][0]) or f"{nodes[0][0]}s" == path[-1]):
        return "array", [(ELEMENT, each) for _, each in nodes]
    # with one child, it may be a list of one element: another message tells
    return ("element" if path and len(nodes) == 1 else "object"), list(nodes)


def _scalar(value: Any) -> str:
    if value is None or (isinstance(value, Text) and not value.strip()):
        return "null"
    if isinstance(value, bool) or (isinstance(value, Text) and value.strip() in ("true", "false")):
        return "boolean"
    if isinstance(value, int | Decimal):
        return _number(Decimal(value))
    text = value.strip()
    if isinstance(value, Text) and (_WHOLE.fullmatch(text) or _NUMBER.fullmatch(text)):
        return _number(Decimal(text))
    if DATE.fullmatch(text):
        return "date"
    time = TIME.fullmatch(text)
    return "string" if time is None else "timestamp" if time[1] else "timestamp_ntz"


def _number(number: Decimal) -> str:
    exponent = number.as_tuple().exponent
    if exponent == 0 and -_LONG <= number < _LONG:
        return "long"
    is_short = isinstance(exponent, int) and -exponent <= _MAX_SCALE and number.adjusted() < _MAX_DIGITS
    return "number" if is_short else "double"


def changes(body: bytes | None, content_type: str | None, schema: Schema) -> list[tuple[str, str, int]]:
    """Return the paths of a body with "seen", and those that differ from its schema: new, changed, missing, broken.

    All have the place 0.
    """
    _, rest = read_body(body, content_type, schema)
    return [
        (json.dumps(place), problem, 0)
        for place, problem in (*rest.problems, *((place, "seen") for place in rest.seen if place))
    ]


@dataclass(frozen=True)
class FieldObservation:
    """How many messages have a value of a kind at a path. `place` is the first of its places among its siblings."""

    path: tuple[str | int, ...]
    kind: str
    messages: int
    place: int = 0


def propose(observations: Iterable[FieldObservation]) -> tuple[T.StructType, list[str]]:
    """Return the fields, and the paths whose values were always null or empty, and therefore have no type."""
    unknown: list[str] = []
    return _struct(list(observations), "", unknown), unknown


def _inside(found: Sequence[FieldObservation]) -> dict[str | int, list[FieldObservation]]:
    """Return what was observed below a place, by the next part of its path."""
    parts: dict[str | int, list[FieldObservation]] = defaultdict(list)
    for each in found:
        if each.path:
            parts[each.path[0]].append(replace(each, path=each.path[1:]))
    return parts


def _struct(found: Sequence[FieldObservation], place: str, unknown: list[str]) -> T.StructType:
    fields: list[T.StructField] = []
    taken: set[str] = set()
    named = {name: own for name, own in _inside(found).items() if isinstance(name, str)}
    for name, own in sorted(named.items(), key=lambda each: (*_order(each[1]), each[0])):
        kind = None if name.lower() in taken else _type(own, f"{place}{name}", unknown)
        if kind is not None:
            taken.add(name.lower())
            fields.append(T.StructField(name, kind))
    return T.StructType(fields)


def _order(found: Sequence[FieldObservation]) -> tuple[float, int]:
    """Return where a field belongs among its siblings: the first ones first, of those the most frequent ones."""
    itself = [each for each in found if not each.path]
    return min((each.place for each in itself), default=inf), -sum(each.messages for each in itself)


def _type(found: Sequence[FieldObservation], place: str, unknown: list[str]) -> T.DataType | None:
    kind = _kind(found)
    if kind in _SCALARS:
        return _SCALARS[kind]
    below: list[str] = []
    whole: T.DataType | None = None
    if kind == "array":
        whole = _type(_elements(found, ELEMENT), f"{place}[]", below)
        whole = whole and T.ArrayType(whole)
    elif kind == "map":
        whole = _type(_elements(found, ENTRY), f"{place}{{}}", below)
        whole = whole and T.MapType(T.StringType(), whole)
    elif kind == "object":
        whole = _struct(found, f"{place}.", below)
    if whole is None or (isinstance(whole, T.StructType) and not whole.fields):  # Delta has no struct without fields
        unknown.append(place)
        return None
    unknown += below
    return whole


def _elements(found: Sequence[FieldObservation], part: int) -> list[FieldObservation]:
    """Return what was observed of the elements of an array or a map, with what was seen of it as an object."""
    return [each for name, own in _inside(found).items() if name == part or isinstance(name, str) for each in own]


def _kind(found: Sequence[FieldObservation]) -> str:
    kinds: Counter[str] = Counter()
    for each in found:
        if not each.path and each.kind not in ("null", "broken"):
            kinds[each.kind] += each.messages
    names = {each.path[0] for each in found if each.path and isinstance(each.path[0], str)}
    _merge(kinds, "array" if "array" in kinds else "object", "element")
    if kinds["object"] and (len(names) > MAX_KEYS or kinds["map"]):
        _merge(kinds, "map", "object")
    _merge(kinds, next((kind for kind in reversed(_NUMBERS) if kinds[kind]), "long"), *_NUMBERS)
    texts = [kind for kind in _TEXTS if kinds[kind]]
    if len(texts) > 1:
        _merge(kinds, "timestamp" if set(texts) == {"timestamp", "timestamp_ntz"} else "string", *texts)
    kinds = +kinds
    return min(kinds, key=lambda kind: (-kinds[kind], kind)) if kinds else "null"


def _merge(kinds: Counter[str], into: str, *others: str) -> None:
    total = sum(kinds[kind] for kind in {into, *others})
    for kind in others:
        kinds[kind] = 0
    kinds[into] = total
