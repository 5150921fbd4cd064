"""Collect critical times and processing times as histograms, by message type, for metrics.

A worker has the observer `TypedStopwatch` only if its environment serves metrics. `TypedStopwatch.take` returns what
was measured since its last call; the supervisor adds it up with `merge`. Handled messages count. The type is the first
one of the header EnclosedMessageTypes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from rowpost.pipeline.observer import Measurement, Observer
from rowpost.recoverability.outcome import Kind
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES
from rowpost.wire.message_types import first_type

__all__ = [
    "BOUNDARIES_S",
    "MOST_TYPES",
    "OTHER_TYPES",
    "Histogram",
    "Histograms",
    "TypeTimes",
    "TypedStopwatch",
    "merge",
]

#: upper limits of the buckets in seconds; a last bucket has no limit
BOUNDARIES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
#: the most message types of one queue that are told apart, because any sender may write a type
MOST_TYPES = 100
#: the type of the messages above this number
OTHER_TYPES = "(other)"
_LONGEST_TYPE = 300


@dataclass(slots=True)
class Histogram:
    """How many values lie in each bucket, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDARIES_S) + 1))
    total: float = 0.0

    @classmethod
    def of(cls, values: list[float]) -> Histogram:
        """Return the histogram of values in seconds."""
        ordered = sorted(values)
        up_to = [0, *(bisect_right(ordered, limit) for limit in BOUNDARIES_S), len(ordered)]
        return cls([more - less for less, more in pairwise(up_to)], sum(ordered))

    def add(self, other: Histogram) -> None:
        """Add another histogram's values."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    @property
    def buckets(self) -> list[tuple[str, int]]:
        """The upper limits as Prometheus writes them, each with the number of values up to it."""
        limits, found, below = [*map(str, BOUNDARIES_S), "+Inf"], [], 0
        for limit, count in zip(limits, self.counts, strict=True):
            below += count
            found.append((limit, below))
        return found


@dataclass(slots=True)
class TypeTimes:
    """The times of one message type in seconds. A message without a time of sending has no critical time."""

    critical: Histogram = field(default_factory=Histogram)
    processing: Histogram = field(default_factory=Histogram)


#: by message type; empty for messages without one
Histograms = dict[str, TypeTimes]


def merge(into: Histograms, more: Mapping[str, TypeTimes]) -> None:
    """Add histograms to others. Types above `MOST_TYPES` count as `OTHER_TYPES`."""
    for name, times in more.items():
        known = into.setdefault(name if name in into or len(into) < MOST_TYPES else OTHER_TYPES, TypeTimes())
        known.critical.add(times.critical)
        known.processing.add(times.processing)


@dataclass(slots=True)
class _Values:
    """The times of one header in seconds, until they are counted."""

    critical: list[float] = field(default_factory=list)
    processing: list[float] = field(default_factory=list)

    def counted(self) -> TypeTimes:
        return TypeTimes(Histogram.of(self.critical), Histogram.of(self.processing))


class TypedStopwatch(Observer):
    """Collects the times of handled messages by type.

    Values are counted when they are taken, all at once, because that costs least.
    """

    def __init__(self) -> None:
        #: by the header's text, because finding the type in it for each message would cost more than all else here
        self._by_header: dict[str, _Values] = {}

    def measured(self, measurement: Measurement) -> None:
        """Add handled messages. Others do not count."""
        if measurement.kind is not Kind.HANDLED:
            return
        processing, waits = measurement.processing, measurement.critical
        names = [headers.get(ENCLOSED_MESSAGE_TYPES) for headers in measurement.headers]
        if names and names.count(names[0]) == len(names):  # the usual case: a batch of one type
            values = self._values_of(names[0])
            values.processing += processing
            values.critical += [wait for wait in waits if wait is not None]
            return
        for name, seconds, wait in zip(names, processing, waits, strict=True):
            values = self._values_of(name)
            values.processing.append(seconds)
            if wait is not None:
                values.critical.append(wait)

    def take(self) -> Histograms | None:
        """Return the histograms since the last call; None if no message was handled."""
        taken, self._by_header = self._by_header, {}
        if not taken:
            return None
        found: Histograms = {}
        for header, values in taken.items():
            merge(found, {_type_in(header): values.counted()})
        return found

    def _values_of(self, header: object) -> _Values:
        known = (
            self._by_header.get(header) if isinstance(header, str) else None
        )  # a handler may have written anything into the headers
        if known is not None:
            return known
        key = header if isinstance(header, str) else ""
        return self._by_header.setdefault(key if len(self._by_header) < MOST_TYPES else OTHER_TYPES, _Values())


def _type_in(header: str) -> str:
    name = first_type(header)
    return name if len(name) <= _LONGEST_TYPE else OTHER_TYPES
