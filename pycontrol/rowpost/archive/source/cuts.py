"""Cut a queue into batches, and batches into ranges of row versions that take about the same time to read.

Row versions have gaps, and one message may have the size of thousands. Only the database can therefore say where a
batch ends (`Bounds`): it reads sizes, and no bodies. Ranges are cut by a sample of the messages (`divide`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from rowpost.database.connection import Connection

__all__ = ["Bounds", "Range", "Sampled", "divide", "divide_visible", "shares", "split"]

_MOST_MESSAGES = 2**31 - 1  # of find_row_version

#: What reading a message costs in addition to its bytes.
_MESSAGE_BYTES = 500
_ENOUGH = 16  # measured messages for each range


@dataclass(frozen=True)
class Range:
    """Offsets greater than `above` and at most `upto`: row versions, or numbers of the spool."""

    above: int
    upto: int


class Sampled(NamedTuple):
    """A measured message: its row version, the bytes of headers and body, and about how many messages it stands for."""

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


def divide(
    above: int, upto: int, parts: int, sample: Sequence[Sampled], max_messages: int | None = None
) -> list[Range]:
    """Divide a range into about `parts` ranges with about the same work.

    With `max_messages`, a range with about more messages is divided further. With few measured messages, row versions
    are divided evenly.

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


def divide_visible(
    above: int, upto: int, first: int | None, parts: int, sample: Sequence[Sampled], max_messages: int | None = None
) -> list[Range]:
    """Divide from the first visible message on (None: there is none).

    The first range begins at `above`: receivers may hold messages there.
    """
    if upto <= above:
        return []
    begin = upto if first is None else min(max(above, first - 1), upto)
    ranges = divide(begin, upto, parts, sample, max_messages)
    return [Range(above, ranges[0].upto), *ranges[1:]] if ranges else [Range(above, upto)]


def _limited(whole: Range, max_messages: int, ordered: Sequence[Sampled]) -> list[Range]:
    within = [each for each in ordered if whole.above < each.row_version <= whole.upto]
    about = min(sum(each.messages for each in within), whole.upto - whole.above)
    if about <= max_messages:
        return [whole]
    return _cut(whole.above, whole.upto, ceil(about / max_messages), within, lambda each: each.messages)


def _cut(above: int, upto: int, parts: int, ordered: Sequence[Sampled], weigh: Callable[[Sampled], int]) -> list[Range]:
    total, passed, low = sum(map(weigh, ordered)), 0, above
    ranges: list[Range] = []
    for each in ordered:
        passed += weigh(each)
        if passed * parts >= total * (len(ranges) + 1) and len(ranges) < parts - 1 and low < each.row_version < upto:
            ranges.append(Range(low, each.row_version))
            low = each.row_version
    return [*ranges, Range(low, upto)]


@dataclass(frozen=True)
class Bounds:
    """What a batch may have at most. None is no bound. A message that has more bytes is a batch of its own."""

    messages: int | None = None
    bytes: int | None = None

    def may_end(self, row_versions: int) -> bool:
        """Tell whether a batch may end within so many row versions."""
        return self.bytes is not None or (self.messages is not None and row_versions > self.messages)

    def end(self, database: Connection, queue: str, above: int, upto: int) -> int:
        """Return the row version at which a batch ends that begins above another one."""
        count = min(self.messages or _MOST_MESSAGES, _MOST_MESSAGES)
        (row,) = database.call("find_row_version", queue, above=above, upto=upto, count=count, bytes=self.bytes)
        return upto if row.row_version is None else row.row_version

    def shared(self, wanted: Mapping[str, int]) -> dict[str, Bounds]:
        """Share the bounds between queues with so many messages: bytes equally between those that have any."""
        messages = {} if self.messages is None else shares(self.messages, wanted)
        busy = max(1, sum(count > 0 for count in wanted.values()))
        share = None if self.bytes is None else max(1, self.bytes // busy)
        # a message may have arrived since a queue was found empty
        return {name: Bounds(None if self.messages is None else max(1, messages[name]), share) for name in wanted}


def shares(limit: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Share a number of rows between queues: small backlogs completely, the rest equally.

    Each backlog gets at least one row.

    >>> shares(100, {"a": 1000, "b": 10, "c": 1000})
    {'b': 10, 'a': 45, 'c': 45}
    """
    found, left = {}, limit
    ordered = sorted(wanted, key=lambda name: wanted[name])
    for place, name in enumerate(ordered):
        found[name] = min(wanted[name], max(1, left // (len(ordered) - place)))
        left = max(0, left - found[name])
    return found
