"""Bodies to and from typed messages. JSON by default; others by content type.

A dataclass's field `order_id` is the property `OrderId` on the wire, as .NET endpoints write it; bodies with the
field's own name are read as well. Models of pydantic read and write themselves, with their own aliases. Bytes and
None pass as they are.
"""

from __future__ import annotations

import dataclasses
import threading
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, Protocol, TypeVar

import msgspec

from rowpost.errors import InvalidMessage, MessageNotDeserialized

__all__ = ["JSON", "JsonSerializer", "Serializer", "Serializers", "named_in_body"]

JSON = "application/json"
_BOM = b"\xef\xbb\xbf"
# msgspec analyses a class when it first meets it, and the process crashes if two threads do so at once.
_ANALYSIS = threading.RLock()

Found = TypeVar("Found")


class Serializer(Protocol):
    """Turn messages into bodies and back, for one content type."""

    content_type: str

    def encode(self, message: Any) -> bytes:
        """The body. Raises InvalidMessage where the message cannot be written."""

    def decode(self, body: bytes, cls: type) -> Any:
        """The message. Raises MessageNotDeserialized where the body is no such message."""


class JsonSerializer:
    """JSON for dataclasses, pydantic models, and whatever else msgspec knows."""

    content_type = JSON

    def encode(self, message: Any) -> bytes:
        try:
            if hasattr(message, "model_dump_json"):
                return message.model_dump_json(by_alias=True).encode()
            if dataclasses.is_dataclass(message) and not isinstance(message, type):
                message = msgspec.convert(message, _written(type(message)), from_attributes=True)
            return msgspec.json.encode(message)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise InvalidMessage(f"{type(message).__name__} cannot be written as JSON: {error}") from error

    def decode(self, body: bytes, cls: type) -> Any:
        text = body.removeprefix(_BOM)
        try:
            return _reader(cls)(text)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise MessageNotDeserialized(f"The body is no {cls.__name__}: {error}. It begins with {text[:60]!r}.") from error


class Serializers:
    """Serializers by content type; the first is the default, for messages that name none."""

    def __init__(self, *serializers: Serializer) -> None:
        self.default = serializers[0] if serializers else JsonSerializer()
        self._by_type = {s.content_type: s for s in (serializers or (self.default,))}

    def find(self, content_type: str | None) -> Serializer:
        """The serializer of a content type; parameters such as a charset do not count.

        Raises:
            MessageNotDeserialized: there is none.
        """
        if not content_type:
            return self.default
        found = self._by_type.get(content_type) or self._by_type.get(content_type.partition(";")[0].strip())
        if found is None:
            raise MessageNotDeserialized(
                f"No serializer for the content type {content_type!r}; this endpoint has {', '.join(self._by_type)}."
            )
        return found


def named_in_body(body: bytes, serializer: Serializer) -> list[str]:
    """The type that a foreign sender's message without headers names in its body's $type, if any."""
    try:
        named = serializer.decode(body, dict).get("$type")
    except Exception:  # noqa: BLE001 -- no JSON object: then it names no type
        return []
    return [named.partition(",")[0].strip()] if isinstance(named, str) else []


def _once(find: Callable[[type], Found]) -> Callable[[type], Found]:
    """Find out something about each class once, one thread after the other."""
    known: dict[type, Found] = {}

    @wraps(find)
    def look_up(cls: type) -> Found:
        try:
            return known[cls]
        except KeyError:
            with _ANALYSIS:
                if cls not in known:
                    known[cls] = find(cls)
                return known[cls]

    return look_up


@_once
def _reader(cls: type) -> Callable[[bytes], Any]:
    """How the bodies of a class are read."""
    if hasattr(cls, "model_validate_json"):
        return cls.model_validate_json
    as_it_stands: Callable[[bytes], Any] = msgspec.json.Decoder(cls).decode
    if not dataclasses.is_dataclass(cls):
        return as_it_stands
    decode, convert = msgspec.json.Decoder(_mirror(cls)).decode, msgspec.convert

    def read(text: bytes) -> Any:
        try:
            return convert(decode(text), cls, from_attributes=True)
        except msgspec.ValidationError:
            return as_it_stands(text)  # a sender that keeps Python's names

    return read


@_once
def _written(cls: type) -> type[msgspec.Struct]:
    """The struct as which a dataclass is written, analysed already."""
    mirror = _mirror(cls)
    msgspec.json.Decoder(mirror)
    return mirror


@cache
def _mirror(cls: Any) -> type[msgspec.Struct]:
    """A struct with a dataclass's fields, named as on the wire."""
    hints = typing.get_type_hints(cls)
    fields: list[Any] = []
    for field in dataclasses.fields(cls):
        mirrored = _mirror_type(hints[field.name])
        if field.default is not dataclasses.MISSING:
            fields.append((field.name, mirrored, field.default))
        elif field.default_factory is not dataclasses.MISSING:
            fields.append((field.name, mirrored, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((field.name, mirrored))
    return msgspec.defstruct(cls.__name__, fields, rename="pascal", kw_only=True, module=cls.__module__)


def _mirror_type(hint: Any) -> Any:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _mirror(hint)
    arguments = typing.get_args(hint)
    if not arguments or typing.get_origin(hint) is typing.Literal:
        return hint
    mirrored = tuple(_mirror_type(a) for a in arguments)
    if mirrored == arguments:
        return hint
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return typing.Union[mirrored]  # noqa: UP007 -- built at run time
    return origin[mirrored if len(mirrored) > 1 or issubclass(origin, Mapping) else mirrored[0]]
