"""Critical time and processing time: how long messages took, from their sending and in their handler (reference K11).

Critical time runs from when a message was to be handled (DeliverAt of a delayed one, else TimeSent) until it was;
processing time from its receive to its commit. Successes only; a message with neither header has no critical time.
Both are in seconds. Times of sending are the sender's clock's: a clock that is ahead never makes a time negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rowpost.wire.headers import DELIVER_AT, TIME_SENT
from rowpost.wire.message import parse_timestamp

__all__ = ["Stopwatch", "Times", "critical_time", "wanted_at"]


@dataclass(frozen=True, slots=True)
class Times:
    """Times of some handled messages: how many have them, their sum and their greatest, in seconds."""

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
        """The mean; None where nothing was handled."""
        return self.processing_sum / self.processed if self.processed else None

    @property
    def critical_time(self) -> float | None:
        """The mean; None where no message says when it was sent."""
        return self.critical_sum / self.critical if self.critical else None


class Stopwatch:
    """Collects times between two reports; add() is on the way of every message."""

    def __init__(self) -> None:
        self._times = Times()

    def add(self, begun: Sequence[tuple[str | None, float]], completed: float) -> None:
        """Notes messages that were handled: what wanted_at said of their headers before, when their handlers began, and
        when they were committed, in seconds since 1970."""
        processing = [max(0.0, completed - started) for _, started in begun]
        waits = (critical_time(wanted, completed) for wanted, _ in begun)
        waited = [wait for wait in waits if wait is not None]
        self._times += Times(
            len(processing), sum(processing), max(processing, default=0.0), len(waited), sum(waited), max(waited, default=0.0)
        )

    def take(self) -> Times:
        """What was noted since the last call."""
        times, self._times = self._times, Times()
        return times


def wanted_at(headers: Mapping[str, str | None]) -> str | None:
    """When the message was to be handled, in the wire's form; None where its headers do not say."""
    return headers.get(DELIVER_AT) or headers.get(TIME_SENT)


def critical_time(wanted: str | None, completed: float) -> float | None:
    """Seconds from a time in the wire's form to one in seconds since 1970; None where there is none.

    >>> critical_time("1970-01-01 00:00:55:000000 Z", 60.0)
    5.0
    """
    if not wanted:
        return None
    try:
        since = parse_timestamp(wanted)
    except ValueError:  # a foreign sender's own form: it is not ours to judge
        return None
    return max(0.0, completed - since.timestamp())
