"""Record single measurements for ServiceControl's monitoring: critical time, processing time, and retries, by message
type.

A worker has the observer `Recorder` only if the environment sends metrics. `Recorder.take` returns what was recorded
since its last call as `Measurements`, which go to the supervisor with the worker's report. The names and rules are
those of the plugin NServiceBus.Metrics:

- A message counts when it is done, also if its handlers discarded it. The sums of a `timings.Stopwatch` count handled
  messages only.
- A failed attempt counts as a retry if the message is tried again, at once or after a delay.
- The type is the header EnclosedMessageTypes as it arrived.

A retry after the loss of a process or of a connection is not recorded, because the headers are not read again.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from rowpost.pipeline.observer import Headers, Measurement, Observer
from rowpost.recoverability.outcome import Kind
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES
from rowpost.wire.metrics import CRITICAL_TIME, METRICS, PROCESSING_TIME, RETRIES, ticks_at

__all__ = ["LONGEST_TYPE", "Measurements", "Recorder"]

#: the most characters of a recorded type; a longer one, which any sender may write, counts as none
LONGEST_TYPE = 4000
_DONE = frozenset({Kind.HANDLED, Kind.DISCARDED})
_RETRIED = frozenset({Kind.FAILED, Kind.DELAYED})


@dataclass(frozen=True, slots=True)
class Measurements:
    """What a worker measured between two reports.

    Attributes:
        types: message types.
        values: for each metric, three numbers a measurement, one after the other: time in .NET ticks, place in `types`,
            value.
    """

    types: tuple[str, ...]
    values: dict[str, array[int]]


class Recorder(Observer):
    """Records measurements between two reports."""

    def __init__(self) -> None:
        self._types: dict[str, int] = {}
        self._values = _empty()

    def measured(self, measurement: Measurement) -> None:
        """Record messages whose transaction has ended."""
        ticks, values = ticks_at(measurement.ended), self._values
        if measurement.kind in _RETRIED:
            for headers in measurement.headers:
                values[RETRIES].extend((ticks, self._type(headers), 1))
        elif measurement.kind in _DONE:
            for headers, processing, critical in zip(
                measurement.headers, measurement.processing, measurement.critical, strict=True
            ):
                place = self._type(headers)
                values[PROCESSING_TIME].extend((ticks, place, _milliseconds(processing)))
                if critical is not None:
                    values[CRITICAL_TIME].extend((ticks, place, _milliseconds(critical)))

    def take(self) -> Measurements | None:
        """Return what was recorded since the last call; None if that is nothing."""
        if not any(self._values.values()):
            return None
        taken = Measurements(tuple(self._types), self._values)
        self._types, self._values = {}, _empty()
        return taken

    def _type(self, headers: Headers) -> int:
        name = headers.get(ENCLOSED_MESSAGE_TYPES)
        known = (
            isinstance(name, str) and len(name) <= LONGEST_TYPE
        )  # a handler may have written anything into the headers
        return self._types.setdefault(name if name is not None and known else "", len(self._types))


def _empty() -> dict[str, array[int]]:
    return {metric: array("q") for metric in METRICS}


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
