"""The texts of values in XML, as NServiceBus's XML serializer has them."""

from __future__ import annotations

import dataclasses
import re
from base64 import b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from xml.etree.ElementTree import Element

import msgspec

from rowpost.wire.dotnet_values import (
    cut_time,
    dotnet_decimal,
    dotnet_number,
    iso_duration,
    read_duration,
    without_zeros,
)
from rowpost.wire.xml_text import FORBIDDEN, reference

__all__ = ["SCALARS", "XSI", "Form", "Misfit", "escaped", "leaf", "local_name", "placed"]

XSI = "http://www.w3.org/2001/XMLSchema-instance"
_NIL = f"{{{XSI}}}nil"
_forbidden = re.compile(FORBIDDEN).sub
_half = re.compile("[\ud800-\udfff]").search
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INFINITE = {float("inf"): "INF", float("-inf"): "-INF"}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#xD;"})


class Misfit(ValueError):
    """A value that its type does not take, and its place."""

    def __init__(self, reason: Any, place: str) -> None:
        if isinstance(reason, Misfit):
            reason, place = reason.reason, place + reason.place
        self.reason: Any = reason
        self.place = place
        super().__init__(f"{reason} - at `{place.removeprefix('.')}`" if place else str(reason))


@dataclasses.dataclass(frozen=True)
class Form:
    """How the values of a type are written into an element, and read from it.

    `name` is that of the element of such a value in a list. A value type of .NET has `xsi:nil` where there is no value;
    anything else is left out.
    """

    name: str
    write: Callable[[Any], str]
    read: Callable[[Element], Any]
    is_value_type: bool = False
    is_optional: bool = False

    def element(self, name: str, value: Any) -> str:
        """Return a field's value in an element of its own."""
        if value is None and self.is_optional:
            return f'<{name} xsi:nil="true"></{name}>' if self.is_value_type else ""
        return f"<{name}>{self.write(value)}</{name}>"

    def item(self, value: Any) -> str:
        """Return an element of a list."""
        name = (
            "Int64" if self.name == "Int32" and isinstance(value, int) and not -(2**31) <= value < 2**31 else self.name
        )
        if value is None and self.is_optional:
            return f"<{name}>null</{name}>" if self.is_value_type else f'<{name} xsi:nil="true"></{name}>'
        return f"<{name}>{self.write(value)}</{name}>"

    def value(self, element: Element) -> Any:
        """Return the value in an element."""
        if element.get(_NIL) in ("true", "1") or (
            self.is_optional and self.is_value_type and _text(element).strip() in ("", "null")
        ):
            if not self.is_optional:
                raise ValueError("There is no value (xsi:nil)")
            return None
        return self.read(element)


# --------------------------------------------------------------------------------------------------------------- values
def _scalar(
    name: str, cls: type, write: Callable[[Any], str], *takes: type, read: Callable[[str], Any] | None = None
) -> Form:
    def checked(value: Any) -> str:
        if type(value) not in (cls, *takes) and (
            isinstance(value, bool | datetime) or not isinstance(value, (cls, *takes))
        ):
            raise TypeError(f"Expected `{cls.__name__}`, got `{type(value).__name__}`")
        return write(value)

    def found(element: Element) -> Any:
        text = leaf(element).strip()
        try:
            return read(text) if read else msgspec.convert(text, cls, strict=False)
        except Misfit:
            raise
        except (msgspec.ValidationError, ValueError, ArithmeticError) as error:
            raise ValueError(f"{text[:60]!r} is no {cls.__name__}") from error

    return Form(name, checked, found, is_value_type=cls is not bytes)


def _write_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    return escaped(value)


def _write_float(value: float) -> str:
    return _INFINITE.get(value) or ("NaN" if value != value else dotnet_number(value))  # noqa: PLR0124 -- NaN is unequal to itself


def _read_int(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _read_decimal(text: str) -> Any:
    number = Decimal(text)
    return placed(dotnet_decimal, number, "") if number.is_finite() else dotnet_decimal(number)


def _write_decimal(value: Decimal | int) -> str:
    return f"{dotnet_decimal(Decimal(value)):f}"


def _read_time(cls: type) -> Callable[[str], Any]:
    return lambda text: msgspec.convert(cut_time(text), cls, strict=False)


# ------------------------------------------------------------------------------------------------------------- elements
def placed(do: Callable[[Any], Any], value: Any, place: str) -> Any:
    """Do something with a value; its place is added to what goes wrong."""
    try:
        return do(value)
    except (ValueError, TypeError) as error:
        raise Misfit(error, place) from error


def escaped(text: str) -> str:
    """Return a text as it stands in a document. Raises ValueError if it has half of a surrogate pair."""
    found = _half(text)
    if found is not None:
        raise ValueError(f"XML cannot carry the character U+{ord(found[0]):04X}")
    return _forbidden(lambda odd: reference(odd[0]), text.translate(_ESCAPES))


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _text(element: Element) -> str:
    return element.text or ""


def leaf(element: Element) -> str:
    """Return the text in an element. Raises ValueError where it holds elements."""
    if len(element):
        raise ValueError(f"There are elements, such as {local_name(element[0])}, where a value should be")
    return _text(element)


SCALARS: dict[type, Form] = {
    str: Form("String", _write_text, leaf),
    bool: _scalar("Boolean", bool, lambda value: "true" if value else "false"),
    int: _scalar("Int32", int, str, read=_read_int),
    float: _scalar(
        "Double", float, _write_float, int, read=lambda text: float({"INF": "inf", "-INF": "-inf"}.get(text, text))
    ),
    Decimal: _scalar("Decimal", Decimal, _write_decimal, int, read=_read_decimal),
    bytes: _scalar("Bytes", bytes, lambda value: b64encode(value).decode()),
    UUID: _scalar("Guid", UUID, str),
    datetime: _scalar(
        "DateTime",
        datetime,
        lambda value: without_zeros(value.isoformat()).replace("+00:00", "Z"),
        read=_read_time(datetime),
    ),
    date: _scalar("DateOnly", date, date.isoformat),
    time: _scalar("TimeOnly", time, lambda value: without_zeros(value.isoformat()), read=_read_time(time)),
    timedelta: _scalar("TimeSpan", timedelta, iso_duration, read=read_duration),
}
