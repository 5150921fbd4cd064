"""The supervisor: one loop that reads reports, requests peeks, and starts and stops workers for each queue.

    supervisor = Supervisor(load_settings("production"))
    supervisor.run()                                       # until SIGTERM or SIGINT
    supervisor.run(until=lambda snapshot: snapshot.idle)   # until all queues are empty: demos and tests

Stopping has two steps. After the first signal, running handlers may finish within `stop_timeout` seconds. The second signal
kills the workers at once. No message is lost when a handler is killed: its transaction rolls back, and the message is in the
queue again.

All waiting happens in this loop. The queue monitor and the periodic tasks run in threads of their own, because a database may
hang; they put what they found into an inbox and wake the loop through a socket, because Windows cannot wait for a pipe.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from rowpost.database import embedded
from rowpost.errors import HandlerNotFound, QueueNotFound, SettingsError
from rowpost.pipeline.measurements import Measurements
from rowpost.settings.environment import Settings
from rowpost.settings.worker import WorkerSettings
from rowpost.transport.delayed import wait_after_peek
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.events import Critical, DelayedMoved, Event, log_event
from rowpost.workers.monitor import Answer, MonitorFailure, QueueMonitor, WakeUp
from rowpost.workers.pool import WorkerPool
from rowpost.workers.pool_members import WorkerHandle
from rowpost.workers.process import shared_high_water_mark, spawn_worker
from rowpost.workers.protocol import Assignment, Progress
from rowpost.workers.snapshot import Snapshot
from rowpost.workers.tasks.delayed_mover import make_delayed_mover
from rowpost.workers.tasks.expired_purger import make_expired_purger
from rowpost.workers.tasks.in_doubt_resolver import make_in_doubt_resolver
from rowpost.workers.tasks.job_cleaner import make_job_cleaner
from rowpost.workers.tasks.metrics import MetricsReports, make_metrics
from rowpost.workers.tasks.outbox_cleaner import make_outbox_cleaner
from rowpost.workers.tasks.partition_splitter import make_partition_splitter
from rowpost.workers.tasks.periodic import PeriodicTask
from rowpost.workers.tasks.queue_maintenance import make_queue_maintenance
from rowpost.workers.tasks.service_control import make_custom_checks, make_heartbeats
from rowpost.workers.tasks.startup_check import make_startup_check

__all__ = ["Supervisor"]

# How often a condition given to run() is checked.
UNTIL_INTERVAL_S = 0.05
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# The periodic tasks besides the delayed mover, which alone is scheduled by the loop.
TASKS = (
    make_startup_check,
    make_expired_purger,
    make_in_doubt_resolver,
    make_queue_maintenance,
    make_outbox_cleaner,
    make_job_cleaner,
    make_partition_splitter,
    make_heartbeats,
    make_custom_checks,
)


class Supervisor:
    """Runs the workers of all queues that have a worker in the settings.

    `stop`, `set_limit` and `snapshot` may be called from any thread and from signal handlers.

    Args:
        on_event: called with each event, in the thread of run(); by default events go to the logger "rowpost".
        breaker: supplies the waits of the circuit breakers; its `seconds` come from the settings.
        clock, sleep, spawn, monitor, delayed_mover, tasks: replaced in tests.

    Raises:
        SettingsError: no queue has a worker, or a peek delay is too short.
    """

    def __init__(
        self,
        settings: Settings,
        on_event: Callable[[Event], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[list[Any], float | None], list[Any]] = wait,
        spawn: Callable[[Assignment], Any] = spawn_worker,
        monitor: Callable[..., QueueMonitor] = QueueMonitor,
        delayed_mover: Callable[..., PeriodicTask] = make_delayed_mover,
        tasks: tuple[Callable[..., PeriodicTask], ...] = TASKS,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self._settings = settings
        self._clock, self._sleep, self._spawn, self._make_monitor = clock, sleep, spawn, monitor
        self._make_delayed_mover, self._task_factories = delayed_mover, tasks
        # each run() creates new ones
        self._monitor: QueueMonitor
        self._delayed_mover: PeriodicTask
        self._metrics: PeriodicTask | None = None
        self._measured = MetricsReports.of(settings)
        self._emit = on_event or log_event
        self._breaker = replace(breaker or CircuitBreaker(), seconds=settings.supervisor.breaker_seconds)
        self._inbox: deque[tuple[str, Any]] = deque()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._stops = 0
        self._kill_at = float("inf")
        self._workers = {queue.name: queue.worker for queue in settings.queues if queue.worker is not None}
        if not self._workers:
            raise SettingsError(
                f"No queue of the environment {settings.environment!r} has a worker. "
                "Add `worker: {handler: module:function}` below a queue."
            )
        self._high_water_marks = {name: shared_high_water_mark() for name in self._workers}
        self._pools = self._build_pools()
        self._ready: set[Any] = set()

    def __del__(self) -> None:
        for end in (getattr(self, "_wake_reader", None), getattr(self, "_wake_writer", None)):
            if end is not None:
                end.close()

    # -------------------------------------------------------------- for any thread
    def stop(self) -> None:
        """Request that run() ends after the running handlers; a second call kills the workers at once."""
        self._post("stop", None)

    def set_limit(self, queue: str, limit: int) -> None:
        """Set the maximum number of workers of a queue.

        Raises:
            QueueNotFound: the queue has no worker in the settings.
            SettingsError: the limit is below 1.
        """
        if queue not in self._pools:
            raise QueueNotFound(f"Queue {queue!r} has no worker in this supervisor. Add `worker:` to the queue in the settings.")
        if limit < 1:
            raise SettingsError(f"The limit of queue {queue!r} must be at least 1 (got {limit}).")
        self._post("limit", (queue, limit))

    def snapshot(self) -> Snapshot:
        """Return the current figures of all queues."""
        now = self._clock()
        return Snapshot(tuple(pool.snapshot(now) for pool in self._pools.values()), stopping=self._stops > 0)

    # -------------------------------------------------------------- the loop
    def run(self, until: Callable[[Snapshot], bool] | None = None) -> None:
        """Run until a stop is requested, or until the condition is true. All workers have exited when this returns.

        In the main thread, SIGTERM and SIGINT request a stop.

        Raises:
            HandlerNotFound: no queue's handler can be imported.
        """
        self._settings = _with_server(self._settings)
        if self._stops:
            self._pools = self._build_pools()
        self._stops, self._kill_at, self._ready = 0, float("inf"), set()
        self._monitor = self._make_monitor(self._settings, partial(self._post, "answer"))
        self._monitor.start()
        emit = partial(self._post, "event")
        self._delayed_mover = self._make_delayed_mover(self._settings, emit, self._breaker)
        tasks = [self._delayed_mover, *(make(self._settings, emit, self._breaker) for make in self._task_factories)]
        if self._measured is not None:
            self._metrics = make_metrics(self._settings, emit, self._breaker, reports=self._measured)
            tasks.append(self._metrics)
        for task in tasks:
            task.start()
        with self._signals():
            try:
                while not self._finished():
                    self._step(until)
            finally:
                self._kill_all()
                for task in tasks:
                    task.stop()
                self._monitor.stop()
                self._emit_rest()
        refused = [pool.refused for pool in self._pools.values() if pool.refused is not None]
        if len(refused) == len(self._pools):
            raise HandlerNotFound("; ".join(refused))

    def _step(self, until: Callable[[Snapshot], bool] | None) -> None:
        now = self._clock()
        self._open_inbox(now)
        for pool in self._pools.values():
            for handle in pool.handles:
                if not self._ready.isdisjoint(handle.process.waitables):
                    self._read_reports(pool, handle, now)
        due = min(pool.tick(now) for pool in self._pools.values())
        if any(pool.peek_pending for pool in self._pools.values()):
            for pool in self._pools.values():
                pool.coalesce_peek(now)
        if until is not None and not self._stops and until(self.snapshot()):
            self._stop(now)
        if now >= self._kill_at:
            self._kill()
        if self._finished():
            return
        if until is not None:
            due = min(due, now + UNTIL_INTERVAL_S)
        self._wait(min(due, self._kill_at) - now)

    def _wait(self, seconds: float) -> None:
        waitables: list[Any] = [self._wake_reader]
        for pool in self._pools.values():
            for handle in pool.handles:
                waitables += handle.process.waitables
        self._ready = set(self._sleep(waitables, None if seconds == float("inf") else max(0.0, seconds)))

    def _read_reports(self, pool: WorkerPool, handle: WorkerHandle, now: float) -> None:
        exitcode = handle.process.exitcode  # before the reports, so that none of an ended process is left unread
        for report in handle.process.reports():
            pool.on_report(handle, report, now)
            if self._measured is not None and isinstance(report, Progress) and report.measured is not None:
                self._record(self._measured, pool.name, report.measured)
        if exitcode is not None:
            pool.on_exit(handle, exitcode, now)
            handle.process.close()

    def _record(self, reports: MetricsReports, queue: str, measured: Measurements) -> None:
        """Keep what a worker measured for the next report; under load, request one at once."""
        if reports.add(queue, measured) and self._metrics is not None:
            self._metrics.schedule(queue, 0.0)

    def _finished(self) -> bool:
        return all(pool.finished for pool in self._pools.values())

    # -------------------------------------------------------------- inbox
    def _post(self, kind: str, value: Any) -> None:
        self._inbox.append((kind, value))
        with suppress(BlockingIOError):  # the buffer is full, so that the loop wakes up anyway
            self._wake_writer.send(b"!")

    def _open_inbox(self, now: float) -> None:
        with suppress(BlockingIOError):
            self._wake_reader.recv(4096)
        while self._inbox:
            match self._inbox.popleft():
                case ("stop", _):
                    self._stop(now)
                case ("limit", (queue, limit)):
                    self._pools[queue].set_limit(limit)
                case ("answer", Answer() as answer):
                    self._on_answer(self._pools[answer.queue], answer, now)
                case ("answer", WakeUp(queue)):
                    for name in self._pools if queue is None else (queue,):
                        if name in self._pools:
                            self._pools[name].on_wake_up(now)
                case ("answer", MonitorFailure(error)):
                    text = f"Unexpected error in the queue monitor, which continues: {type(error).__name__}: {error}"
                    self._emit(Critical(queue=", ".join(self._pools), at=time.time(), error=text))
                case ("event", Event() as event):
                    self._emit(event)
                    if isinstance(event, DelayedMoved):
                        self._pools[event.queue].peek_soon()

    def _emit_rest(self) -> None:
        """Emit what the periodic tasks reported when they ended."""
        for _ in range(len(self._inbox)):
            kind, value = self._inbox.popleft()
            if kind == "event":
                self._emit(value)
            else:
                self._inbox.append((kind, value))

    def _on_answer(self, pool: WorkerPool, answer: Answer, now: float) -> None:
        pool.on_answer(answer, now)
        if answer.next_due is not None:
            lateness = self._settings.supervisor.delayed_lateness
            seconds = wait_after_peek(answer.next_due, pool.seconds_to_next_peek(now), lateness)
            self._delayed_mover.schedule(answer.queue, seconds)

    # -------------------------------------------------------------- stopping
    def _stop(self, now: float) -> None:
        self._stops += 1
        if self._stops > 1:
            self._kill()
            return
        self._kill_at = now + self._settings.supervisor.stop_timeout
        for pool in self._pools.values():
            pool.stop(now=False)

    def _kill(self) -> None:
        self._kill_at = float("inf")
        for pool in self._pools.values():
            if pool.handles:
                pool.stop(now=True)

    def _kill_all(self) -> None:
        """Kill the workers that still run, whatever ended the loop."""
        for pool in self._pools.values():
            for handle in pool.handles:
                handle.kill()
                pool.on_exit(handle, None, self._clock())
                handle.process.close()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Install signal handlers that request a stop; restore the caller's handlers afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # -------------------------------------------------------------- construction
    def _build_pools(self) -> dict[str, WorkerPool]:
        return {name: self._build_pool(name, worker) for name, worker in self._workers.items()}

    def _build_pool(self, name: str, worker: WorkerSettings) -> WorkerPool:
        return WorkerPool(
            name,
            worker,
            assign=partial(self._assignment, name, worker),
            spawn=self._spawn,
            # each run() creates a new monitor
            ask=lambda name, **options: self._monitor.ask(name, **options),  # noqa: PLW0108
            count_crash=lambda crash: self._monitor.count_crash(crash),  # noqa: PLW0108
            emit=self._emit,
            breaker=self._breaker,
            idle_timeout=self._settings.supervisor.idle_timeout,
        )

    def _assignment(self, queue: str, worker: WorkerSettings, number: int, receive: bool) -> Assignment:
        return Assignment(
            settings=self._settings,
            queue=queue,
            handler=worker.handler,
            number=number,
            attempts=worker.attempts,
            error_queue=self._settings.supervisor.error_queue,
            polls=worker.strategy != "peek",
            receive=receive,
            subscribes=not self._pools[queue].has_received,
            breaker=self._breaker,
            time_limit=worker.time_limit,
            backoff=self._pools[queue].backoff,
            reports_failures_at_once=worker.throttle_after > 0,
            exclusive=worker.exclusive,
            batch=worker.batch,
            batch_time=worker.batch_time,
            high_water_mark=None if worker.exclusive else self._high_water_marks[queue],
        )


def _with_server(settings: Settings) -> Settings:
    """Start the embedded server if no URL is set, so that all workers get its address."""
    return settings if settings.url is not None else replace(settings, url=embedded.start(settings.data_folder))
