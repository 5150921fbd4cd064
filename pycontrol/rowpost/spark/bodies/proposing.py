"""Propose the fields of a schema from what bodies were observed to have.

Pure functions: the same observations give the same text.

Numbers are proposed in types that hold later values too: whole ones as BIGINT, others as DECIMAL(38,10), or DOUBLE if
they have more digits. If the values of a field are of several kinds, the most frequent kind is proposed; the others are
rescued.

Spark's own inference (`spark.read.json`, `schema_of_json`) is not used, because it does not count messages: one wrong
value makes a column a STRING, a field that is always null becomes one too, a dictionary becomes a STRUCT with a column
for each key, and a number with a fraction a DOUBLE.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from pyspark.sql import types as T

from rowpost.spark.bodies.fitting import ELEMENT, ENTRY
from rowpost.spark.bodies.observing import MAX_KEYS

__all__ = ["FieldObservation", "propose"]

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
