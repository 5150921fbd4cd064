"""Sum up the times of handled messages, for status, events and `rowpost top`."""

from __future__ import annotations

from rowpost.pipeline.observer import Observer
from rowpost.pipeline.timings import Measurement, Times
from rowpost.recoverability.outcome import Kind

__all__ = ["Stopwatch"]


class Stopwatch(Observer):
    """Sums up the times of handled messages between two reports."""

    def __init__(self) -> None:
        self._times = Times()

    def measured(self, measurement: Measurement) -> None:
        """Add handled messages. Others do not count."""
        if measurement.kind is Kind.HANDLED:
            processing, waited = measurement.processing, [each for each in measurement.critical if each is not None]
            self._times += Times(len(processing), sum(processing), max(processing), len(waited), sum(waited), max(waited, default=0.0))

    def take(self) -> Times:
        """Return the times since the last call."""
        times, self._times = self._times, Times()
        return times
