"""Spans of time as people write them."""

from __future__ import annotations

import re
from datetime import timedelta

import typer

__all__ = ["parse_duration"]

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(-?)((?:{_PART.pattern})+)")


def parse_duration(text: str) -> timedelta:
    """90s, 5m, 1h30m, 60d or 250ms; with a minus in front it is negative.

    Raises typer.BadParameter.

    >>> parse_duration("1h30m"), parse_duration("250ms")
    (datetime.timedelta(seconds=5400), datetime.timedelta(microseconds=250000))
    """
    match = _WHOLE.fullmatch(text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no span of time: write 90s, 5m, 1h30m or 60d")
    try:
        span = timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(match[2])))
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is longer than any calendar") from None
    return -span if match[1] else span
