"""Divide a queue into ranges of row versions that take about the same time to read.

Row versions have gaps, and one message may have the size of thousands. The ranges are therefore cut by a sample of the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import NamedTuple

__all__ = ["Range", "Sampled", "divide", "divide_visible", "split"]

#: What reading a message costs in addition to its bytes.
_MESSAGE_BYTES = 500
_ENOUGH = 16  # measured messages for each range


@dataclass(frozen=True)
class Range:
    """Offsets greater than `above` and at most `upto`: row versions, or numbers of the spool."""

    above: int
    upto: int


class Sampled(NamedTuple):
    """A measured message: its row version, the size of its headers and body, and about how many messages it stands for."""

    row_version: int
    bytes: int
    messages: int


def split(above: int, upto: int, parts: int) -> list[Range]:
    """Split a range into about equal, non-empty parts.

    >>> split(0, 10, 3)
    [Range(above=0, upto=3), Range(above=3, upto=6), Range(above=6, upto=10)]
    """
    parts = max(min(parts, upto - above), 0)
    cuts = [above + (upto - above) * part // parts for part in range(parts)] + [upto]
    return [Range(low, high) for low, high in pairwise(cuts)]


def divide(above: int, upto: int, parts: int, sample: Sequence[Sampled], max_messages: int | None = None) -> list[Range]:
    """Divide a range into about `parts` ranges with about the same work.

    With `max_messages`, a range with about more messages is divided further. With few measured messages, row versions are divided evenly.

    >>> sample = [Sampled(number, 0, 1) for number in range(1, 41)]
    >>> divide(0, 1000, 2, sample)
    [Range(above=0, upto=20), Range(above=20, upto=1000)]
    """
    ordered = sorted(each for each in sample if above < each.row_version <= upto)
    if not ordered or len(ordered) < min(_ENOUGH * parts, upto - above):
        ranges = split(above, upto, parts)
    else:
        ranges = _cut(above, upto, parts, ordered, lambda each: (each.bytes + _MESSAGE_BYTES) * each.messages)
    if max_messages is None:
        return ranges
    return [part for whole in ranges for part in _limited(whole, max_messages, ordered)]


def divide_visible(above: int, upto: int, first: int | None, parts: int, sample: Sequence[Sampled], max_messages: int | None = None) -> list[Range]:
    """Divide from the first visible message on (None: there is none). The first range begins at `above`: receivers may hold messages there."""
    if upto <= above:
        return []
    begin = upto if first is None else min(max(above, first - 1), upto)
    ranges = divide(begin, upto, parts, sample, max_messages)
    return [Range(above, ranges[0].upto), *ranges[1:]] if ranges else [Range(above, upto)]


def _limited(whole: Range, max_messages: int, ordered: Sequence[Sampled]) -> list[Range]:
    within = [each for each in ordered if whole.above < each.row_version <= whole.upto]
    about = min(sum(each.messages for each in within), whole.upto - whole.above)
    return _cut(whole.above, whole.upto, ceil(about / max_messages), within, lambda each: each.messages) if about > max_messages else [whole]


def _cut(above: int, upto: int, parts: int, ordered: Sequence[Sampled], weigh: Callable[[Sampled], int]) -> list[Range]:
    total, passed, low = sum(map(weigh, ordered)), 0, above
    ranges: list[Range] = []
    for each in ordered:
        passed += weigh(each)
        if passed * parts >= total * (len(ranges) + 1) and len(ranges) < parts - 1 and low < each.row_version < upto:
            ranges.append(Range(low, each.row_version))
            low = each.row_version
    return [*ranges, Range(low, upto)]
