"""The metrics of a supervisor, made anew at each scrape from what it has anyway. `METRICS` lists them.

Names and units follow the conventions of Prometheus. The counts go from the start of the supervisor. Depths and due
times are those of the last peek: a scrape makes no statement.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from rowpost.version import __version__
from rowpost.workers import events
from rowpost.workers.exposition.health import hindrances
from rowpost.workers.exposition.observations import Observations, Status
from rowpost.workers.snapshot import QueueSnapshot

__all__ = ["Families"]

ReadStatus = Callable[[], Status]


@dataclass(frozen=True, slots=True)
class _Gauge:
    """A number of one queue now. `value` returns None if it is not known."""

    name: str
    text: str
    value: Callable[[QueueSnapshot, Observations], float | None]


@dataclass(frozen=True, slots=True)
class _Counter:
    """A count of one queue since the start of the supervisor. `label`, if any, tells its `values` apart."""

    name: str
    text: str
    values: Callable[[QueueSnapshot, Observations], dict[str, int]]
    label: str = ""


def _one(value: Callable[[QueueSnapshot], int]) -> Callable[[QueueSnapshot, Observations], dict[str, int]]:
    return lambda queue, _: {"": value(queue)}


_GAUGES = (
    _Gauge(
        "rowpost_queue_depth",
        "Messages waiting at the last peek, which counts up to supervisor.peek_batch_size (1,000).",
        lambda q, _: q.depth,
    ),
    _Gauge(
        "rowpost_queue_last_peek_timestamp_seconds",
        "When a peek at the queue last succeeded, in seconds since 1970.",
        lambda q, seen: seen.peek(q.queue).at,
    ),
    _Gauge(
        "rowpost_queue_delayed_next_due_timestamp_seconds",
        "When the next delayed message is due, as the last peek found; absent if there is none.",
        lambda q, seen: seen.peek(q.queue).next_due,
    ),
    _Gauge(
        "rowpost_queue_paused",
        "1 if operators have paused the queue, or given this supervisor no worker.",
        lambda q, _: q.paused,
    ),
    _Gauge("rowpost_queue_circuit_breaker_open", "1 if receiving has failed for too long.", lambda q, _: q.critical),
    _Gauge(
        "rowpost_queue_throttled",
        "1 if too many attempts in a row have failed, so that one worker is left.",
        lambda q, _: q.throttled,
    ),
    _Gauge("rowpost_workers", "Worker processes.", lambda q, _: q.workers),
    _Gauge("rowpost_workers_busy", "Worker processes that have work.", lambda q, _: q.busy),
    _Gauge("rowpost_workers_limit", "The most worker processes.", lambda q, _: q.limit),
    _Gauge("rowpost_workers_target", "The number of worker processes that the queue needs now.", lambda q, _: q.target),
)
_COUNTERS = (
    _Counter("rowpost_messages_handled", "Messages that were handled and committed.", _one(lambda q: q.handled)),
    _Counter(
        "rowpost_attempts_failed",
        ("Failed attempts to handle a message, the last one of each included."),
        _one(lambda q: q.attempts_failed),
    ),
    _Counter(
        "rowpost_retries",
        "Failed attempts after which the message is tried again: at once, or after a delay.",
        lambda q, _: {"immediate": q.failed, "delayed": q.delayed},
        "kind",
    ),
    _Counter(
        "rowpost_messages_moved_to_error",
        ("Messages moved to the error queue: no retry was left, or their headers cannot be read."),
        lambda q, _: {"failed": q.moved_to_error, "corrupt": q.poison},
        "reason",
    ),
    _Counter(
        "rowpost_messages_discarded",
        ("Messages that ended without being handled, for a known reason."),
        _one(lambda q: q.discarded),
    ),
    _Counter(
        "rowpost_messages_expired",
        "Messages that were removed because their time was over.",
        lambda q, seen: {"": q.expired + seen.count(events.ExpiredPurged, q.queue)},
    ),
    _Counter(
        "rowpost_delayed_messages_moved",
        ("Delayed messages that became due and were moved by this supervisor."),
        lambda q, seen: {"": seen.count(events.DelayedMoved, q.queue)},
    ),
    _Counter(
        "rowpost_workers_started",
        "Worker processes that have started.",
        lambda q, seen: {"": seen.number(events.WorkerStarted, q.queue)},
    ),
    _Counter("rowpost_worker_crashes", "Worker processes that died.", _one(lambda q: q.died)),
    _Counter(
        "rowpost_handler_timeouts",
        "Handlers that ran longer than their time limit.",
        lambda q, seen: {"": seen.number(events.TimedOut, q.queue)},
    ),
)
_TIMES = (
    ("rowpost_critical_time_seconds", "From when a message was sent, or due, until its commit.", "critical"),
    ("rowpost_processing_time_seconds", "From the start of a message's handler until its commit.", "processing"),
)
_DESCRIBED = ("owner", "runbook")


class Families:
    """A collector of prometheus_client. `read` returns the supervisor's status."""

    def __init__(self, read: ReadStatus, seen: Observations) -> None:
        self._read, self._seen = read, seen

    def describe(self) -> list[Metric]:
        """Return nothing: the registry does not have to scrape in order to know the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        status = self._read()
        yield from self._of_supervisor(status)
        yield from self._described(status)
        for gauge in _GAUGES:
            yield self._gauge(gauge, status)
        for counter in _COUNTERS:
            yield self._counter(counter, status)
        yield from self._times(status)

    def _of_supervisor(self, status: Status) -> Iterator[Metric]:
        seen, settings = self._seen, status.settings
        build = GaugeMetricFamily(
            "rowpost_build_info", "The version of rowpost, and of Python.", labels=["version", "python"]
        )
        build.add_metric([__version__, platform.python_version()], 1)
        yield build
        here = GaugeMetricFamily(
            "rowpost_supervisor_info",
            "This supervisor, as `rowpost workers` shows it.",
            labels=["environment", "engine", "host", "process_id"],
        )
        here.add_metric([settings.environment, settings.engine, socket.gethostname(), str(os.getpid())], 1)
        yield here
        yield GaugeMetricFamily(
            "rowpost_supervisor_start_timestamp_seconds",
            "When the supervisor started, in seconds since 1970.",
            seen.started_at,
        )
        ready = not hindrances(status, seen)
        yield GaugeMetricFamily(
            "rowpost_supervisor_ready", "1 if the supervisor is ready, as /health/ready says.", int(ready)
        )
        yield CounterMetricFamily(
            "rowpost_supervisor_reloads", "How often the environment was read again.", seen.number(events.Reloaded, "")
        )
        critical = CounterMetricFamily(
            "rowpost_critical_events",
            "Events on which a person has to act. An empty queue stands for the supervisor.",
            labels=["queue"],
        )
        for queue in dict.fromkeys(
            [*(each.queue for each in status.snapshot.queues), "", *seen.queues_of(events.Critical)]
        ):
            critical.add_metric([queue], seen.number(events.Critical, queue))
        yield critical

    def _described(self, status: Status) -> Iterator[Metric]:
        queues = GaugeMetricFamily(
            "rowpost_queue_info", "What the environment says about a queue.", labels=["queue", *_DESCRIBED]
        )
        for queue in status.snapshot.queues:
            declared = status.settings.queue(queue.queue)
            queues.add_metric([queue.queue, *(getattr(declared, name, "") for name in _DESCRIBED)], 1)
        yield queues
        types = GaugeMetricFamily(
            "rowpost_message_type_info",
            "What the environment says about a message type.",
            labels=["message_type", *_DESCRIBED],
        )
        for each in status.settings.message_types:
            types.add_metric([each.name, each.owner, each.runbook], 1)
        yield types

    def _gauge(self, gauge: _Gauge, status: Status) -> Metric:
        family = GaugeMetricFamily(gauge.name, gauge.text, labels=["queue"])
        for queue in status.snapshot.queues:
            value = gauge.value(queue, self._seen)
            if value is not None:
                family.add_metric([queue.queue], float(value))
        return family

    def _counter(self, counter: _Counter, status: Status) -> Metric:
        family = CounterMetricFamily(
            counter.name, counter.text, labels=["queue", *([counter.label] if counter.label else [])]
        )
        for queue in status.snapshot.queues:
            for label, value in counter.values(queue, self._seen).items():
                family.add_metric([queue.queue, *([label] if counter.label else [])], value)
        return family

    def _times(self, status: Status) -> Iterator[Metric]:
        for name, text, attribute in _TIMES:
            family = HistogramMetricFamily(name, text, labels=["queue", "message_type"])
            for queue, histograms in status.histograms.items():
                for message_type, times in histograms.items():
                    histogram = getattr(times, attribute)
                    family.add_metric([queue, message_type], histogram.buckets, histogram.total)
            yield family
