"""Bodies in XML, as NServiceBus's XML serializer writes and reads them.

The element of a message bears the name of its type and, as its default namespace, that of the type. A dataclass's field
`order_id` is the element `OrderId` in it. The types of the fields decide how a value is written; a type for which
NServiceBus has no form is refused when the class is first met. Bodies with a document type or entities are refused.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from functools import cache, cached_property, partial
from typing import Annotated, Any, Literal
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException

from rowpost.errors import InvalidMessage, MessageNotDeserialized
from rowpost.wire.dotnet_values import enum_member, member_name, property_name
from rowpost.wire.message_types import short_type, type_key, type_name, type_names
from rowpost.wire.xml_text import parse_xml
from rowpost.wire.xml_values import SCALARS, XSI, Form, Misfit, escaped, leaf, local_name, placed

__all__ = ["XML", "XmlSerializer"]

XML = "text/xml"
_DEFAULT_NAMESPACE = "http://tempuri.net"
_NAME = re.compile(r"[^\W\d][\w-]*")
#: what stands between the names of a generic type and of its arguments, and around the class in which a type stands
_GENERIC = re.compile(r"`\d+\[\[|\],\[|\]\]|[^\[\],]*\+")


class XmlSerializer:
    """XML for dataclasses.

    Args:
        names: how elements are written: "pascal" writes the field `order_id` as `OrderId`, as .NET does, "declared" as
            `order_id`. Both are read.
        namespace: what stands before the namespace of a message's type; as given to NServiceBus by `Namespace(...)`.
        allow_unknown: whether a body is read that has elements, and none of a class's. Its fields then have their
            defaults.
    """

    content_type = XML

    def __init__(
        self,
        *,
        names: Literal["pascal", "declared"] = "pascal",
        namespace: str = _DEFAULT_NAMESPACE,
        allow_unknown: bool = False,
    ) -> None:
        if names not in ("pascal", "declared"):
            raise ValueError(f"names is {names!r}; it must be 'pascal' or 'declared'.")
        self._names: str = names
        self._namespace = namespace
        self._allow_unknown = allow_unknown

    def encode(self, message: Any) -> bytes:
        cls: Any = type(message)
        try:
            content = _class_form(cls, self._names).write(message)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidMessage(f"{cls.__name__} cannot be written as XML: {error}") from error
        name = _element_name(type_name(cls))
        space = type_key(type_name(cls)).partition("[")[0].rpartition(".")[0]
        bases = "".join(
            f' xmlns:baseType{number or ""}="{escaped(base)}"' for number, base in enumerate(type_names(cls)[1:])
        )
        return (
            f'<?xml version="1.0"?><{name} xmlns:xsi="{XSI}" xmlns:xsd="http://www.w3.org/2001/XMLSchema"{bases}'
            f' xmlns="{escaped(self._namespace)}/{escaped(space)}">{content.strip()}</{name}>'
        ).encode()

    def decode(self, body: bytes, cls: type) -> Any:
        """Return the message; as a dict, the texts by the names of their elements, and under `$type` the type that the
        body names.
        """
        try:
            root = _message(parse_xml(body), cls)
            if cls is dict:
                return _untyped(root)
            if not self._allow_unknown:
                _fields(cls, self._names).check_known(root)
            return _class_form(cls, self._names).read(root)
        except (ParseError, DefusedXmlException, TypeError, ValueError, LookupError, RecursionError) as error:
            raise MessageNotDeserialized(
                f"The body is no {cls.__name__}: {error}. It begins with {body[:60]!r}."
            ) from error


# --------------------------------------------------------------------------------------------------- the forms of types
def _form(hint: Any, names: str) -> Form:
    """Return the form of a type.

    Raises:
        TypeError: it has none.
    """
    while hasattr(hint, "__supertype__"):  # a NewType
        hint = hint.__supertype__
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _form(arguments[0], names)
    if isinstance(hint, type) and not arguments:
        return _plain_form(hint, names)
    for origins, make in ((_UNIONS, _union_form), ((Literal,), _literal_form), ((dict, Mapping), _dict_form)):
        if origin in origins:
            return make(arguments, names)
    if isinstance(origin, type) and issubclass(origin, Iterable) and (origin is not tuple or arguments[1:] == (...,)):
        return _list_form(origin, arguments[0], names)
    raise TypeError(f"{hint} has no form in XML")


def _plain_form(cls: type, names: str) -> Form:
    if dataclasses.is_dataclass(cls):
        return _class_form(cls, names)
    if issubclass(cls, Enum):
        return _enum_form(cls)
    if cls not in SCALARS:
        raise TypeError(
            f"{cls.__name__} has no form in XML" + (": it does not say of what" if issubclass(cls, Collection) else "")
        )
    return SCALARS[cls]


_UNIONS = (typing.Union, types.UnionType)


def _union_form(arguments: tuple[Any, ...], names: str) -> Form:
    some = [each for each in arguments if each is not type(None)]
    if len(some) != 1:
        raise TypeError(
            f"{' | '.join(str(each) for each in arguments)} has no form in XML: which of them a text is, nothing says"
        )
    return dataclasses.replace(_form(some[0], names), is_optional=True)


def _literal_form(arguments: tuple[Any, ...], names: str) -> Form:
    form = _form(type(arguments[0]), names)

    def one_of(value: Any) -> Any:
        if value not in arguments:
            raise ValueError(f"{value!r} is none of {', '.join(repr(each) for each in arguments)}")
        return value

    return dataclasses.replace(
        form, write=lambda value: form.write(one_of(value)), read=lambda element: one_of(form.read(element))
    )


def _list_form(origin: Any, of: Any, names: str) -> Form:
    form = _form(of, names)
    build = origin if origin in (list, tuple, set, frozenset) else list

    def write(values: Any) -> str:
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise TypeError(f"Expected `{origin.__name__}`, got `{type(values).__name__}`")
        return "".join(placed(form.item, each, f"[{number}]") for number, each in enumerate(values)) or "\n"

    def read(element: Element) -> Any:
        return build(placed(form.value, each, f"[{number}]") for number, each in enumerate(element))

    return Form(f"ListOf{form.name}", write, read)


def _dict_form(arguments: tuple[Any, ...], names: str) -> Form:
    key, value = (_form(each, names) for each in arguments)
    pair = f"NServiceBus.KeyValuePairOf{key.name}And{value.name}"

    def write(values: Any) -> str:
        if not isinstance(values, Mapping):
            raise TypeError(f"Expected `dict`, got `{type(values).__name__}`")
        return "".join(placed(write_pair, each, f"[{each[0]!r}]") for each in values.items()) or "\n"

    def write_pair(each: tuple[Any, Any]) -> str:
        return f"<{pair}>{key.element('Key', each[0])}{value.element('Value', each[1])}</{pair}>"

    def read_pair(element: Element) -> tuple[Any, Any]:
        parts = {local_name(each): each for each in element}
        if "Key" not in parts or ("Value" not in parts and not value.is_optional):
            raise ValueError("A pair has no Key or no Value")
        return key.value(parts["Key"]), value.value(parts["Value"]) if "Value" in parts else None

    def read(element: Element) -> dict[Any, Any]:
        return dict(placed(read_pair, each, f"[{number}]") for number, each in enumerate(element))

    return Form(f"DictionaryOf{key.name}And{value.name}", write, read)


def _enum_form(members: type[Enum]) -> Form:
    """Return the form of an enum: one of numbers by its member's name in .NET, one of texts by its text."""
    named = not any(isinstance(each.value, str) for each in members)

    def write(value: Any) -> str:
        member = value if isinstance(value, members) else enum_member(members, value)
        return escaped(member_name(member) if named else str(member.value))

    return Form(
        members.__name__ if named else "String",
        write,
        lambda element: enum_member(members, leaf(element)),
        is_value_type=named,
    )


