"""The periodic tasks of one supervisor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rowpost.pipeline.measurements import Measurements
from rowpost.settings.environment import Settings
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.events import Emit
from rowpost.workers.tasks.delayed_mover import make_delayed_mover
from rowpost.workers.tasks.expired_purger import make_expired_purger
from rowpost.workers.tasks.in_doubt_resolver import make_in_doubt_resolver
from rowpost.workers.tasks.job_cleaner import make_job_cleaner
from rowpost.workers.tasks.lease_returner import make_lease_returner
from rowpost.workers.tasks.metrics import MetricsReports, make_metrics
from rowpost.workers.tasks.outbox_cleaner import make_outbox_cleaner
from rowpost.workers.tasks.partition_splitter import make_partition_splitter
from rowpost.workers.tasks.periodic import PeriodicTask
from rowpost.workers.tasks.queue_maintenance import make_queue_maintenance
from rowpost.workers.tasks.schedule_ticker import make_schedule_ticker
from rowpost.workers.tasks.service_control import make_custom_checks, make_heartbeats
from rowpost.workers.tasks.startup_check import make_startup_check

__all__ = ["MakeTask", "TaskGroup"]

MakeTask = Callable[..., PeriodicTask]
#: all tasks except the delayed mover, which is scheduled by the supervisor's loop
TASKS: tuple[MakeTask, ...] = (
    make_startup_check,
    make_expired_purger,
    make_lease_returner,
    make_in_doubt_resolver,
    make_queue_maintenance,
    make_outbox_cleaner,
    make_job_cleaner,
    make_partition_splitter,
    make_schedule_ticker,
    make_heartbeats,
    make_custom_checks,
)


class TaskGroup:
    """The delayed mover, the metrics for ServiceControl, and all other tasks that the settings ask for.

    They run from the start on.

    Args:
        emit: called with each event, in the tasks' threads.
        mover, tasks: replaced in tests.
    """

    def __init__(
        self,
        settings: Settings,
        emit: Emit,
        breaker: CircuitBreaker,
        *,
        mover: MakeTask | None = None,
        tasks: Sequence[MakeTask] | None = None,
    ) -> None:
        self._mover = (mover or make_delayed_mover)(settings, emit, breaker)
        self._measured = MetricsReports.of(settings)
        self._metrics = (
            None if self._measured is None else make_metrics(settings, emit, breaker, reports=self._measured)
        )
        others: list[Any] = [make(settings, emit, breaker) for make in (TASKS if tasks is None else tasks)]
        self._all = [self._mover, *others, *([] if self._metrics is None else [self._metrics])]
        for task in self._all:
            task.start()

    def move_delayed(self, queue: str, seconds: float) -> None:
        """Move the queue's due delayed messages so many seconds from now."""
        self._mover.schedule(queue, seconds)

    def record(self, queue: str, measured: Measurements | None) -> None:
        """Keep what a worker measured for the next report to ServiceControl; under load, request one at once."""
        if (
            self._measured is not None
            and self._metrics is not None
            and measured is not None
            and self._measured.add(queue, measured)
        ):
            self._metrics.schedule(queue, 0.0)

    def stop(self) -> None:
        """End all tasks. Waits at most a second for each, because the database may hang."""
        for task in self._all:
            task.stop()
