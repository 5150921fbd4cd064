"""Bodies in JSON, as System.Text.Json writes and reads them.

A dataclass's field `order_id` is the property `OrderId` on the wire. What a class does not say is not guessed: the types of the
fields decide how a value is written. A Decimal is a number with all its digits, a timedelta is `1.01:00:01`, an enum is its value
and is read by value or by name. NaN and infinity are refused, because JSON has neither. Models of pydantic read and write
themselves, with their own aliases.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, partial, wraps
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

import msgspec

from rowpost.errors import InvalidMessage, MessageNotDeserialized
from rowpost.wire.dotnet_values import enum_member, read_duration, time_span

__all__ = ["JSON", "DecimalText", "JsonSerializer"]

JSON = "application/json"
#: a field of this type is written as text, for readers that ask for it; it is read as text and as a number
DecimalText = Annotated[Decimal, "text"]

_BOM = b"\xef\xbb\xbf"
_RENAME: dict[str, Any] = {"pascal": "pascal", "declared": None, "camel": "camel"}
_ENCODE = msgspec.json.Encoder(decimal_format="number").encode
#: what the encoder writes as it should be
_PLAIN = (str, bool, int, type(None), bytes, datetime, date, time, UUID)
# msgspec analyses a class when it first meets it, and the process crashes if two threads do so at once.
_ANALYSIS = threading.RLock()

Found = TypeVar("Found")


class JsonSerializer:
    """JSON for dataclasses, pydantic models, and whatever else msgspec knows.

    Args:
        names: how properties are written: "pascal" writes the field `order_id` as `OrderId`, as .NET does, "declared" as `order_id`.
            Both are read.
        camel_case: whether `orderId` is read too.
    """

    content_type = JSON

    def __init__(self, *, names: Literal["pascal", "declared"] = "pascal", camel_case: bool = False) -> None:
        if names not in ("pascal", "declared"):
            raise ValueError(f"names is {names!r}; it must be 'pascal' or 'declared'.")
        self._names: str = names
        self._readers: dict[type, Callable[[bytes], Any]] = {}
        self._read: tuple[str, ...] = (names, "declared" if names == "pascal" else "pascal", *(["camel"] if camel_case else []))

    def encode(self, message: Any) -> bytes:
        try:
            if hasattr(message, "model_dump_json"):
                return message.model_dump_json(by_alias=True).encode()
            return _ENCODE(_struct(self._names, message) if dataclasses.is_dataclass(message) else _plain(self._names, message))
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidMessage(f"{type(message).__name__} cannot be written as JSON: {error}") from error

    def decode(self, body: bytes, cls: type) -> Any:
        text = body.removeprefix(_BOM)
        try:
            reader = self._readers.get(cls) or self._readers.setdefault(cls, _reader(cls, self._read))
            return reader(text)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            raise MessageNotDeserialized(f"The body is no {cls.__name__}: {error}. It begins with {text[:60]!r}.") from error


def _once(find: Callable[..., Found]) -> Callable[..., Found]:
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


# ------------------------------------------------------------------------------------------------------------------ writing
def _struct(names: str, message: Any) -> msgspec.Struct:
    """An instance of a dataclass as the encoder takes it."""
    mirror, write = _written(type(message), names)
    return msgspec.convert(message, mirror, from_attributes=True, dec_hook=write)


def _plain(names: str, value: Any, at: str = "") -> Any:
    """A value of no declared type with nothing in it that the encoder would write otherwise than .NET; `at` is its place, for errors.

    Raises:
        ValueError: a number is not finite.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float | Decimal):
        return _finite(value, at)
    return time_span(value) if isinstance(value, timedelta) else _plain_object(names, value, at)


def _plain_object(names: str, value: Any, at: str) -> Any:
    if isinstance(value, Mapping):
        return {_plain(names, key, at): _plain(names, each, f"{at}.{key}") for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(names, each, f"{at}[{number}]") for number, each in enumerate(value)]
    if dataclasses.is_dataclass(value):
        return _struct(names, value)
    plainer = msgspec.to_builtins(value, builtin_types=(*_PLAIN[4:], timedelta, Decimal))
    return value if plainer is value else _plain(names, plainer, at)


def _finite(value: Any, at: str = "") -> Any:
    if not math.isfinite(value):
        raise ValueError(f"{value} is no number of JSON{f' - at `${at}`' if at else ''}")
    return value


