"""Parse the bytes of a body to plain values, by content type: JSON and XML here, Avro in avro.py.

JSON becomes Python's own values, with a Decimal for each number with a fraction. XML has no types: a leaf becomes
`Text`, an element with children `Nodes`, and `xsi:nil` becomes None. fitting.py gives both the types of a schema.

Spark's `from_xml` is not used, because its columns are null, without an error, for a body with several messages and for
NServiceBus's lists, whose elements have names of their own. It also leaves out attributes, and it reads a body with a
DOCTYPE.
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any
from xml.etree.ElementTree import Element, ParseError

import msgspec
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from rowpost.wire.xml_values import XSI, local_name

__all__ = [
    "Nodes",
    "NotReadable",
    "Parsed",
    "Text",
    "as_json",
    "content",
    "kind_of",
    "parse_json",
    "parse_xml",
    "plain",
]

_BOM = b"\xef\xbb\xbf"
_MAX_DEPTH = 100
_NIL = f"{{{XSI}}}nil"
_ENCODER = msgspec.json.Encoder(decimal_format="number")


#: A message, and what else its body holds, with the path of each value.
Parsed = tuple[Any, list[tuple[tuple[Any, ...], Any]]]


class NotReadable(ValueError):
    """A body that cannot be parsed. The text is the reason, without any value of the body."""


class Text(str):
    """The text of an XML element without children."""

    __slots__ = ()


class Nodes(list[Any]):
    """The children of an XML element: pairs of a name and a value, in order.

    Attributes are pairs whose name starts with @.
    """


def kind_of(content_type: str | None, body: bytes) -> str:
    """Return "json", "xml", "avro", or "" for other content types. Without a content type, the first byte decides."""
    if content_type:
        lower = content_type.lower()
        return next((kind for kind in ("json", "xml", "avro") if kind in lower), "")
    return "xml" if body.removeprefix(_BOM).lstrip()[:1] == b"<" else "json"


def parse_json(body: bytes) -> Parsed:
    """Parse a body. A list holds several messages, of which the first is the message. Raises NotReadable."""
    try:
        root = json.loads(body.removeprefix(_BOM).decode(), parse_float=Decimal, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise NotReadable(f"the body is not JSON: {error.msg} at character {error.pos}") from error
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise NotReadable(f"the body is not JSON: {type(error).__name__}") from error
    if isinstance(root, list) and root and isinstance(root[0], dict):
        return root[0], [((number,), each) for number, each in enumerate(root[1:], 1)]
    if not isinstance(root, dict):
        raise NotReadable("the body is JSON, but no object")
    return root, []


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def parse_xml(body: bytes, name: str) -> Parsed:
    """Parse a body with a message of a type, or several in a root `Messages`, as NServiceBus writes them.

    Of several, the first one of the type is the message. Raises NotReadable.
    """
    try:
        root = fromstring(body, forbid_dtd=True)
        own = name.rpartition(".")[2].rpartition("+")[2]
        if local_name(root) != "Messages" or own == "Messages" or not len(root):
            return _as_message(root), []
        children = list(root)
        first = next((number for number, each in enumerate(children) if local_name(each) == own), 0)
        others = [((local_name(each), number), _value(each)) for number, each in enumerate(children) if number != first]
        return _as_message(children[first]), others
    except ParseError as error:
        raise NotReadable(f"the body is not XML: {error}") from error
    except (DefusedXmlException, ValueError, LookupError, RecursionError) as error:
        raise NotReadable(f"the body is XML that is refused: {type(error).__name__}") from error


def _as_message(element: Element) -> Nodes:
    value = _value(element)
    if isinstance(value, Text) and value.strip():
        return Nodes([("#text", value)])
    return value if isinstance(value, Nodes) else Nodes()


def _value(element: Element, depth: int = 0) -> Any:
    """Return the value of an element. Attributes other than those of XML Schema are pairs of it."""
    if depth > _MAX_DEPTH:
        raise NotReadable("the body is XML that is nested too deeply")
    if element.get(_NIL) in ("true", "1"):
        return None
    attributes = [
        (f"@{name.rpartition('}')[2]}", Text(value))
        for name, value in element.attrib.items()
        if not name.startswith(f"{{{XSI}}}")
    ]
    children = [(local_name(each), _value(each, depth + 1)) for each in element]
    text = element.text or ""
    if not children and not attributes:
        return Text(text)
    return Nodes([*attributes, *([("#text", Text(text))] if text.strip() else []), *children])


def content(body: bytes) -> Any:
    """Return a body that cannot be parsed as a value for `_rescued`: its text, or its bytes in Base64 if it is not
    UTF-8.
    """
    try:
        return body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def plain(value: Any) -> Any:
    """Return a value as JSON can have it. Of XML elements with the same name, the values are a list."""
    if isinstance(value, Nodes):
        found: dict[str, list[Any]] = {}
        for name, each in value:
            found.setdefault(name, []).append(plain(each))
        return {name: same if len(same) > 1 else same[0] for name, same in found.items()}
    return value


def as_json(value: Any) -> str:
    """Write a value as JSON. Numbers keep all their digits."""
    try:
        return _ENCODER.encode(value).decode()
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError, msgspec.MsgspecError):
        return json.dumps(value, default=str)  # a surrogate without its partner, a number beyond 64 bits
