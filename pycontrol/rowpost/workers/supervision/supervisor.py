"""The supervisor: one loop that reads reports, requests peeks, and starts and stops workers for each queue.

    supervisor = Supervisor(load_settings("production"))
    supervisor.run()                                       # until SIGTERM or SIGINT
    supervisor.run(until=lambda snapshot: snapshot.idle)   # until all queues are empty: demos and tests

Stopping has three steps. After the first signal, running handlers may finish within `stop_timeout` seconds. Then, or at
the second signal, they are interrupted. `stopping.GRACE_S` seconds later, or at the third signal, the workers are
killed. No message is lost when a handler is interrupted or killed: its transaction rolls back, and the message is in
the queue again.

All waiting happens in this loop. The queue monitor and the periodic tasks run in threads of their own, because a
database may hang; they put what they found into an inbox and wake the loop through a socket, because Windows cannot
wait for a pipe.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from rowpost.database import embedded
from rowpost.errors import HandlerNotFound, RowpostError, SettingsError
from rowpost.recoverability.stopping import GRACE_S
from rowpost.settings.environment import Settings
from rowpost.transport.delayed import wait_after_peek
from rowpost.workers.answers import Answer, WakeUp
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.events import DelayedMoved, Emit, Event, Reloaded, ScheduleMoved, Trouble, log_event
from rowpost.workers.exposition.observations import Observations, Status
from rowpost.workers.exposition.serve import serve
from rowpost.workers.protocol import Assignment, WorkerProgress
from rowpost.workers.snapshot import Snapshot
from rowpost.workers.supervision.critical_errors import CriticalErrors
from rowpost.workers.supervision.handles import WorkerHandle
from rowpost.workers.supervision.monitor import QueueMonitor
from rowpost.workers.supervision.pool import WorkerPool
from rowpost.workers.supervision.pools import Pools, place
from rowpost.workers.supervision.presence import REPORT_INTERVAL_S
from rowpost.workers.supervision.rehearsal import Rehearsal
from rowpost.workers.supervision.stop_signals import stop_signals
from rowpost.workers.supervision.warm import WarmProcess
from rowpost.workers.tasks.group import TaskGroup
from rowpost.workers.worker.process import WorkerProcess, spawn_warm, spawn_worker

__all__ = ["READ_TOGETHER", "Supervisor"]

# So many values are read between two looks at what is more urgent: reports of workers, and wake-ups.
READ_TOGETHER = 20
# How often a condition given to run() is checked.
UNTIL_INTERVAL_S = 0.05
# After so many seconds, what no peek has taken along to the database is sent alone.
REPORT_PATIENCE_S = 5.0
NOT_RELOADED = "The environment was not read again, and everything continues as before: "


class Supervisor:
    """Runs the workers of all queues that have a worker in the settings.

    `stop`, `reload`, `set_limit` and `snapshot` may be called from any thread and from signal handlers.

    Args:
        on_event: called with each event, in the thread of run(); by default events go to the logger "rowpost".
        load: reads the settings again when `reload` is called. Raises RowpostError.
        breaker: supplies the waits of the circuit breakers; its `seconds` come from the settings.
        spawn, monitor, tasks: start a worker, and make the queue monitor and the periodic tasks of a run; replaced in
            tests.

    Raises:
        SettingsError: no queue has a worker, or a peek delay is too short.
    """

    def __init__(
        self,
        settings: Settings,
        on_event: Emit | None = None,
        *,
        load: Callable[[], Settings] | None = None,
        spawn: Callable[[Assignment], WorkerProcess] = spawn_worker,
        monitor: Callable[..., QueueMonitor] = QueueMonitor,
        tasks: Callable[..., TaskGroup] = TaskGroup,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self._settings, self._loaded, self._load = settings, settings, load
        self._spawn, self._make_monitor, self._make_tasks = spawn, monitor, tasks
        # each run() creates new ones
        self._monitor: QueueMonitor
        self._tasks: TaskGroup
        self._observed = None if settings.supervisor.metrics is None else Observations()
        emit = on_event or log_event
        self._emit = self._critical = CriticalErrors(
            settings, emit if self._observed is None else self._observed.watching(emit)
        )
        self._stepped_at = time.monotonic()
        self._breaker = replace(breaker or CircuitBreaker(), seconds=settings.supervisor.breaker_seconds)
        self._inbox: deque[object] = deque()
        #: what has arrived there and is not read yet; for the loop alone
        self._unread: deque[object] = deque()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._stops = 0
        self._interrupted = False
        self._force_at = self._report_at = self._flush_report_at = float("inf")
        #: imports the handlers of changed settings
        self._rehearsal: Rehearsal | None = None
        make_pool = partial(
            WorkerPool,
            spawn=spawn,
            # each run() creates a new monitor
            ask=lambda name, **options: self._monitor.ask(name, **options),  # noqa: PLW0108
            count_crash=lambda crash: self._monitor.count_crash(crash),  # noqa: PLW0108
            emit=self._emit,
            breaker=self._breaker,
        )
        self._warm = WarmProcess(spawn_warm, self._emit, lambda: self._pools.by_name)
        self._pools = Pools(settings, make_pool, self._breaker, self._warm)
        self._ready: set[Any] = set()

    def __del__(self) -> None:
        for end in (getattr(self, "_wake_reader", None), getattr(self, "_wake_writer", None)):
            if end is not None:
                end.close()

    # -------------------------------------------------------------- for any thread
    def stop(self) -> None:
        """Request that run() ends after the running handlers; a second call interrupts these, a third kills them."""
        self._post("stop")

    def reload(self) -> None:
        """Request that the settings are read again; what has changed is applied, and messages in flight are handled to
        their end.
        """
        self._post("reload")

    def set_limit(self, queue: str, limit: int) -> None:
        """Set the maximum number of workers of a queue.

        Raises:
            QueueNotFound: the queue has no worker in the settings.
            SettingsError: the limit is below 1.
        """
        self.snapshot().queue(queue)  # raises QueueNotFound
        if limit < 1:
            raise SettingsError(f"The limit of queue {queue!r} must be at least 1 (got {limit}).")
        self._post((queue, limit))

    def snapshot(self) -> Snapshot:
        """Return the current figures of all queues."""
        now = time.monotonic()
        # copied, because a reload changes the mapping in the loop's thread
        return Snapshot(
            tuple(pool.snapshot(now) for pool in list(self._pools.by_name.values())), stopping=self._stops > 0
        )

    def status(self) -> Status:
        """Return what metrics and health are made from."""
        pools = dict(self._pools.by_name)
        refused = {name: pool.refused for name, pool in pools.items() if pool.refused is not None}
        histograms = {name: pool.figures.histograms for name, pool in pools.items()}
        return Status(self._settings, self.snapshot(), histograms, refused, time.monotonic() - self._stepped_at)

    # -------------------------------------------------------------- the loop
    def run(self, until: Callable[[Snapshot], bool] | None = None) -> None:
        """Run until a stop is requested, or until the condition is true. All workers have exited when this returns.

        In the main thread, SIGTERM and SIGINT request a stop.

        Raises:
            HandlerNotFound: no queue's handler can be imported.
            SettingsError: metrics cannot be served.
        """
        with serve(self._settings, self._observed, self.status, self._emit):
            self._run(until)

    def _run(self, until: Callable[[Snapshot], bool] | None) -> None:
        if self._settings.url is None:  # the embedded server, whose address all workers get
            self._settings = replace(self._settings, url=embedded.start(self._settings.data_folder))
        self._pools.settings = self._settings
        if self._stops:
            self._pools.renew()
        self._stops, self._force_at, self._report_at, self._ready = 0, float("inf"), time.monotonic(), set()
        self._interrupted = False
        self._monitor = self._make_monitor(self._settings, self._post)
        self._monitor.start()
        self._pools.lifeline = self._monitor.lifeline
        self._start_tasks()
        with stop_signals(lambda _: self.stop(), None if self._load is None else self.reload):
            try:
                while not self._finished():
                    self._step(until)
            finally:
                self._end_rehearsal()
                self._kill_all()
                self._warm.kill()
                self._tasks.stop()
                self._monitor.stop()
                self._emit_rest()
                self._critical.close()
        refused = [pool.refused for pool in self._pools.by_name.values() if pool.refused is not None]
        if len(refused) == len(self._pools.by_name):
            raise HandlerNotFound("; ".join(refused))

    def _step(self, until: Callable[[Snapshot], bool] | None) -> None:
        now = self._stepped_at = time.monotonic()
        self._open_inbox(now)
        self._rehearse()
        for pool in self._pools.all:
            for handle in pool.handles:
                if handle.process.collect(self._ready):
                    self._read_reports(pool, handle, now)
        due = min(self._report(now), self._warm.tick(now), self._pools.tick(now))
        self._pools.coalesce_peeks(now)
        if until is not None and not self._stops and until(self.snapshot()):
            self._stop(now)
        if now >= self._force_at:
            self._force(now)
        if all(pool.finished for pool in self._pools.all):
            self._warm.stop()
        if self._finished():
            return
        if until is not None:
            due = min(due, now + UNTIL_INTERVAL_S)
        if self._unread:
            due = now
        self._wait(min(due, self._force_at) - now)

    def _report(self, now: float) -> float:
        """Let the next peek also send a report of the workers, if one is due. Return when the next report is due."""
        if now >= self._report_at:
            self._monitor.report(
                self._pools.by_name, [worker for pool in self._pools.all for worker in pool.workers(now)]
            )
            self._report_at, self._flush_report_at = now + REPORT_INTERVAL_S, now + REPORT_PATIENCE_S
        if now >= self._flush_report_at:
            self._flush_report_at = float("inf")
            self._monitor.flush_report()
        return min(self._report_at, self._flush_report_at)

    def _wait(self, seconds: float) -> None:
        waitables: list[Any] = [self._wake_reader, *(() if self._rehearsal is None else self._rehearsal.waitables)]
        waitables += self._warm.waitables
        for pool in self._pools.all:
            for handle in pool.handles:
                waitables += handle.process.waitables
        self._ready = set(wait(list(dict.fromkeys(waitables)), None if seconds == float("inf") else max(0.0, seconds)))

    def _read_reports(self, pool: WorkerPool, handle: WorkerHandle, now: float) -> None:
        exitcode = handle.process.exitcode  # before the reports, so that none of an ended process is left unread
        for report in handle.process.reports():
            pool.on_report(handle, report, now)
            if isinstance(report, WorkerProgress):
                self._tasks.record(pool.name, report.measured)
        if exitcode is not None:
            pool.on_exit(handle, exitcode, now)
            handle.process.close()

    def _finished(self) -> bool:
        return self._warm.finished and all(pool.finished for pool in self._pools.all)

    # -------------------------------------------------------------- inbox
    def _post(self, value: object) -> None:
        self._inbox.append(value)
        with suppress(BlockingIOError):  # the buffer is full, so that the loop wakes up anyway
            self._wake_writer.send(b"!")

    def _open_inbox(self, now: float) -> None:
        with suppress(BlockingIOError):
            self._wake_reader.recv(4096)
        while self._inbox:
            value = self._inbox.popleft()
            if isinstance(value, WakeUp):
                self._wake(value.queue, now)
            else:
                self._unread.append(value)
        for _ in range(min(len(self._unread), READ_TOGETHER)):
            self._read(self._unread.popleft(), now)

    def _read(self, value: object, now: float) -> None:
        match value:
            case "stop":
                self._stop(now)
            case (str(queue), int(limit)):
                self._pools.by_name[queue].set_limit(limit)
            case "reload":
                self._reload()
            case Answer() as answer if answer.queue in self._pools.by_name:
                self._on_answer(self._pools.by_name[answer.queue], answer, now)
            case Event() as event:
                self._emit(event)
                if isinstance(event, DelayedMoved | ScheduleMoved) and event.queue in self._pools.by_name:
                    self._pools.by_name[event.queue].peek_soon()

    def _wake(self, queue: str | None, now: float) -> None:
        """Let a queue know that a sender has committed messages, before the answers of a thousand others are read.

        None: all queues. Earlier answers of the queue count first.
        """
        earlier = [each for each in self._unread if queue in (None, getattr(each, "queue", None))]
        for answer in earlier:
            self._unread.remove(answer)
            self._read(answer, now)
        for name in self._pools.by_name if queue is None else (queue,):
            if name in self._pools.by_name:
                self._pools.by_name[name].on_wake_up(now)

    def _emit_rest(self) -> None:
        """Emit what the periodic tasks reported when they ended, and leave what threads request for the next run."""
        rest = [*self._unread, *(self._inbox.popleft() for _ in range(len(self._inbox)))]
        self._unread.clear()
        for value in rest:
            if isinstance(value, Event):
                self._emit(value)
            else:
                self._inbox.append(value)

    def _on_answer(self, pool: WorkerPool, answer: Answer, now: float) -> None:
        pool.on_answer(answer, now)
        if self._observed is not None:
            self._observed.answered(answer)
        if answer.next_due is not None:
            lateness = self._settings.supervisor.delayed_lateness
            seconds = wait_after_peek(answer.next_due, pool.seconds_to_next_peek(now), lateness)
            self._tasks.move_delayed(answer.queue, seconds)

    # -------------------------------------------------------------- other settings
    def _start_tasks(self) -> None:
        self._tasks = self._make_tasks(self._settings, self._post, self._breaker)

    def _reload(self) -> None:
        """Read the settings again, and import the handlers that they name. If something is wrong, nothing changes."""
        if self._load is None or self._stops:
            return
        self._end_rehearsal()
        try:
            loaded = self._load()
            if place(loaded) != place(self._loaded):
                raise SettingsError(
                    "the database, or the address of the metrics, is another one. Stop rowpost run, and start it again."
                )
            self._rehearsal = Rehearsal(
                loaded, self._pools.to_import(replace(loaded, url=self._settings.url)), self._spawn
            )
        except (RowpostError, OSError) as error:
            self._refuse(str(error))

    def _rehearse(self) -> None:
        """Continue with the settings whose handlers have been imported."""
        if self._rehearsal is None or not self._rehearsal.proceed():
            return
        loaded, error = self._rehearsal.settings, self._rehearsal.error
        self._end_rehearsal()
        try:
            changed = [] if error else self._pools.change(replace(loaded, url=self._settings.url))
        except RowpostError as refused:
            error = str(refused)
        if error:
            self._refuse(error)
            return
        self._loaded, self._settings = loaded, self._pools.settings
        self._monitor.use(self._settings)
        self._critical.use(self._settings)
        self._tasks.stop()
        self._start_tasks()
        self._report_at = float("-inf")
        self._emit(Reloaded(changed=tuple(changed)))

    def _refuse(self, error: str) -> None:
        self._emit(Trouble(error=f"{NOT_RELOADED}{error}"))

    def _end_rehearsal(self) -> None:
        if self._rehearsal is not None:
            self._rehearsal.end()
            self._rehearsal = None

    # -------------------------------------------------------------- stopping
    def _stop(self, now: float) -> None:
        self._stops += 1
        self._end_rehearsal()
        if self._stops > 1:
            self._force(now)
            return
        self._force_at = now + self._settings.supervisor.stop_timeout
        for pool in self._pools.by_name.values():
            pool.stop(now=False)

    def _force(self, now: float) -> None:
        """Interrupt the handlers that still run; if that was done already, kill their workers."""
        for pool in self._pools.all:
            if self._interrupted:
                for handle in pool.handles:
                    handle.kill()
            elif pool.handles:
                pool.stop(now=True)
        if self._interrupted:
            self._warm.kill()
        self._force_at = float("inf") if self._interrupted else now + GRACE_S
        self._interrupted = True

    def _kill_all(self) -> None:
        """Kill the workers that still run, also after an error in the loop."""
        for pool in self._pools.all:
            for handle in pool.handles:
                handle.kill()
                pool.on_exit(handle, None, time.monotonic())
                handle.process.close()
