"""The structs as which msgspec writes and reads dataclasses in JSON.

A mirror has a dataclass's fields, named as on the wire. A type that msgspec would read or write otherwise than .NET has
a mark in its place, which a hook reads or writes. `Use` says what a mirror is for: "write", or a pass of reading, which
`json_serializer` describes.
"""

from __future__ import annotations

import dataclasses
import threading
import types
import typing
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, wraps
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from rowpost.wire.dotnet_values import cut_time, dotnet_decimal, enum_member, read_duration, wire_name

__all__ = ["ANYTHING", "DURATION", "TEXT", "Mark", "Use", "holds", "mirror", "once", "read_mark", "rebuilt"]

Use = Literal["write", "read", "cut", "bound"]
# msgspec analyses a class when it first meets it, and the process crashes if two threads do so at once.
_ANALYSIS = threading.RLock()

Found = TypeVar("Found")


def once(find: Callable[..., Found]) -> Callable[..., Found]:
    """Find out something about each class once, one thread after the other."""
    known: dict[Any, Found] = {}

    @wraps(find)
    def look_up(*of: Any) -> Found:
        try:
            return known[of]
        except KeyError:
            with _ANALYSIS:
                if of not in known:
                    known[of] = find(*of)
                return known[of]

    return look_up


# ---------------------------------------------------------------------------------------------------------------- marks
class _Fits(type):
    """Make every value an instance, because msgspec checks the result of a hook with `isinstance`, and the hook has
    checked it already.
    """

    def __instancecheck__(cls, value: object) -> bool:
        return True


class Mark(metaclass=_Fits):
    """The type of a field that msgspec would read or write otherwise than .NET.

    `takes` are the types of the values that are written; `read` reads the value that the JSON holds.
    """

    takes: tuple[type, ...] = ()
    members: type[Enum] | None = None
    read: Callable[[Any], Any]


def _mark(name: str, *takes: type, read: Callable[[Any], Any] = lambda value: value) -> type[Mark]:
    return type(name, (Mark,), {"takes": takes, "read": staticmethod(read)})


def _of_text(what: str, read: Callable[[str], Any]) -> Callable[[Any], Any]:
    def read_text(value: Any) -> Any:
        if not isinstance(value, str):
            raise TypeError(f"Expected {what} as text, got `{type(value).__name__}`")
        return read(value)

    return read_text


DURATION = _mark("Duration", timedelta, read=_of_text("a duration", read_duration))
#: a decimal that is written as text
TEXT = _mark("Text", Decimal, int)
ANYTHING = _mark("Anything")
_DIGITS = _mark("Digits", Decimal, int, read=dotnet_decimal)
_MARKS: dict[Use, dict[Any, type[Mark]]] = {
    "write": {
        timedelta: DURATION,
        float: _mark("Number", float, int),
        Decimal: _DIGITS,
        **dict.fromkeys((Any, object, dict, list, tuple, set, frozenset), ANYTHING),
    },
    "read": {timedelta: DURATION},
    "bound": {Decimal: _DIGITS},
    "cut": {
        timedelta: DURATION,
        datetime: _mark(
            "Moment", read=_of_text("a date and time", lambda text: msgspec.convert(cut_time(text), datetime))
        ),
        time: _mark("Clock", read=_of_text("a time", lambda text: msgspec.convert(cut_time(text), time))),
    },
}


def read_mark(mark: type[Mark], value: Any) -> Any:
    """Read a field whose type has a mark; msgspec's hook.

    It adds the field's place to errors, and judges types that it does not know.
    """
    return mark.read(value) if issubclass(mark, Mark) else value


@cache
def _member_of(members: type[Enum]) -> type[Mark]:
    return type(
        members.__name__, (Mark,), {"members": members, "read": staticmethod(lambda value: enum_member(members, value))}
    )


def _one_of(options: tuple[Any, ...]) -> type[Mark]:
    def read(value: Any) -> Any:
        for option in options:
            try:
                return msgspec.convert(value, option, dec_hook=read_mark)
            except msgspec.ValidationError:
                pass
        raise ValueError(f"{value!r} fits none of the types of its field")

    return _mark("Choice", read=read)


