"""The periodic task that reports metrics to ServiceControl's monitoring instance, and what it reports.

Workers measure, and hand over with each of their reports what they measured. The supervisor keeps it in
`MetricsReports`, and the task sends it: no worker makes a statement for it. The task has a thread and a connection of
its own. A report is sent in each interval, and as soon as there is enough for a full message.

If the queue of the monitoring instance cannot be reached, measurements wait for the next report, up to `KEPT` of each
metric of each endpoint. Then the oldest are dropped, and an event tells how many.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from rowpost.database.connection import Connection
from rowpost.pipeline.measurements import Measurements
from rowpost.recoverability.policy import Host
from rowpost.settings.environment import Settings
from rowpost.settings.service_control import ServiceControlSettings
from rowpost.transport.directory import Directory
from rowpost.transport.dispatch import dispatch
from rowpost.wire.address import parse_address
from rowpost.wire.metrics import METRICS, VALUES_PER_MESSAGE, Source, metadata_report, portions, values_report
from rowpost.wire.outgoing import AddressedMessage
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.tasks.periodic import PeriodicTask

__all__ = ["KEPT", "MetricsReports", "make_metrics"]

#: the most values of a metric that wait to be sent, for each endpoint; each takes 24 bytes
KEPT = 32 * VALUES_PER_MESSAGE
#: the most message types that an endpoint reports; values of further ones have none
_TYPES = 1000

#: for each metric, three numbers a value, one after the other: time, key of the message type, value
_Values = dict[str, "array[int]"]


class _Waiting:
    """The measurements of one endpoint that are not sent yet. `add` and `take` may be called in different threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = _none()
        self._dropped = 0
        self._keys: dict[str, int] = {}
        #: message types by their keys
        self.types: dict[int, str] = {}

    def add(self, measured: Measurements) -> bool:
        """Keep measurements. Return whether there are enough for a full message."""
        keys = [self._key(name) for name in measured.types]
        with self._lock:
            for metric, values in measured.values.items():
                values[1::3] = array("q", [keys[place] for place in values[1::3]])
                self._values[metric].extend(values)
            self._drop_surplus()
            return any(len(values) >= 3 * VALUES_PER_MESSAGE for values in self._values.values())

    def take(self) -> _Values:
        """Remove and return all that waits."""
        with self._lock:
            taken, self._values = self._values, _none()
            return taken

    def give_back(self, taken: _Values) -> None:
        """Keep again what could not be sent. It is older than what was added meanwhile."""
        with self._lock:
            for metric, values in taken.items():
                values.extend(self._values[metric])
            self._values = taken
            self._drop_surplus()

    def take_dropped(self) -> int:
        """Return how many measurements were dropped since the last call."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
            return dropped

    def _drop_surplus(self) -> None:
        for values in self._values.values():
            surplus = max(0, len(values) // 3 - KEPT)
            del values[: 3 * surplus]
            self._dropped += surplus

    def _key(self, name: str) -> int:
        """Return the key of a type, which stays the same, and is above 0: to the reader, 0 is no type at all."""
        if name not in self._keys and len(self._keys) >= _TYPES:
            name = ""
        key = self._keys.setdefault(name, len(self._keys) + 1)
        self.types[key] = name
        return key


def _none() -> _Values:
    return {metric: array("q") for metric in METRICS}


class MetricsReports:
    """What the supervisor has to report about its endpoints: the names of the endpoints are those of `queues`."""

    def __init__(self, where: ServiceControlSettings, monitoring: str, queues: dict[str, str]) -> None:
        self._interval, self._monitoring, self._instance = where.metrics_interval, monitoring, where.instance
        self._names, self._main = queues, {name: queue for queue, name in reversed(queues.items())}
        self._waiting = {queue: _Waiting() for queue in queues}
        self._metadata_at = dict.fromkeys(self._waiting, float("-inf"))
        self._directory = Directory()

    @classmethod
    def of(cls, settings: Settings) -> MetricsReports | None:
        """Return an empty one for the endpoints of these settings; None if they send no metrics."""
        where = settings.service_control
        if where is None or where.monitoring is None:
            return None
        names = {each.name: settings.endpoint_name(each.name) for each in settings.queues if each.worker is not None}
        return cls(where, where.monitoring, names)

    @property
    def queues(self) -> list[str]:
        """The queues of the endpoints."""
        return list(self._waiting)

    def add(self, queue: str, measured: Measurements) -> bool:
        """Keep what a worker measured until it is sent. Return whether there is enough to send it now."""
        return self._waiting[queue].add(measured)

    def send(self, database: Connection, queue: str) -> float:
        """Send what waits in one transaction.

        Return the seconds until the next report. Raises RowpostError: it waits again.
        """
        waiting, now = self._waiting[queue], time.monotonic()
        taken = waiting.take()
        host = Host.here(self._names[queue])
        source = Source(host.endpoint, host.machine, host.id, self._instance)
        outgoing = list(self._metadata(database, queue, source, now))
        outgoing += self._values(taken, source, waiting.types)
        try:
            dispatch(database, [outgoing], self._directory, own_queue=queue, begin=True, commit=True)
        except BaseException:
            waiting.give_back(taken)
            raise
        if now >= self._metadata_at[queue]:
            self._metadata_at[queue] = now + self._interval
        return max(0.0, self._metadata_at[queue] - now)

    def dropped(self, queue: str) -> int:
        """Return how many measurements were dropped since the last call."""
        return self._waiting[queue].take_dropped()

    def _metadata(self, database: Connection, queue: str, source: Source, now: float) -> Iterator[AddressedMessage]:
        if self._main[source.endpoint] == queue and now >= self._metadata_at[queue]:
            yield metadata_report(source, database.canonical(parse_address(queue)), queue=self._monitoring)

    def _values(self, taken: _Values, source: Source, types: dict[int, str]) -> Iterator[AddressedMessage]:
        for metric, numbers in taken.items():
            for portion in portions(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)):
                yield values_report(source, metric, portion, types, queue=self._monitoring)


def make_metrics(
    settings: Settings,
    emit: Callable[[events.Event], None],
    breaker: CircuitBreaker | None = None,
    *,
    reports: MetricsReports,
    **options: Any,
) -> PeriodicTask:
    """Return the task that reports the metrics of the endpoints that this supervisor runs."""

    def send(database: Connection, queue: str) -> float:
        seconds = reports.send(database, queue)
        dropped = reports.dropped(queue)
        if dropped:
            text = (
                f"{dropped} measurements of {queue} were dropped while the queue of the monitoring instance could not "
                "be reached. ServicePulse shows a gap. The messages themselves were handled."
            )
            emit(events.Warned(queue=queue, at=time.time(), text=text))
        return seconds

    return PeriodicTask(
        settings,
        reports.queues,
        send,
        name="rowpost metrics",
        activity="report metrics to ServiceControl about",
        emit=emit,
        breaker=breaker,
        once_more=True,
        **options,
    )
