"""Observe which fields bodies have, for proposals of schemas and for reports of changes.

These functions run in Spark's workers.

`shapes` describes a body without a schema, `changes` compares one with its schema. Both return paths as JSON, each with
a word and a place among its siblings. A path has the names of fields, 0 for the elements of an array, and -1 for the
values of a map.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from decimal import Decimal
from typing import Any

from rowpost.spark.bodies.decoding import message_of, read_body
from rowpost.spark.bodies.fitting import DATE, ELEMENT, ENTRY, TIME, Path
from rowpost.spark.bodies.parsing import Nodes, NotReadable, Text
from rowpost.spark.bodies.schema_files import Schema

__all__ = ["MAX_KEYS", "changes", "shapes"]

#: An object with more keys is taken for a dictionary.
MAX_KEYS = 100
_PAIR = "NServiceBus.KeyValuePairOf"
#: Names that NServiceBus gives to the elements of a list of values.
_VALUE = re.compile(r"Boolean|Byte|Char|DateTime(Offset)?|Decimal|Double|Guid|Int(16|32|64)|Single|String|TimeSpan")
_WHOLE, _NUMBER = re.compile(r"-?(0|[1-9]\d{0,18})"), re.compile(r"-?(0|[1-9]\d*)\.\d+(E[+-]?\d+)?")
_LONG = 1 << 63
_MAX_SCALE, _MAX_DIGITS = 10, 28


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
    kind, children = _kind(value, path)
    found[path, kind] = min(place, found.get((path, kind), place))
    for number, (name, child) in enumerate(children):
        _walk(child, (*path, name), number, found)


def _kind(value: Any, path: Path) -> tuple[str, list[tuple[str | int, Any]]]:
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
