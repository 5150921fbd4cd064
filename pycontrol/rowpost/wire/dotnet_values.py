"""Durations and enums in the forms that .NET's serializers use."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import Enum
from typing import Any, TypeVar

__all__ = ["enum_member", "read_duration", "time_span"]

Member = TypeVar("Member", bound=Enum)
_TIME_SPAN = re.compile(r"(?P<sign>-)?(?:(?P<days>\d+)\.)?(?P<hours>[01]?\d|2[0-3]):(?P<minutes>[0-5]?\d):(?P<seconds>[0-5]?\d)(?:\.(?P<fraction>\d{1,7}))?")
_ISO = re.compile(
    r"(?P<sign>-)?P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?S)?)?"
)
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
