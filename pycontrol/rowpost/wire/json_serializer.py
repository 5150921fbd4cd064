"""Bodies in JSON, as System.Text.Json writes and reads them.

A dataclass's field `order_id` is the property `OrderId` on the wire. What a class does not say is not guessed: the
types of the fields decide how a value is written. A Decimal is a number with all its digits, a timedelta is
`1.01:00:01`, an enum is its value and is read by value or by name. NaN and infinity are refused, because JSON has
neither. Models of pydantic read and write themselves, with their own aliases.

A body is read in up to three passes, and most bodies need the first one only. Each has a mirror of the class, see
`json_mirrors`:

    read     msgspec decodes the body                                  {"OrderId":42} -> Order(order_id=42)
    cut      if a time has seven digits, which msgspec would round:    "12:00:00.1234567" -> time(12, 0, 0, 123456)
             the body is decoded again, and times are cut
    bound    if a number has 29 digits or an exponent: what was read   1E29 for a Decimal -> MessageNotDeserialized
             is compared with what a decimal of .NET can hold
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import msgspec

from rowpost.errors import InvalidMessage, MessageNotDeserialized
from rowpost.wire.dotnet_values import NAMES, dotnet_decimal, enum_member, time_span
from rowpost.wire.foreign_json import plain_json
from rowpost.wire.json_mirrors import ANYTHING, DURATION, TEXT, Mark, Use, holds, mirror, once, read_mark, rebuilt
from rowpost.wire.json_times import cutter

__all__ = ["JSON", "DecimalText", "JsonSerializer"]

JSON = "application/json"
#: a field of this type is written as text, for readers that ask for it; it is read as text and as a number
DecimalText = Annotated[Decimal, "text"]

_BOM = b"\xef\xbb\xbf"
_ENCODE = msgspec.json.Encoder(decimal_format="number").encode
#: what the encoder writes as it should be
_PLAIN = (str, bool, int, type(None), bytes, datetime, date, time, UUID)
#: what may be a time with seven digits, and a number that a decimal of .NET cannot hold: as a property's value, and in
#: a list. Each begins with a character that is searched for quickly
_find_fine = re.compile(rb"\.\d{7}").search
_find_long = re.compile(rb":\s*-?(?:\d{29}|[0-9.]+[eE])").search
_find_long_listed = re.compile(rb"[:,\[]\s*-?(?:\d{29}|[0-9.]+[eE])").search
#: how objects begin whose types are named, and what is in bodies that have such objects in them
_TYPED, _TYPE, _WRAPPED = b'{"$type":', b'"$type"', b'"$value'
_REFUSED = (msgspec.MsgspecError, TypeError, ValueError, RecursionError)


class JsonSerializer:
    """JSON for dataclasses, pydantic models, and whatever else msgspec knows.

    Args:
        names: how the field `order_id` is written: "pascal" as `OrderId`, as .NET does; "camel", "snake_lower",
            "snake_upper", "kebab_lower" and "kebab_upper" as the naming policies of System.Text.Json write OrderId;
            "declared" as `order_id`. `OrderId` and `order_id` are always read, too.
        allow_unknown: whether a body is read that has properties, and none of a class's. Its fields then have their
            defaults.
    """

    content_type = JSON

    def __init__(self, *, names: str = "pascal", allow_unknown: bool = False, **gone: object) -> None:
        if gone:
            more = " names='camel' reads and writes orderId." if "camel_case" in gone else ""
            raise TypeError(f"JsonSerializer has no argument {', '.join(gone)}.{more}")
        if names not in NAMES:
            raise ValueError(f"names is {names!r}; it must be one of {', '.join(map(repr, NAMES))}.")
        self._names = names
        self._readers: dict[type, Callable[[bytes], Any]] = {}
        self._spellings = tuple(dict.fromkeys((names, "pascal", "declared")))
        self._allow_unknown = allow_unknown

    def encode(self, message: Any) -> bytes:
        try:
            if hasattr(message, "model_dump_json"):
                return str(message.model_dump_json(by_alias=True)).encode()
            return _ENCODE(
                _struct(self._names, message) if dataclasses.is_dataclass(message) else _plain(self._names, message)
            )
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidMessage(f"{type(message).__name__} cannot be written as JSON: {error}") from error

    def decode(self, body: bytes, cls: type) -> Any:
        text = body.removeprefix(_BOM)
        try:
            reader = self._readers.get(cls) or self._readers.setdefault(
                cls, _reader(cls, self._spellings, self._allow_unknown)
            )
            try:
                return reader(plain_json(text) if text.startswith(_TYPED) and text.count(_TYPE) > 1 else text)
            except _REFUSED:
                if not text.lstrip().startswith(b"[") and _WRAPPED not in text:
                    raise
                plain = plain_json(text)
            return reader(plain)
        except _REFUSED as error:
            raise MessageNotDeserialized(
                f"The body is no {cls.__name__}: {error}. It begins with {text[:60]!r}."
            ) from error


# -------------------------------------------------------------------------------------------------------------- writing
def _struct(names: str, message: Any) -> msgspec.Struct:
    """Return an instance of a dataclass as the encoder takes it."""
    struct, write = _written(type(message), names)
    return msgspec.convert(message, struct, from_attributes=True, dec_hook=write)


def _plain(names: str, value: Any, at: str = "") -> Any:
    """Return a value of no declared type with nothing in it that the encoder would write otherwise than .NET; `at` is
    its place, for errors.

    Raises:
        ValueError: a number is not finite.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float | Decimal):
        return _checked(value, at)
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


