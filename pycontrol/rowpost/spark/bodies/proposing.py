"""Propose the fields of a schema from what bodies were observed to have. Pure functions: the same observations give the same text.

Numbers are proposed in types that hold later values too: whole ones as BIGINT, others as DECIMAL(38,10), or DOUBLE if they have
more digits. If the values of a field are of several kinds, the most frequent kind is proposed; the others are rescued.

Spark's own inference (`spark.read.json`, `schema_of_json`) is not used, because it does not count messages: one wrong value makes a column a
STRING, a field that is always null becomes one too, a dictionary becomes a STRUCT with a column for each key, and a number with a fraction a DOUBLE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql import types as T

from rowpost.spark.bodies.fitting import ELEMENT, ENTRY
from rowpost.spark.bodies.observing import MAX_KEYS

__all__ = ["Observation", "propose"]

_NUMBERS = ("long", "number", "double")
_SCALARS: dict[str, T.DataType] = {
    "boolean": T.BooleanType(), "long": T.LongType(), "number": T.DecimalType(38, 10), "double": T.DoubleType(), "string": T.StringType(),
    "date": T.DateType(), "timestamp": T.TimestampType(), "timestamp_ntz": T.TimestampNTZType(),
}  # fmt: skip
_TEXTS = ("string", "date", "timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Observation:
    """How many messages have a value of a kind at a path. `place` is the first of its places among its siblings."""

    path: tuple[str | int, ...]
    kind: str
    messages: int
    place: int = 0


@dataclass
class _Node:
    kinds: Counter[str] = field(default_factory=Counter)
    place: int = 1 << 30
    children: dict[str | int, _Node] = field(default_factory=dict)

    def add(self, other: _Node) -> None:
        self.kinds += other.kinds
        self.place = min(self.place, other.place)
        for name, child in other.children.items():
            self.children.setdefault(name, _Node()).add(child)

    def named(self) -> dict[str, _Node]:
        return {name: child for name, child in self.children.items() if isinstance(name, str)}


def propose(observations: Iterable[Observation]) -> tuple[T.StructType, list[str]]:
    """Return the fields, and the paths whose values were always null or empty, and therefore have no type."""
    root = _Node()
    for each in observations:
        node = root
        for part in each.path:
            node = node.children.setdefault(part, _Node())
        node.kinds[each.kind] += each.messages
        node.place = min(node.place, each.place)
    unknown: list[str] = []
    return _struct(root, "", unknown), unknown


def _struct(node: _Node, place: str, unknown: list[str]) -> T.StructType:
    fields: list[T.StructField] = []
    taken: set[str] = set()
    for name, child in sorted(node.named().items(), key=lambda each: (each[1].place, -sum(each[1].kinds.values()), each[0])):
        kind = None if name.lower() in taken else _type(child, f"{place}{name}", unknown)
        if kind is not None:
            taken.add(name.lower())
            fields.append(T.StructField(name, kind))
    return T.StructType(fields)


def _type(node: _Node, place: str, unknown: list[str]) -> T.DataType | None:
    kind = _kind(node)
    if kind in _SCALARS:
        return _SCALARS[kind]
    below: list[str] = []
    found: T.DataType | None = None
    if kind == "array":
        found = _type(_below(node, ELEMENT), f"{place}[]", below)
        found = found and T.ArrayType(found)
    elif kind == "map":
        found = _type(_below(node, ENTRY), f"{place}{{}}", below)
        found = found and T.MapType(T.StringType(), found)
    elif kind == "object":
        found = _struct(node, f"{place}.", below)
    if found is None or (isinstance(found, T.StructType) and not found.fields):  # Delta has no struct without fields
        unknown.append(place)
        return None
    unknown += below
    return found


def _below(node: _Node, part: int) -> _Node:
    """Return the node of the elements of an array or a map, with what was seen of it as an object."""
    found = _Node()
    for name, child in node.children.items():
        if name == part or isinstance(name, str):
            found.add(child)
    return found


def _kind(node: _Node) -> str:
    kinds = Counter({kind: number for kind, number in node.kinds.items() if kind not in ("null", "broken")})
    _merge(kinds, "array" if "array" in kinds else "object", "element")
    if kinds["object"] and (len(node.named()) > MAX_KEYS or kinds["map"]):
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
