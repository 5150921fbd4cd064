"""Counts and durations as people write and read them."""

from __future__ import annotations

import re
from datetime import timedelta

import typer

__all__ = ["PEEK_LIMIT", "format_count", "format_exact_count", "format_seconds", "parse_duration"]

#: a peek stops counting at this number of messages
PEEK_LIMIT = 10_000

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(-?)((?:{_PART.pattern})+)")


def format_count(waiting: int) -> str:
    """Format the result of a peek, which counts only up to `PEEK_LIMIT`.

    >>> format_count(10_000), format_count(1)
    ('10,000 messages or more', '1 message')
    """
    if waiting >= PEEK_LIMIT:
        return f"{PEEK_LIMIT:,} messages or more"
    return format_exact_count(waiting)


def format_exact_count(count: int) -> str:
    """Format an exact number of messages.

    >>> format_exact_count(1), format_exact_count(1200)
    ('1 message', '1,200 messages')
    """
    return f"{count:,} message{'' if count == 1 else 's'}"


def format_seconds(seconds: float | None) -> str:
    """Format a duration in the unit that fits it. Returns an empty text for None.

    >>> format_seconds(0.0042), format_seconds(12.3), format_seconds(7260.0)
    ('4 ms', '12.3 s', '2 h 1 min')
    """
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:  # noqa: PLR2004 -- two minutes read well in seconds
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as 90s, 5m, 1h30m, 60d or 250ms. A leading minus makes it negative.

    >>> parse_duration("1h30m"), parse_duration("250ms")
    (datetime.timedelta(seconds=5400), datetime.timedelta(microseconds=250000))

    Raises:
        typer.BadParameter: the text is not a duration, or the duration is too long for a `timedelta`.
    """
    match = _WHOLE.fullmatch(text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration: write, for example, 90s, 5m, 1h30m or 60d")
    try:
        span = timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(match[2])))
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is too long: the longest duration is 999999999d") from None
    return -span if match[1] else span
