"""Measure critical time and processing time of messages, in seconds.

Critical time lasts from when a message was due (header DeliverAt, else TimeSent) until its commit. Processing time
lasts from the start of its handler until its commit. A message without these headers has no critical time. Due times
come from the sender's clock. If that clock is ahead, a time counts as 0.

A pipeline measures its messages once for all of its observers: `measure` returns a `Measurement`. The observer
`Stopwatch` sums up the times of handled messages for status and events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rowpost.pipeline.observer import Begun, Measurement, Observer
from rowpost.recoverability.outcome import Kind
from rowpost.wire.headers import DELIVER_AT, TIME_SENT
from rowpost.wire.message import parse_timestamp

__all__ = ["Stopwatch", "Times", "measure"]


def measure(kind: Kind, begun: Begun, ended: float) -> Measurement:
    """Measure messages of a transaction that ended at `ended`, in seconds since 1970."""
    headers = [each for each, _ in begun]
    processing = [max(0.0, ended - started) for _, started in begun]
    return Measurement(
        kind,
        headers,
        processing,
        [critical_time(each.get(DELIVER_AT) or each.get(TIME_SENT), ended) for each in headers],
        ended,
    )


@dataclass(frozen=True, slots=True)
class Times:
    """Sums of times: how many messages have one, their sum and their maximum, in seconds."""

    processed: int = 0
    processing_sum: float = 0.0
    processing_max: float = 0.0
    critical: int = 0
    critical_sum: float = 0.0
    critical_max: float = 0.0

    def __add__(self, other: Times) -> Times:
        return Times(
            self.processed + other.processed,
            self.processing_sum + other.processing_sum,
            max(self.processing_max, other.processing_max),
            self.critical + other.critical,
            self.critical_sum + other.critical_sum,
            max(self.critical_max, other.critical_max),
        )

    @property
    def processing_time(self) -> float | None:
        """The mean; None if no message was handled."""
        return self.processing_sum / self.processed if self.processed else None

    @property
    def critical_time(self) -> float | None:
        """The mean; None if no message has a due time."""
        return self.critical_sum / self.critical if self.critical else None


class Stopwatch(Observer):
    """Sums up the times of handled messages between two reports."""

    def __init__(self) -> None:
        self._times = Times()

    def measured(self, measurement: Measurement) -> None:
        """Add handled messages. Others do not count."""
        if measurement.kind is Kind.HANDLED:
            processing, waited = measurement.processing, [each for each in measurement.critical if each is not None]
            self._times += Times(
                len(processing), sum(processing), max(processing), len(waited), sum(waited), max(waited, default=0.0)
            )

    def take(self) -> Times:
        """Return the times since the last call."""
        times, self._times = self._times, Times()
        return times


def critical_time(due: object, completed: float) -> float | None:
    """Return the seconds between a time in the format of headers and one in seconds since 1970; None if there is none.

    >>> critical_time("1970-01-01 00:00:55:000000 Z", 60.0)
    5.0
    """
    if not isinstance(due, str):  # a handler may have written anything into the headers
        return None
    if (
        due[19:20] != ":" or due[26:] != " Z" or not due.isascii() or not due[20:26].isdecimal()
    ):  # another sender's format
        return None
    try:
        since = _second(due[:19])
    except ValueError:
        return None
    return max(0.0, completed - since - int(due[20:26]) / 1e6)


@lru_cache(maxsize=16)
def _second(text: str) -> float:
    """Return a time to the second in seconds since 1970. Many messages of a backlog share one."""
    return parse_timestamp(f"{text}:000000 Z").timestamp()