def _checked(value: Any, at: str = "") -> Any:
    if isinstance(value, Decimal) and value.is_finite():
        return dotnet_decimal(value)
    if not math.isfinite(value):
        raise ValueError(f"{value} is no number of JSON{f' - at `${at}`' if at else ''}")
    return value


def _write(names: str, mark: type[Mark], value: Any) -> Any:
    """Return the value of a field whose type has a mark. msgspec adds the field's place to errors, and judges types
    that it does not know.
    """
    if not issubclass(mark, Mark):
        return value
    if mark.members is not None:
        return (value if isinstance(value, mark.members) else enum_member(mark.members, value)).value
    if mark is ANYTHING:
        return _plain(names, value)
    if mark is DURATION and isinstance(value, timedelta):
        return time_span(value)
    if not isinstance(value, mark.takes) or isinstance(value, bool):
        raise TypeError(f"Expected `{mark.takes[0].__name__}`, got `{type(value).__name__}`")
    return str(_checked(value)) if mark is TEXT else _checked(value)


@once
def _written(cls: type, names: str) -> tuple[type[msgspec.Struct], Callable[[Any, Any], Any]]:
    """Return the struct as which a dataclass is written, analysed already, and the hook for its marks."""
    struct = mirror(cls, names, "write")
    msgspec.json.Decoder(struct, dec_hook=read_mark)
    return struct, partial(_write, names)


# -------------------------------------------------------------------------------------------------------------- reading
@once
def _reader(cls: type, spellings: tuple[str, ...], allow_unknown: bool) -> Callable[[bytes], Any]:
    """Return the function that reads the bodies of a class."""
    if hasattr(cls, "model_validate_json"):
        return partial(_read_model, cls, allow_unknown)
    if not dataclasses.is_dataclass(cls):
        decode: Callable[[bytes], Any] = msgspec.json.Decoder(cls).decode
        cut = cutter(cls)
        return (lambda text: decode(cut(text) if _find_fine(text) else text)) if cut else decode
    return _Spelled(cls, spellings, allow_unknown).reader()


def _read_model(cls: Any, allow_unknown: bool, text: bytes) -> Any:
    """Return a body as a model of pydantic."""
    model = cls.model_validate_json(text)
    if cls.model_fields and not model.model_fields_set and not allow_unknown:
        _check_known(_properties_in(text), [{field.alias or name for name, field in cls.model_fields.items()}])
    return model