def _write(names: str, mark: type[_Mark], value: Any) -> Any:
    """The value of a field whose type has a mark. msgspec adds the field's place to errors, and judges types that it does not know."""
    if not issubclass(mark, _Mark):
        return value
    if mark.members is not None:
        return (value if isinstance(value, mark.members) else enum_member(mark.members, value)).value
    if mark is _Anything:
        return _plain(names, value)
    if mark is _Duration and isinstance(value, timedelta):
        return time_span(value)
    if not isinstance(value, mark.takes) or isinstance(value, bool):
        raise TypeError(f"Expected `{mark.takes[0].__name__}`, got `{type(value).__name__}`")
    return str(_finite(value)) if mark is _Text else _finite(value)


# ------------------------------------------------------------------------------------------------------------------ reading
def _read(mark: type[_Mark], value: Any) -> Any:
    if not issubclass(mark, _Mark):
        return value
    if mark.members is not None:
        return enum_member(mark.members, value)
    if mark.options:
        return _read_any(mark.options, value)
    if not isinstance(value, str):
        raise TypeError(f"Expected a duration as text, got `{type(value).__name__}`")
    return read_duration(value)


def _read_any(options: tuple[Any, ...], value: Any) -> Any:
    for option in options:
        try:
            return msgspec.convert(value, option, dec_hook=_read)
        except msgspec.ValidationError:
            pass
    raise ValueError(f"{value!r} fits none of the types of its field")


@_once
def _reader(cls: type, spellings: tuple[str, ...]) -> Callable[[bytes], Any]:
    """How the bodies of a class are read."""
    if hasattr(cls, "model_validate_json"):
        return cls.model_validate_json
    if not dataclasses.is_dataclass(cls):
        decode: Callable[[bytes], Any] = msgspec.json.Decoder(cls).decode
        return decode
    decoders = {names: msgspec.json.Decoder(_mirror(cls, names, False), dec_hook=_read) for names in spellings}
    properties = {names: {field.encode_name for field in msgspec.structs.fields(_mirror(cls, names, False))} for names in spellings}
    # msgspec makes the dataclass of the struct, and sooner; but it takes no member of an enum for one
    finish = _rebuilt
    if not _holds(cls, Enum):
        msgspec.json.Decoder(cls)  # analyses it
        finish = partial(msgspec.convert, type=cls, from_attributes=True)
    first, *_ = spellings
    required = {f.encode_name for f in msgspec.structs.fields(_mirror(cls, first, False)) if f.required}
    tells = all(required - properties[names] for names in spellings[1:])  # with these names a body in another spelling cannot be read

    def spelling(text: bytes) -> str:
        there = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).keys()
        return max(spellings, key=lambda names: len(properties[names] & there))

    def read_as_spelt(text: bytes) -> Any:
        return finish(decoders[spelling(text)].decode(text))

    decode_first = decoders[first].decode

    def read(text: bytes) -> Any:
        try:
            return finish(decode_first(text))
        except msgspec.ValidationError:
            return read_as_spelt(text)  # if it is the same one, it raises the same error

    return read if tells else read_as_spelt


