"""Names and values in the forms that .NET's serializers use."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from functools import reduce
from operator import or_
from typing import Any, TypeVar

__all__ = [
    "NAMES",
    "cut_time",
    "dotnet_decimal",
    "dotnet_number",
    "enum_member",
    "iso_duration",
    "member_name",
    "property_name",
    "read_duration",
    "time_span",
    "wire_name",
    "without_zeros",
]

Member = TypeVar("Member", bound=Enum)
_TIME_SPAN = re.compile(
    r"(?P<sign>-)?(?:(?P<days>\d+)\.)?(?P<hours>[01]?\d|2[0-3]):(?P<minutes>[0-5]?\d):(?P<seconds>[0-5]?\d)(?:\.(?P<fraction>\d{1,7}))?"
)
_ISO = re.compile(
    r"(?P<sign>-)?P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?S)?)?"
)
_HOUR_S, _MINUTE_S = 3_600, 60
_too_fine = re.compile(r"(.*:\d\d\.\d{6})\d+(.*)").fullmatch
#: the capital letters at the start, without that of a second word; and where a word ends
_capitals = re.compile(r"[A-Z]+(?=[A-Z][^A-Z])|[A-Z]+$|[A-Z]").match
_word_ends = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
#: the greatest decimal of .NET, and the exponents of ten of its smallest one and of a zero that is still written with
#: all its digits
_MOST = Decimal(2**96 - 1)
_SMALLEST, _LONGEST_ZERO = -28, -100


def time_span(duration: timedelta) -> str:
    """Return a duration as a TimeSpan is written.

    >>> time_span(timedelta(days=1, seconds=3601))
    '1.01:00:01'
    >>> time_span(timedelta(seconds=-1.5))
    '-00:00:01.5000000'
    """
    whole = abs(duration)
    minutes, seconds = divmod(whole.seconds, _MINUTE_S)
    hours, minutes = divmod(minutes, _MINUTE_S)
    days = f"{whole.days}." if whole.days else ""
    fraction = f".{whole.microseconds:06}0" if whole.microseconds else ""
    return f"{'-' if duration < timedelta(0) else ''}{days}{hours:02}:{minutes:02}:{seconds:02}{fraction}"


def read_duration(text: str) -> timedelta:
    """Return the duration in a text, in .NET's form or in that of ISO 8601. What is below a microsecond is cut off.

    >>> read_duration("1.01:00:01") == read_duration("P1DT3601S") == timedelta(days=1, seconds=3601)
    True

    Raises:
        ValueError: the text is neither.
    """
    found = _TIME_SPAN.fullmatch(text)
    if found is None:
        found = _ISO.fullmatch(text)
        if found is None or text.endswith(("P", "T")):
            raise ValueError(f"{text!r} is no duration, such as 1.01:00:01 or P1DT1H1S")
    microseconds = int((found["fraction"] or "").ljust(6, "0")[:6])
    try:
        days, hours, minutes, seconds = (int(found[part] or 0) for part in ("days", "hours", "minutes", "seconds"))
        duration = timedelta(days, hours * _HOUR_S + minutes * _MINUTE_S + seconds, microseconds)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{text[:60]!r} is a duration of too many days") from error
    return -duration if found["sign"] else duration


def cut_time(text: str) -> str:
    """Return a time without what is below a microsecond: .NET counts in tenths of it, and rounding would end a day on
    the next one.

    >>> cut_time("2026-12-31T23:59:59.9999999Z"), cut_time("10:00")
    ('2026-12-31T23:59:59.999999Z', '10:00')
    """
    found = _too_fine(text)
    return text if found is None else found[1] + found[2]


def iso_duration(duration: timedelta) -> str:
    """Return a duration as XML has it.

    >>> iso_duration(timedelta(days=1, seconds=3601)), iso_duration(timedelta(0)), iso_duration(timedelta(seconds=-1.5))
    ('P1DT1H1S', 'PT0S', '-PT1.5S')
    """
    whole = abs(duration)
    minutes, seconds = divmod(whole.seconds, _MINUTE_S)
    hours, minutes = divmod(minutes, _MINUTE_S)
    second = without_zeros(f"{seconds}.{whole.microseconds:06}")
    clock = "".join(
        f"{number}{unit}" for number, unit in ((str(hours), "H"), (str(minutes), "M"), (second, "S")) if number != "0"
    )
    day = f"{whole.days}D" if whole.days else ""
    return f"{'-' if duration < timedelta(0) else ''}P{day}{f'T{clock}' if clock else '' if day else 'T0S'}"


def without_zeros(text: str) -> str:
    """Return a time or a number without the zeros at the end of its fraction.

    >>> without_zeros("10:00:01.500000+02:00"), without_zeros("1.000000")
    ('10:00:01.5+02:00', '1')
    """
    return re.sub(r"(\.\d*?)0+(?!\d)", lambda found: "" if found[1] == "." else found[1], text)


def dotnet_number(number: float) -> str:
    """Return a finite number as .NET writes it.

    >>> dotnet_number(1e-07), dotnet_number(100.0), dotnet_number(1.5)
    ('1E-07', '100', '1.5')
    """
    return repr(float(number)).removesuffix(".0").upper()


def dotnet_decimal(number: Decimal | int) -> Decimal | int:
    """Return a number that a decimal of .NET can hold, as it is; .NET rounds digits after the 28th of its fraction.

    Raises:
        ValueError: it is not finite, it is beyond the greatest decimal, or it is smaller than the smallest one, and no
            zero.
    """
    plain = Decimal(number)
    if not plain.is_finite():
        raise ValueError(plain)
    if not -_MOST <= plain <= _MOST or plain.adjusted() < (_SMALLEST if plain else _LONGEST_ZERO):
        raise ValueError(f"{plain:.6E} is out of the range of .NET's decimal, which is from 1E-28 to 7.9E+28")
    return number


def property_name(name: str) -> str:
    """Return the name of a field as .NET would spell it.

    >>> property_name("order_id"), property_name("SKU")
    ('OrderId', 'SKU')
    """
    words = name.lstrip("_")
    return name[: len(name) - len(words)] + "".join(word[:1].upper() + word[1:] for word in words.split("_"))


def _camel(name: str) -> str:
    start = _capitals(name)
    length = 0 if start is None else len(start[0])
    return name[:length].lower() + name[length:]


def _separated(separator: str, name: str) -> str:
    return _word_ends.sub(separator, name)


#: how a property `OrderId` is named on the wire: as the naming policies of System.Text.Json do
_POLICIES: dict[str, Callable[[str], str]] = {
    "pascal": str,
    "camel": _camel,
    "snake_lower": lambda name: _separated("_", name).lower(),
    "snake_upper": lambda name: _separated("_", name).upper(),
    "kebab_lower": lambda name: _separated("-", name).lower(),
    "kebab_upper": lambda name: _separated("-", name).upper(),
}
#: the ways of naming a field on the wire
NAMES = (*_POLICIES, "declared")


def wire_name(name: str, names: str) -> str:
    """Return the name of a field on the wire; `names` is one of NAMES.

    >>> [wire_name("io_line2_text", names) for names in ("camel", "kebab_upper", "declared")], wire_name("SKU", "camel")
    (['ioLine2Text', 'IO-LINE2-TEXT', 'io_line2_text'], 'sku')
    """
    return name if names == "declared" else _POLICIES[names](property_name(name))


def member_name(member: Enum) -> str:
    """Return an enum's member as .NET would spell it; of a number without a name, the number.

    >>> Colour = Enum("Colour", "DARK_GREEN DarkRed")
    >>> member_name(Colour.DARK_GREEN), member_name(Colour.DarkRed)
    ('DarkGreen', 'DarkRed')
    """
    return ", ".join(
        property_name(name.lower() if name.isupper() else name) if name.isidentifier() else name
        for name in _names(member)
    )


def _names(member: Enum) -> list[str]:
    if not isinstance(member, Flag) or member.name in type(member).__members__:
        return [str(member.name)]
    parts = list(member)
    return (
        [str(each.name) for each in parts]
        if parts and sum(each.value for each in parts) == member.value
        else [str(member.value)]
    )


def enum_member(members: type[Member], value: Any) -> Member:
    """Return the member of an enum with a value, or with a name: upper and lower case and underscores do not count.

    Several names with commas between them are flags. .NET's enums hold any number: that of no member of an IntEnum is
    an instance of it whose name is the number; an IntFlag takes any number itself.

    Raises:
        ValueError: there is none.
    """
    if not isinstance(value, bool):
        for read in (members, lambda given: _named(members, given), lambda given: _numbered(members, given)):
            try:
                return read(value)
            except (ValueError, TypeError, LookupError):
                pass
    raise ValueError(f"{value!r} is no {members.__name__}")


def _numbered(members: type[Member], given: Any) -> Member:
    if not isinstance(given, str | int):
        raise TypeError(given)
    number = int(given)
    try:
        return members(number)
    except ValueError:
        if not issubclass(members, IntEnum):
            raise
    member = int.__new__(members, number)
    member._name_, member._value_ = str(number), number
    return member


def _named(members: type[Member], name: str) -> Member:
    if not isinstance(name, str):
        raise TypeError(name)
    known = {_folded(each): member for each, member in members.__members__.items()}
    if issubclass(members, Flag) and "," in name:
        return reduce(or_, (known[_folded(each.strip())] for each in name.split(",")))
    return known[_folded(name)]


def _folded(name: str) -> str:
    return name.replace("_", "").casefold()