# ---------------------------------------------------------------------------------------------------------- dataclasses
@cache
def _fields(cls: Any, names: str) -> _Fields:
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"XML is written and read of dataclasses, and {getattr(cls, '__name__', cls)} is none")
    return _Fields(cls, names)


@cache
def _class_form(cls: Any, names: str) -> Form:
    fields = _fields(cls, names)
    return Form(_element_name(type_name(cls)), fields.write, fields.read)


@dataclasses.dataclass(eq=False)
class _Fields:
    """The fields of a dataclass, looked at when they are first needed: a class may hold itself."""

    cls: Any
    names: str

    @cached_property
    def of(self) -> dict[str, tuple[str, Form]]:
        """Of each field: the name of its element, and its form."""
        hints = typing.get_type_hints(self.cls, include_extras=True)
        written = {
            name: property_name(name) if self.names == "pascal" else name
            for name in (f.name for f in dataclasses.fields(self.cls))
        }
        return {
            name: (element, placed(partial(_form, names=self.names), hints[name], f".{name}"))
            for name, element in written.items()
        }

    @cached_property
    def by_element(self) -> dict[str, str]:
        """The fields by the names that their elements may have."""
        spellings = {spelled: name for name in self.of for spelled in (property_name(name), name)}
        return spellings | {element: name for name, (element, _) in self.of.items()}

    def write(self, value: Any) -> str:
        if not isinstance(value, self.cls):
            raise TypeError(f"Expected `{self.cls.__name__}`, got `{type(value).__name__}`")
        return (
            "".join(
                placed(partial(form.element, element), getattr(value, name), f".{element}")
                for name, (element, form) in self.of.items()
            )
            or "\n"
        )

    def read(self, element: Element) -> Any:
        values = {}
        for each in element:
            name = self.by_element.get(local_name(each))
            if name is not None:
                values[name] = placed(self.of[name][1].value, each, f".{local_name(each)}")
        given: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for field in dataclasses.fields(self.cls):
            if field.name in values:
                (given if field.init else others)[field.name] = values[field.name]
            elif field.init and field.default is field.default_factory is dataclasses.MISSING:
                given[field.name] = None
                self._check_optional(field.name)
        built = self.cls(**given)
        for name, value in others.items():
            object.__setattr__(built, name, value)
        return built

    def check_known(self, element: Element) -> None:
        """Raise ValueError if an element has others in it, and none of the class's."""
        there = [local_name(each) for each in element]
        if there and self.of and self.by_element.keys().isdisjoint(there):
            known = ", ".join(element for element, _ in self.of.values())
            raise ValueError(
                f"none of its elements is one of the class: it has {', '.join(there)[:300]}, the class {known}"
            )

    def _check_optional(self, name: str) -> None:
        element, form = self.of[name]
        if not form.is_optional:
            raise Misfit(f"The element {element} is missing", "")