def _rebuilt(value: Any) -> Any:
    """The value with instances of dataclasses in the place of the structs as which they were read."""
    kind = type(value)
    build = _builders.get(kind)
    if build is not None:
        return build(value)
    if kind is dict:
        return {key: _rebuilt(each) for key, each in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(_rebuilt(each) for each in value)
    return value


#: of each struct as which a dataclass is read: how the dataclass is made of it
_builders: dict[type, Callable[[Any], Any]] = {}


def _builder(cls: Any, hints: dict[str, Any]) -> Callable[[Any], Any]:
    fields = dataclasses.fields(cls)
    given = [field.name for field in fields if field.init]
    others = [field.name for field in fields if not field.init]
    nested = [field.name for field in fields if _holds(hints[field.name], None)]
    values_of = attrgetter(*given, *given[:1]) if given else lambda _: ()  # one name more: so it returns a tuple always

    def build(struct: Any) -> Any:
        for name in nested:
            setattr(struct, name, _rebuilt(getattr(struct, name)))
        built = cls(**dict(zip(given, values_of(struct), strict=False)))
        for name in others:
            object.__setattr__(built, name, getattr(struct, name))
        return built

    return build


def _holds(hint: Any, base: type | None) -> bool:
    """Whether a type is, or has in itself, a class that derives from `base`; with None, a dataclass."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return base is None or any(_holds(each, base) for each in typing.get_type_hints(hint).values())
    return (isinstance(hint, type) and base is not None and issubclass(hint, base)) or any(_holds(each, base) for each in typing.get_args(hint))


# ------------------------------------------------------------------------------------------------------------------ types
class _Fits(type):
    """Lets any value pass where msgspec asks whether it is an instance: the hooks have judged it."""

    def __instancecheck__(cls, value: object) -> bool:
        return True


class _Mark(metaclass=_Fits):
    """The type of a field that msgspec would read or write otherwise than .NET."""

    takes: tuple[type, ...] = ()
    members: type[Enum] | None = None
    options: tuple[Any, ...] = ()


class _Duration(_Mark):
    takes = (timedelta,)


class _Number(_Mark):
    takes = (float, int)


class _Digits(_Mark):
    takes = (Decimal, int)


class _Text(_Mark):
    takes = (Decimal, int)


class _Anything(_Mark):
    pass


@cache
def _member_of(members: type[Enum]) -> type[_Mark]:
    return type(members.__name__, (_Mark,), {"members": members})


@_once
def _written(cls: type, names: str) -> tuple[type[msgspec.Struct], Callable[[Any, Any], Any]]:
    """The struct as which a dataclass is written, analysed already, and the hook for its marks."""
    mirror = _mirror(cls, names, True)
    msgspec.json.Decoder(mirror, dec_hook=_read)
    return mirror, partial(_write, names)


@cache
def _mirror(cls: Any, names: str, writes: bool) -> type[msgspec.Struct]:
    """A struct with a dataclass's fields, named as on the wire."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields: list[Any] = []
    for field in dataclasses.fields(cls):
        mirrored = _mirror_type(hints[field.name], names, writes)
        if field.default is not dataclasses.MISSING:
            fields.append((field.name, mirrored, field.default))
        elif field.default_factory is not dataclasses.MISSING:
            fields.append((field.name, mirrored, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((field.name, mirrored))
    struct = msgspec.defstruct(cls.__name__, fields, rename=_RENAME[names], kw_only=True, module=cls.__module__)
    if not writes:
        _builders[struct] = _builder(cls, hints)
    return struct


def _mirror_type(hint: Any, names: str, writes: bool) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        text = writes and arguments[0] is Decimal and "text" in hint.__metadata__
        return _Text if text else _mirror_type(arguments[0], names, writes)
    if not arguments:
        return _mirror_class(hint, names, writes)
    if origin is Literal:
        return hint
    mirrored = tuple(_mirror_type(each, names, writes) for each in arguments)
    if mirrored == arguments:
        return hint
    if origin in (typing.Union, types.UnionType):
        return _mirror_union(mirrored, writes)
    return origin[mirrored if len(mirrored) > 1 or issubclass(origin, Mapping) else mirrored[0]]


def _mirror_class(hint: Any, names: str, writes: bool) -> Any:
    hint = getattr(hint, "__supertype__", hint)  # of a NewType
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _mirror(hint, names, writes)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member_of(hint)
    return _MARKS_OF_WRITING.get(hint, hint) if writes or hint is timedelta else hint


def _mirror_union(mirrored: tuple[Any, ...], writes: bool) -> Any:
    """msgspec takes a mark in a union with None only."""
    none = type(None)
    some = [each for each in mirrored if each is not none]
    marks = [each for each in some if isinstance(each, _Fits)]
    if not marks or len(some) == 1:
        return typing.Union[mirrored]  # noqa: UP007 -- built at run time
    options = (*marks, *(each for each in some if each not in marks))
    for option in options:
        msgspec.json.Decoder(option, dec_hook=_read)  # analyses it
    mark = _Anything if writes else type("Choice", (_Mark,), {"options": options})
    return typing.Union[mark, none] if none in mirrored else mark  # noqa: UP007


_MARKS_OF_WRITING: dict[Any, type[_Mark]] = {
    timedelta: _Duration, float: _Number, Decimal: _Digits,
    **dict.fromkeys((Any, object, dict, list, tuple, set, frozenset), _Anything),
}  # fmt: skip
