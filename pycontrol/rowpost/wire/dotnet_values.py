"""Names and values in the forms that .NET's serializers use."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import msgspec

__all__ = ["dotnet_number", "enum_member", "iso_duration", "member_name", "property_name", "read_duration", "time_span", "without_zeros"]

Member = TypeVar("Member", bound=Enum)
_TIME_SPAN = re.compile(
    r"(?P<sign>-)?(?:(?P<days>\d+)\.)?(?P<hours>[01]?\d|2[0-3]):(?P<minutes>[0-5]?\d):(?P<seconds>[0-5]?\d)(?:\.(?P<fraction>\d{1,7}))?"
)
_ISO = re.compile(r"(?P<sign>-)?P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?S)?)?")
_HOUR_S, _MINUTE_S = 3_600, 60


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
    """Return the duration in a text, in .NET's form or in that of ISO 8601, rounded to the microsecond.

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
    days, hours, minutes, seconds = (int(found[part] or 0) for part in ("days", "hours", "minutes", "seconds"))
    microseconds = (int((found["fraction"] or "").ljust(7, "0")[:7]) + 5) // 10
    try:
        duration = timedelta(days, hours * _HOUR_S + minutes * _MINUTE_S + seconds, microseconds)
    except OverflowError as error:
        raise ValueError(f"{text!r} is a duration of too many days") from error
    return -duration if found["sign"] else duration


def iso_duration(duration: timedelta) -> str:
    """Return a duration as XML has it.

    >>> iso_duration(timedelta(days=1, seconds=3601)), iso_duration(timedelta(0)), iso_duration(timedelta(seconds=-1.5))
    ('P1DT1H1S', 'PT0S', '-PT1.5S')
    """
    whole = abs(duration)
    minutes, seconds = divmod(whole.seconds, _MINUTE_S)
    hours, minutes = divmod(minutes, _MINUTE_S)
    second = without_zeros(f"{seconds}.{whole.microseconds:06}")
    clock = "".join(f"{number}{unit}" for number, unit in ((str(hours), "H"), (str(minutes), "M"), (second, "S")) if number != "0")
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


@cache
def property_name(name: str) -> str:
    """Return the name of a field as .NET would spell it, by msgspec's rule, as in JSON.

    >>> property_name("order_id"), property_name("SKU")
    ('OrderId', 'SKU')
    """
    (field,) = msgspec.structs.fields(msgspec.defstruct("Named", [(name, Any)], rename="pascal"))
    return field.encode_name


def member_name(name: str) -> str:
    """Return the name of an enum's member as .NET would spell it.

    >>> member_name("DARK_GREEN"), member_name("DarkGreen")
    ('DarkGreen', 'DarkGreen')
    """
    return property_name(name.lower() if name.isupper() else name)


def enum_member(members: type[Member], value: Any) -> Member:
    """Return the member of an enum with a value, or with a name: upper and lower case and underscores do not count.

    Raises:
        ValueError: there is none.
    """
    if not isinstance(value, bool):
        for read in (members, lambda given: _named(members, given), lambda given: members(int(given))):
            try:
                return read(value)
            except (ValueError, TypeError):
                pass
    raise ValueError(f"{value!r} is no {members.__name__}")


def _named(members: type[Member], name: str) -> Member:
    if not isinstance(name, str):
        raise TypeError(name)
    wanted = _folded(name)
    for each, member in members.__members__.items():
        if _folded(each) == wanted:
            return member
    raise ValueError(name)


def _folded(name: str) -> str:
    return name.replace("_", "").casefold()
