"""The metrics of a supervisor, made anew at each scrape from what it has anyway. `METRICS` lists them.

Names and units follow the conventions of Prometheus. The counts go from the start of the supervisor. Depths and due
times are those of the last peek: a scrape makes no statement.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from rowpost.version import __version__
from rowpost.workers import events
from rowpost.workers.exposition.health import hindrances
from rowpost.workers.exposition.observations import Observations, Status
from rowpost.workers.snapshot import QueueSnapshot

__all__ = ["Families"]

ReadStatus = Callable[[], Status]
_Kind = type[GaugeMetricFamily] | type[CounterMetricFamily]


@dataclass(frozen=True, slots=True)
class _OfQueue:
    """A metric of one queue. `label`, if any, tells its `values` apart; one that is None is not known, and left out."""

    name: str
    text: str
    values: Callable[[QueueSnapshot, Observations], Mapping[str, float | None]]
    label: str = ""


def _one(name: str, text: str, value: Callable[[QueueSnapshot, Observations], float | None]) -> _OfQueue:
    return _OfQueue(name, text, lambda queue, seen: {"": value(queue, seen)})


#: numbers of a queue now
_GAUGES = (
    _one(
        "rowpost_queue_depth",
        "Messages waiting at the last peek, which counts up to supervisor.peek_batch_size (1,000).",
        lambda q, _: q.depth,
    ),
    _one(
        "rowpost_queue_last_peek_timestamp_seconds",
        "When a peek at the queue last succeeded, in seconds since 1970.",
        lambda q, seen: seen.peek(q.queue).at,
    ),
    _one(
        "rowpost_queue_delayed_next_due_timestamp_seconds",
        "When the next delayed message is due, as the last peek found; absent if there is none.",
        lambda q, seen: seen.peek(q.queue).next_due,
    ),
    _one(
        "rowpost_queue_paused",
        "1 if operators have paused the queue, or given this supervisor no worker.",
        lambda q, _: q.paused,
    ),
    _one("rowpost_queue_circuit_breaker_open", "1 if receiving has failed for too long.", lambda q, _: q.critical),
    _one(
        "rowpost_queue_throttled",
        "1 if too many attempts in a row have failed, so that one worker is left.",
        lambda q, _: q.throttled,
    ),
    _one("rowpost_workers", "Workers: each is a process, or a slot of one.", lambda q, _: q.workers),
    _one("rowpost_workers_busy", "Workers that have work.", lambda q, _: q.busy),
    _one(
        "rowpost_workers_limit",
        "The most messages handled at the same time.",
        lambda q, _: q.limit,
    ),
    _one("rowpost_workers_target", "The number of workers that the queue needs now.", lambda q, _: q.target),
)
#: counts of a queue since the start of the supervisor
_COUNTERS = (
    _one("rowpost_messages_handled", "Messages that were handled and committed.", lambda q, _: q.handled),
    _one(
        "rowpost_attempts_failed",
        "Failed attempts to handle a message, the last one of each included.",
        lambda q, _: q.attempts_failed,
    ),
    _OfQueue(
        "rowpost_retries",
        "Failed attempts after which the message is tried again: at once, or after a delay.",
        lambda q, _: {"immediate": q.failed, "delayed": q.delayed},
        "kind",
    ),
    _OfQueue(
        "rowpost_messages_moved_to_error",
        "Messages moved to the error queue: no retry was left, or their headers cannot be read.",
        lambda q, _: {"failed": q.moved_to_error, "corrupt": q.poison},
        "reason",
    ),
    _one(
        "rowpost_messages_discarded",
        "Messages that ended without being handled, for a known reason.",
        lambda q, _: q.discarded,
    ),
    _one(
        "rowpost_messages_expired",
        "Messages that were removed because their time was over.",
        lambda q, seen: q.expired + seen.count(events.ExpiredPurged, q.queue),
    ),
    _one(
        "rowpost_delayed_messages_moved",
        "Delayed messages that became due and were moved by this supervisor.",
        lambda q, seen: seen.count(events.DelayedMoved, q.queue),
    ),
    _one(
        "rowpost_workers_started",
        "Worker processes that have started.",
        lambda q, seen: seen.number(events.WorkerStarted, q.queue),
    ),
    _one("rowpost_worker_crashes", "Worker processes that died.", lambda q, _: q.died),
    _one(
        "rowpost_handler_timeouts",
        "Handlers that ran longer than their time limit.",
        lambda q, seen: seen.number(events.TimedOut, q.queue),
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
        yield from self._of_queues(GaugeMetricFamily, _GAUGES, status)
        yield from self._of_queues(CounterMetricFamily, _COUNTERS, status)
        yield from self._of_schedules()
        yield from self._times(status)

    def _of_supervisor(self, status: Status) -> Iterator[Metric]:
        seen, settings = self._seen, status.settings
        yield _family(
            GaugeMetricFamily,
            "rowpost_build_info",
            "The version of rowpost, and of Python.",
            ["version", "python"],
            [([__version__, platform.python_version()], 1)],
        )
        yield _family(
            GaugeMetricFamily,
            "rowpost_supervisor_info",
            "This supervisor, as `rowpost workers` shows it.",
            ["environment", "engine", "host", "process_id"],
            [([settings.environment, settings.engine, socket.gethostname(), str(os.getpid())], 1)],
        )
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
        queues = dict.fromkeys([*(each.queue for each in status.snapshot.queues), "", *seen.queues_of(events.Critical)])
        yield _family(
            CounterMetricFamily,
            "rowpost_critical_events",
            "Events on which a person has to act. An empty queue stands for the supervisor.",
            ["queue"],
            [([queue], seen.number(events.Critical, queue)) for queue in queues],
        )

    def _described(self, status: Status) -> Iterator[Metric]:
        queues: list[tuple[str, object]] = [
            (each.queue, status.settings.queue(each.queue)) for each in status.snapshot.queues
        ]
        types: list[tuple[str, object]] = [(each.name, each) for each in status.settings.message_types]
        for label, said_of, found in (("queue", "queue", queues), ("message_type", "message type", types)):
            yield _family(
                GaugeMetricFamily,
                f"rowpost_{label}_info",
                f"What the environment says about a {said_of}.",
                [label, *_DESCRIBED],
                [([of, *(getattr(declared, name, "") for name in _DESCRIBED)], 1) for of, declared in found],
            )

    def _of_queues(self, kind: _Kind, metrics: Iterable[_OfQueue], status: Status) -> Iterator[Metric]:
        for metric in metrics:
            values = [
                ([queue.queue, *([label] if metric.label else [])], value)
                for queue in status.snapshot.queues
                for label, value in metric.values(queue, self._seen).items()
                if value is not None
            ]
            labels = ["queue", *([metric.label] if metric.label else [])]
            yield _family(kind, metric.name, metric.text, labels, values)

    def _of_schedules(self) -> Iterator[Metric]:
        """Yield the metric of schedules; none without schedules."""
        if due := self._seen.schedules:
            yield _family(
                GaugeMetricFamily,
                "rowpost_schedule_next_due_timestamp_seconds",
                "When the schedule is due next, in seconds since 1970; absent if it is paused.",
                ["queue", "schedule"],
                [([*name], each) for name, each in due.items()],
            )

    def _times(self, status: Status) -> Iterator[Metric]:
        for name, text, attribute in _TIMES:
            family = HistogramMetricFamily(name, text, labels=["queue", "message_type"])
            for queue, histograms in status.histograms.items():
                for message_type, times in histograms.items():
                    histogram = getattr(times, attribute)
                    family.add_metric([queue, message_type], histogram.buckets, histogram.total)
            yield family


def _family(
    kind: _Kind,
    name: str,
    text: str,
    labels: list[str],
    values: Iterable[tuple[list[str], float]],
) -> Metric:
    """Return a metric with its values, each with its labels."""
    family = kind(name, text, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family
