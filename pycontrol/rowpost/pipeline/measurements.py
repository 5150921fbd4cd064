"""Record single measurements for ServiceControl's monitoring: critical time, processing time, and retries, by message type.

A worker has a `Recorder` only if the environment sends metrics. `Recorder.take` returns what was recorded since its last call as
`Measurements`, which go to the supervisor with the worker's report. The names and rules are those of the plugin NServiceBus.Metrics:

- A message counts when it is done, also if its handlers discarded it. The sums in `timings` count handled messages only.
- A failed attempt counts as a retry if the message is tried again, at once or after a delay.
- The type is the header EnclosedMessageTypes as it arrived.

A retry after the loss of a process or of a connection is not recorded, because the headers are not read again.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rowpost.pipeline.timings import critical_time, due_at
from rowpost.recoverability.outcome import Kind
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES
from rowpost.wire.metrics import CRITICAL_TIME, METRICS, PROCESSING_TIME, RETRIES, ticks_at

__all__ = ["LONGEST_TYPE", "Measurements", "Recorder"]

Headers = Mapping[str, str | None]

#: the most characters of a recorded type; a longer one, which any sender may write, counts as none
LONGEST_TYPE = 4000
_DONE = frozenset({Kind.HANDLED, Kind.DISCARDED})
_RETRIED = frozenset({Kind.FAILED, Kind.DELAYED})


@dataclass(frozen=True, slots=True)
class Measurements:
    """What a worker measured between two reports.

    Attributes:
        types: message types.
        values: for each metric, three numbers a measurement, one after the other: time in .NET ticks, place in `types`, value.
    """

    types: tuple[str, ...]
    values: dict[str, array[int]]


class Recorder:
    """Records measurements between two reports."""

    def __init__(self) -> None:
        self._types: dict[str, int] = {}
        self._values = _empty()

    def ended(self, kind: Kind, headers: Headers, started: float, ended: float) -> None:
        """Record the end of an attempt to handle a message.

        Args:
            kind: its outcome.
            headers: those of the message.
            started: when its handler started.
            ended: when its transaction ended. Both times are in seconds since 1970.
        """
        if kind in _DONE:
            self.completed([(headers, started)], ended)
        elif kind in _RETRIED:
            self._values[RETRIES].extend((ticks_at(ended), self._type(headers), 1))

    def completed(self, begun: Sequence[tuple[Headers, float]], completed: float) -> None:
        """Record messages that were committed together. The arguments are those of `timings.Stopwatch.add`."""
        ticks = ticks_at(completed)
        for headers, started in begun:
            place = self._type(headers)
            self._values[PROCESSING_TIME].extend((ticks, place, _milliseconds(completed - started)))
            waited = critical_time(due_at(headers), completed)
            if waited is not None:
                self._values[CRITICAL_TIME].extend((ticks, place, _milliseconds(waited)))

    def take(self) -> Measurements | None:
        """Return what was recorded since the last call; None if that is nothing."""
        if not any(self._values.values()):
            return None
        taken = Measurements(tuple(self._types), self._values)
        self._types, self._values = {}, _empty()
        return taken

    def _type(self, headers: Headers) -> int:
        name = headers.get(ENCLOSED_MESSAGE_TYPES)
        known = isinstance(name, str) and len(name) <= LONGEST_TYPE  # a handler may have written anything into the headers
        return self._types.setdefault(name if name is not None and known else "", len(self._types))


def _empty() -> dict[str, array[int]]:
    return {metric: array("q") for metric in METRICS}


def _milliseconds(seconds: float) -> int:
    return max(0, int(seconds * 1000))
