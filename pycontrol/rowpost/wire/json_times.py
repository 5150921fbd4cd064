"""Times with seven digits in bodies of classes that msgspec reads by itself, such as its own Structs.

Only the type of a value says whether a text is a time: a field of text keeps all its digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.inspect import AnyType, DateTimeType, StrType, TimeType, Type, UnionType, type_info

from rowpost.wire.dotnet_values import cut_time
from rowpost.wire.foreign_json import decode_exactly, encode_exactly

__all__ = ["cutter"]


def cutter(cls: Any) -> Callable[[bytes], bytes] | None:
    """Return how the times in a body of a class are cut to microseconds; None if it has none."""
    try:
        kind = type_info(cls)
    except (TypeError, msgspec.MsgspecError):  # msgspec says why when it reads a body
        return None
    return (lambda text: encode_exactly(_cut(kind, decode_exactly(text)))) if _has_times(kind, set()) else None


def _has_times(kind: Type, around: set[int]) -> bool:
    if id(kind) in around:  # a class may hold itself
        return False
    around.add(id(kind))
    fields = [field.type for field in getattr(kind, "fields", ())]
    within = [
        *fields,
        *getattr(kind, "types", ()),
        *getattr(kind, "item_types", ()),
        *filter(None, (_items(kind), _values(kind))),
    ]
    return isinstance(kind, DateTimeType | TimeType) or any(_has_times(each, around) for each in within)


def _items(kind: Any) -> Type | None:
    return getattr(kind, "item_type", None)


def _values(kind: Any) -> Type | None:
    return getattr(kind, "value_type", None)


def _cut(kind: Any, value: Any) -> Any:
    if isinstance(kind, UnionType):
        is_text = any(isinstance(each, StrType | AnyType) for each in kind.types)
        for each in () if is_text else kind.types:
            value = _cut(each, value)
        return value
    if isinstance(value, str):
        return cut_time(value) if isinstance(kind, DateTimeType | TimeType) else value
    if isinstance(value, list):
        kinds = getattr(kind, "item_types", None) or (_items(kind),) * len(value)
        return [*map(_cut, kinds, value), *value[len(kinds) :]]
    if isinstance(value, dict):
        fields = {field.encode_name: field.type for field in getattr(kind, "fields", ())}
        return {name: _cut(fields.get(name) or _values(kind), each) for name, each in value.items()}
    return value