def _element_name(full_name: str) -> str:
    """Name a type's element:

    `Outer+Inner` is `Inner`, ``Box`1[[System.Int32]]`` is `BoxOfInt32`. Raises TypeError if it can name none.
    """
    own = _GENERIC.sub(
        lambda found: "Of" if found[0].endswith("[[") else "And" if found[0] == "],[" else "", short_type(full_name)
    )
    if not _NAME.fullmatch(own):
        raise TypeError(f"{own!r} cannot be the name of an element")
    return own


def _message(root: Element, cls: Any) -> Element:
    """Return the one message in a document: NServiceBus 3 and 4 put an element `Messages` around it."""
    if local_name(root) != "Messages" or (cls is not dict and _element_name(type_name(cls)) == "Messages"):
        return root
    if len(root) != 1:
        raise ValueError(
            f"The element Messages holds {len(root)} messages, and a row of a queue holds one. Send each message by "
            "itself"
        )
    return root[0]


def _untyped(root: Element) -> dict[str, Any]:
    space = root.tag.partition("}")[0].rpartition("/")[2] if root.tag.startswith("{") else ""
    return {
        "$type": f"{space}.{local_name(root)}".strip("."),
        **{local_name(each): _untyped_value(each) for each in root},
    }


def _untyped_value(element: Element) -> Any:
    return {local_name(each): _untyped_value(each) for each in element} if len(element) else leaf(element)