def _properties_in(text: bytes) -> set[str]:
    return {name for name in msgspec.json.decode(text, type=dict[str, msgspec.Raw]) if not name.startswith("$")}


def _check_known(there: Collection[str], spellings: Collection[Collection[str]]) -> None:
    """Raise ValueError if a body has properties, and none of a class's, in none of the ways in which it may spell
    them.
    """
    if there and not any(name in properties for properties in spellings for name in there):
        spelled = " or ".join(dict.fromkeys(", ".join(sorted(names)) for names in spellings))
        raise ValueError(
            f"none of its properties is one of the class: it has {', '.join(sorted(there))[:300]}, the class {spelled}"
        )


class _Spelled:
    """Reads a dataclass whose properties may be spelled in several ways."""

    def __init__(self, cls: type, spellings: tuple[str, ...], allow_unknown: bool) -> None:
        self._cls, self._spellings, self._allow_unknown = cls, spellings, allow_unknown
        self._decoders = {names: self._decoder(names) for names in spellings}
        fields = {names: msgspec.structs.fields(mirror(cls, names, "read")) for names in spellings}
        self._properties = {names: {field.encode_name for field in of} for names, of in fields.items()}
        self._has_fields = bool(fields[spellings[0]])
        self._required = {field.encode_name for field in fields[spellings[0]] if field.required}
        # msgspec makes the dataclass of the struct, and sooner; but it takes no member of an enum for one
        self._finish: Callable[[Any], Any] = rebuilt
        if not holds(cls, Enum):
            msgspec.json.Decoder(cls)  # analyses it
            self._finish = partial(msgspec.convert, type=cls, from_attributes=True)

    def reader(self) -> Callable[[bytes], Any]:
        """Return the function that reads a body."""
        first, *others = self._spellings
        if any(
            self._required <= self._properties[names] for names in others
        ):  # a body in another spelling would be read, too
            return self._read_as_spelt
        decode, finish = self._decoders[first], self._finish

        def read(text: bytes) -> Any:
            try:
                return finish(decode(text))
            except msgspec.ValidationError:
                return self._read_as_spelt(text)  # if it is the same one, it raises the same error

        return read

    def _read_as_spelt(self, text: bytes) -> Any:
        return self._finish(self._decoders[self._spelling(text)](text))

    def _spelling(self, text: bytes) -> str:
        there = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).keys()
        found = max(self._spellings, key=lambda names: len(self._properties[names] & there))
        if self._has_fields and not self._allow_unknown and self._properties[found].isdisjoint(there):
            _check_known(_properties_in(text), self._properties.values())
        return found

    def _decoder(self, names: str) -> Callable[[bytes], Any]:
        """Return the function that decodes a body in the passes that its class needs; see the module's description."""
        read = self._mirrored(names, "read")
        has_times, has_decimals = holds(self._cls, datetime) or holds(self._cls, time), holds(self._cls, Decimal)
        if not has_times and not has_decimals:
            return read
        find_long = _find_long_listed if holds(self._cls, Decimal, listed=True) else _find_long
        cut, bounds = self._mirrored(names, "cut"), mirror(self._cls, names, "bound")
        msgspec.json.Decoder(bounds, dec_hook=read_mark)  # analyses it

        def cut_and_bound(text: bytes) -> Any:
            found = cut(text)
            msgspec.convert(found, bounds, from_attributes=True, dec_hook=read_mark)
            return found

        if not has_decimals:
            return lambda text: cut(text) if _find_fine(text) else read(text)
        if not has_times:
            return lambda text: cut_and_bound(text) if find_long(text) else read(text)
        return lambda text: cut_and_bound(text) if find_long(text) else cut(text) if _find_fine(text) else read(text)

    def _mirrored(self, names: str, use: Use) -> Callable[[bytes], Any]:
        decode: Callable[[bytes], Any] = msgspec.json.Decoder(mirror(self._cls, names, use), dec_hook=read_mark).decode
        return decode
