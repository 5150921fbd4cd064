"""The pools of one supervisor: one for each queue with a worker in the settings, and those that a change of the
settings has replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from rowpost.errors import SettingsError
from rowpost.settings.environment import Settings
from rowpost.settings.worker import WorkerSettings
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.protocol import Assignment, SharedHighWaterMark
from rowpost.workers.snapshot import Figures
from rowpost.workers.supervision.monitor import PEEKS_TOGETHER
from rowpost.workers.supervision.pool import WorkerPool
from rowpost.workers.supervision.slots import SlotHosts
from rowpost.workers.supervision.warm import IdleWorkers, WarmProcess
from rowpost.workers.worker.process import shared_high_water_mark, spawn_slots

__all__ = ["Pools", "place"]


class Pools:
    """The pools by the names of their queues.

    Args:
        settings: those of the environment.
        make: makes the pool of a queue; called with the arguments of `WorkerPool` that are not the same for all queues.
        breaker: the circuit breaker with which each worker starts.
        warm: takes the first messages of quiet queues.

    Raises:
        SettingsError: no queue has a worker, or a peek delay is too short.
    """

    def __init__(
        self, settings: Settings, make: Callable[..., WorkerPool], breaker: CircuitBreaker, warm: WarmProcess
    ) -> None:
        self.settings, self._make, self._breaker, self._warm = settings, make, breaker, warm
        self._idle = IdleWorkers()
        self._workers = _workers_of(settings)
        #: of the run: workers share it
        self.lifeline: object = None
        # shared with all workers of a queue, also those of the next run
        self._high_water_marks: dict[str, SharedHighWaterMark] = {}
        #: pools that were replaced, until their workers have exited
        self._leaving: list[WorkerPool] = []
        self.renew()

    @property
    def all(self) -> list[WorkerPool]:
        """All pools, also those whose workers are exiting."""
        self._leaving = [pool for pool in self._leaving if not pool.finished]
        return [*self.by_name.values(), *self._leaving]

    def tick(self, now: float) -> float:
        """Let each pool that is due perform its actions. Return when the next one is due."""
        due = float("inf")
        for pool in self.all:  # of a thousand queues, only a few are due at the same time
            due = min(due, pool.tick(now) if pool.due_at <= now else pool.due_at)
        return due

    def coalesce_peeks(self, now: float) -> None:
        """Let peeks that are nearly due join those that are pending, unless a round trip is full already."""
        pending = sum(pool.peek_pending for pool in self.by_name.values())
        if 0 < pending < PEEKS_TOGETHER:
            for pool in self.by_name.values():
                pool.coalesce_peek(now)

    def renew(self) -> None:
        """Make the pools of a run, and replace those that have ended."""
        #: counts of a run, which a queue keeps when a change of the settings replaces its pool
        self._figures: dict[str, Figures] = {}
        self.by_name = {name: self._build(name, worker, self.settings) for name, worker in self._workers.items()}
        self._use_warm()

    def _use_warm(self) -> None:
        """Let the warm process work for the queues that may be quiet, if one of them does not keep a worker."""
        count = self.settings.supervisor.idle_workers
        quiet = [name for name, worker in self._workers.items() if worker.may_be_quiet]
        self._idle.use(count, quiet)
        self._warm.use(partial(self._of_quiet, quiet) if len(quiet) > count else None)

    def _of_quiet(self, names: list[str]) -> tuple[Assignment, ...]:
        return tuple(self._assignment(name, self._workers[name], 0, True) for name in names)

    def to_import(self, settings: Settings) -> list[Assignment]:
        """Return what imports the handlers of those workers that `change` would replace or add.

        Raises SettingsError.
        """
        after = _workers_of(settings)
        changed, limits = _changes(self._workers, after)
        return [
            Assignment(settings=settings, queue=name, handler=after[name].handler, imports_only=True)
            for name in changed
            if name in after and name not in limits
        ]

    def change(self, settings: Settings) -> list[str]:
        """Continue with other settings, and return the queues whose workers changed.

        A changed limit is set. A queue with other changes gets new workers, beside those that still handle a message.

        Raises:
            SettingsError: as for the class; then nothing is changed.
        """
        before, after = self._workers, _workers_of(settings)
        changed, limits = _changes(before, after)
        built = {
            name: self._build(name, after[name], settings) for name in changed if name in after and name not in limits
        }
        self.settings, self._workers = settings, after
        for name in limits:
            self.by_name[name].set_limit(after[name].limit)
        for name in changed:
            if name in before and name not in limits:
                pool = self.by_name.pop(name)
                pool.stop(now=False)
                self._leaving.append(pool)
        self.by_name |= built
        self._use_warm()
        return changed

    def _build(self, name: str, worker: WorkerSettings, settings: Settings) -> WorkerPool:
        self._high_water_marks.setdefault(name, shared_high_water_mark())
        figures = self._figures.setdefault(name, Figures())
        slots: dict[str, Any] = (
            {} if worker.concurrency == 1 else {"spawn": SlotHosts(worker.concurrency, spawn_slots).spawn}
        )
        return self._make(
            name,
            worker,
            **slots,
            assign=partial(self._assignment, name, worker),
            idle_timeout=settings.supervisor.idle_timeout,
            patience=settings.supervisor.stop_timeout,
            leases=any(queue.lease for queue in settings.queues if queue.name == name),
            figures=figures,
            **({"warm": self._warm, "idle": self._idle} if worker.may_be_quiet else {}),
        )

    def _assignment(self, queue: str, worker: WorkerSettings, number: int, receive: bool) -> Assignment:
        pool = self.by_name[queue]
        return Assignment(
            settings=self.settings,
            queue=queue,
            handler=worker.handler,
            number=number,
            retries=worker.retries,
            error_queue=self.settings.supervisor.error_queue,
            polls=worker.strategy != "peek",
            receive=receive,
            subscribes=not pool.is_subscribed,
            breaker=self._breaker,
            time_limit=worker.time_limit,
            backoff=pool.backoff,
            reports_failures_at_once=worker.throttle_after > 0,
            exclusive=worker.exclusive,
            batch=worker.batch,
            batch_time=worker.batch_time,
            lifeline=self.lifeline,
            high_water_mark=None if worker.exclusive else self._high_water_marks[queue],
        )


def place(settings: Settings) -> tuple[object, ...]:
    """Return what a supervisor cannot change while it runs: its database, and where it serves metrics."""
    return settings.engine, settings.url, settings.data_folder, settings.supervisor.metrics


def _changes(before: dict[str, WorkerSettings], after: dict[str, WorkerSettings]) -> tuple[list[str], set[str]]:
    """Return the queues whose workers differ, and those of them that differ in the limit alone."""
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    limits = {
        name
        for name in changed
        if name in before and name in after and replace(before[name], limit=after[name].limit) == after[name]
    }
    return changed, limits


def _workers_of(settings: Settings) -> dict[str, WorkerSettings]:
    workers = {queue.name: queue.worker for queue in settings.queues if queue.worker is not None}
    if not workers:
        raise SettingsError(
            f"No queue of the environment {settings.environment!r} has a worker. Add `worker: {{handler: "
            f"module:function}}` below a queue."
        )
    return workers