# -------------------------------------------------------------------------------------------------------------- mirrors
@cache
def mirror(cls: Any, names: str, use: Use) -> type[msgspec.Struct]:
    """Return a struct with a dataclass's fields, named by a policy of `dotnet_values.NAMES`."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields: list[Any] = []
    for field in dataclasses.fields(cls):
        mirrored = _mirror_type(hints[field.name], names, use)
        if field.default is not dataclasses.MISSING:
            fields.append((field.name, mirrored, field.default))
        elif field.default_factory is not dataclasses.MISSING:
            fields.append((field.name, mirrored, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((field.name, mirrored))
    struct = msgspec.defstruct(
        cls.__name__, fields, rename=lambda name: wire_name(name, names), kw_only=True, module=cls.__module__
    )
    if use in ("read", "cut"):
        _builders[struct] = _builder(cls, hints)
    return struct


def _mirror_type(hint: Any, names: str, use: Use) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        text = use == "write" and arguments[0] is Decimal and "text" in hint.__metadata__
        return TEXT if text else _mirror_type(arguments[0], names, use)
    if not arguments:
        return _mirror_class(hint, names, use)
    if origin is Literal:
        return hint
    mirrored = tuple(_mirror_type(each, names, use) for each in arguments)
    if mirrored == arguments:
        return hint
    if origin in (typing.Union, types.UnionType):
        return _mirror_union(mirrored, use)
    return origin[mirrored if len(mirrored) > 1 or issubclass(origin, Mapping) else mirrored[0]]


def _mirror_class(hint: Any, names: str, use: Use) -> Any:
    hint = getattr(hint, "__supertype__", hint)  # of a NewType
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return mirror(hint, names, use)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member_of(hint)
    return _MARKS[use].get(hint, hint)


def _mirror_union(mirrored: tuple[Any, ...], use: Use) -> Any:
    """msgspec takes a mark in a union with None only."""
    none = type(None)
    some = [each for each in mirrored if each is not none]
    marks = [each for each in some if isinstance(each, _Fits)]
    if not marks or len(some) == 1:
        return typing.Union[mirrored]  # noqa: UP007 -- built at run time
    options = (*marks, *(each for each in some if each not in marks))
    for option in options:
        msgspec.json.Decoder(option, dec_hook=read_mark)  # analyses it
    mark = ANYTHING if use == "write" else _one_of(options)
    return typing.Union[mark, none] if none in mirrored else mark  # noqa: UP007


def holds(hint: Any, base: type | None, *, listed: bool = False) -> bool:
    """Whether a type is, or has in itself, a class that derives from `base`; with None, a dataclass.

    `listed` asks for one in a list.
    """
    return _holds(hint, base, not listed, frozenset())


def _holds(hint: Any, base: type | None, counts: bool, around: frozenset[Any]) -> bool:
    hint = getattr(hint, "__supertype__", hint)  # of a NewType
    if hint in around:  # a class may hold itself
        return False
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return base is None or any(
            _holds(each, base, counts, around | {hint}) for each in typing.get_type_hints(hint).values()
        )
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    counts = counts or (isinstance(origin, type) and issubclass(origin, Collection) and not issubclass(origin, Mapping))
    return (counts and isinstance(hint, type) and base is not None and issubclass(hint, base)) or any(
        _holds(each, base, counts, around) for each in arguments
    )


# ------------------------------------------------------------------------------------------------------------ instances
def rebuilt(value: Any) -> Any:
    """Return the value with instances of dataclasses in the place of the structs as which they were read."""
    kind = type(value)
    build = _builders.get(kind)
    if build is not None:
        return build(value)
    if kind is dict:
        return {key: rebuilt(each) for key, each in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(rebuilt(each) for each in value)
    return value


#: of each struct as which a dataclass is read: how the dataclass is made of it
_builders: dict[type, Callable[[Any], Any]] = {}


def _builder(cls: Any, hints: dict[str, Any]) -> Callable[[Any], Any]:
    fields = dataclasses.fields(cls)
    given = [field.name for field in fields if field.init]
    others = [field.name for field in fields if not field.init]
    nested = [field.name for field in fields if holds(hints[field.name], None)]
    values_of = attrgetter(*given, *given[:1]) if given else lambda _: ()  # one name more: so it returns a tuple always

    def build(struct: Any) -> Any:
        for name in nested:
            setattr(struct, name, rebuilt(getattr(struct, name)))
        built = cls(**dict(zip(given, values_of(struct), strict=False)))
        for name in others:
            object.__setattr__(built, name, getattr(struct, name))
        return built

    return build
