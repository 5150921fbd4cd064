"""The supervisor: one loop that hears workers, peeks, and moves each queue towards its target number of workers.

    supervisor = Supervisor(load_settings("production"))
    supervisor.run()                                       # until SIGTERM or SIGINT
    supervisor.run(until=lambda snapshot: snapshot.idle)   # until nothing waits: demos and tests

Stopping has two steps: the first signal lets running handlers finish, at most `stop_timeout` seconds; the second kills
at once. A handler that is killed loses nothing: its transaction rolls back and the message is in the queue again.
"""

from __future__ import annotations

import os
import signal
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
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.transport.delayed import wait_after_look
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.events import DelayedMoved, Event, log_event
from rowpost.workers.monitor import Answer, QueueMonitor, WakeUp
from rowpost.workers.pool import WorkerPool
from rowpost.workers.pool_members import WorkerHandle
from rowpost.workers.process import shared_high_water_mark, spawn_worker
from rowpost.workers.protocol import Assignment
from rowpost.workers.snapshot import Snapshot
from rowpost.workers.tasks.delayed_mover import make_delayed_mover
from rowpost.workers.tasks.expired_purger import make_expired_purger
from rowpost.workers.tasks.in_doubt_resolver import make_in_doubt_resolver
from rowpost.workers.tasks.outbox_cleaner import make_outbox_cleaner
from rowpost.workers.tasks.partition_splitter import make_partition_splitter
from rowpost.workers.tasks.queue_maintenance import make_queue_maintenance

__all__ = ["Supervisor"]

# How often a condition given to run() is looked at. Seconds.
UNTIL_EVERY = 0.05
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Supervisor:
    """Runs the workers of all queues that have one in the settings.

    `on_event` is called with every Event, in the thread of run(); without it events go to the logger "rowpost".
    `stop`, `set_limit` and `snapshot` may be called from any thread and from signal handlers.
    `breaker` gives the waits of the circuit breaker; its `seconds` come from the settings.

    Raises SettingsError when no queue has a worker, or a peek delay is too short.
    """

    def __init__(
        self,
        settings: Settings,
        on_event: Callable[[Event], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[list[Any], float | None], list[Any]] = wait,
        spawn: Callable[[Assignment], Any] = spawn_worker,
        peeker: Callable[..., Any] = QueueMonitor,
        mover: Callable[..., Any] = make_delayed_mover,
        patrols: tuple[Callable[..., Any], ...] = (make_expired_purger, make_in_doubt_resolver, make_queue_maintenance, make_outbox_cleaner, make_partition_splitter),
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self._settings = settings
        self._clock, self._sleep, self._spawn, self._make_peeker = clock, sleep, spawn, peeker
        self._make_mover, self._mover = mover, None
        self._patrol_makers, self._patrols = patrols, []
        self._emit = on_event or log_event
        self._breaker = replace(breaker or CircuitBreaker(), seconds=settings.supervisor.breaker_seconds)
        self._inbox: deque[tuple[str, Any]] = deque()
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._ear, False)
        os.set_blocking(self._mouth, False)
        self._peeker: Any = None
        self._stops = 0
        self._kill_at = float("inf")
        worked = [queue for queue in settings.queues if queue.worker is not None]
        if not worked:
            raise SettingsError(
                f"environment {settings.environment!r} gives no queue a worker: "
                "add `worker: {handler: module:function}` below a queue"
            )
        self._worked = worked
        self._frontiers = {queue.name: shared_high_water_mark() for queue in worked}
        self._crews = self._build_crews()
        self._ready: set[Any] = set()

    def __del__(self) -> None:
        for end in (getattr(self, "_ear", None), getattr(self, "_mouth", None)):
            if end is not None:
                os.close(end)

    # -------------------------------------------------------------- for any thread
    def stop(self) -> None:
        """Once: finish running handlers, then leave. Twice: kill at once."""
        self._post("stop", None)

    def set_limit(self, queue: str, limit: int) -> None:
        """Raise or lower the greatest number of workers of a queue. Raises QueueNotFound, SettingsError."""
        if queue not in self._crews:
            raise QueueNotFound(f"the supervisor works no queue named {queue!r}: give it a worker in the settings")
        if limit < 1:
            raise SettingsError(f"limit {limit} of queue {queue!r} is too small: at least one worker always stays")
        self._post("limit", (queue, limit))

    def snapshot(self) -> Snapshot:
        """Figures of all queues, now."""
        now = self._clock()
        return Snapshot(tuple(crew.snapshot(now) for crew in self._crews.values()), stopping=self._stops > 0)

    # -------------------------------------------------------------- the loop
    def run(self, until: Callable[[Snapshot], bool] | None = None) -> None:
        """Work until told to stop, or until the condition holds; every worker has left when this returns.

        In the main thread SIGTERM and SIGINT stop it. Raises HandlerNotFound when no queue's handler can be found.
        """
        self._settings = _with_server(self._settings)
        if self._stops:
            self._crews = self._build_crews()
        self._stops, self._kill_at, self._ready = 0, float("inf"), set()
        self._peeker = self._make_peeker(self._settings, partial(self._post, "answer"))
        self._peeker.start()
        tell = partial(self._post, "event")
        self._mover, *_ = self._patrols = [
            make(self._settings, tell, self._breaker) for make in (self._make_mover, *self._patrol_makers)
        ]
        for patrol in self._patrols:
            patrol.start()
        with self._signals():
            try:
                while not self._finished():
                    self._step(until)
            finally:
                self._kill_all()
                for patrol in self._patrols:
                    patrol.stop()
                self._peeker.stop()
        refused = [crew.refused for crew in self._crews.values()]
        if all(refused):
            raise HandlerNotFound("; ".join(refused))

    def _step(self, until: Callable[[Snapshot], bool] | None) -> None:
        now = self._clock()
        self._open_inbox(now)
        for crew in self._crews.values():
            for member in crew.members:
                if not self._ready.isdisjoint(member.process.ears):
                    self._listen_to(crew, member, now)
        due = min(crew.tick(now) for crew in self._crews.values())
        if any(crew.looks for crew in self._crews.values()):
            for crew in self._crews.values():
                crew.look_along(now)
        if until is not None and not self._stops and until(self.snapshot()):
            self._stop(now)
        if now >= self._kill_at:
            self._kill()
        if self._finished():
            return
        if until is not None:
            due = min(due, now + UNTIL_EVERY)
        self._wait(min(due, self._kill_at) - now)

    def _wait(self, seconds: float) -> None:
        ears: list[Any] = [self._ear]
        for crew in self._crews.values():
            for member in crew.members:
                ears += member.process.ears
        self._ready = set(self._sleep(ears, None if seconds == float("inf") else max(0.0, seconds)))

    def _listen_to(self, crew: WorkerPool, member: WorkerHandle, now: float) -> None:
        exitcode = member.process.exitcode
        for report in member.process.heard():
            crew.heard(member, report, now)
        if exitcode is not None:
            crew.ended(member, exitcode, now)
            member.process.close()

    def _finished(self) -> bool:
        return all(crew.finished for crew in self._crews.values())

    # -------------------------------------------------------------- inbox
    def _post(self, kind: str, value: Any) -> None:
        self._inbox.append((kind, value))
        with suppress(BlockingIOError):  # full: the loop has reason enough to wake up already
            os.write(self._mouth, b"!")

    def _open_inbox(self, now: float) -> None:
        with suppress(BlockingIOError):
            os.read(self._ear, 4096)
        while self._inbox:
            match self._inbox.popleft():
                case ("stop", _):
                    self._stop(now)
                case ("limit", (queue, limit)):
                    self._crews[queue].set_limit(limit)
                case ("answer", Answer() as answer):
                    self._answered(self._crews[answer.queue], answer, now)
                case ("answer", WakeUp(queue)):
                    for name in self._crews if queue is None else (queue,):
                        if name in self._crews:
                            self._crews[name].rang(now)
                case ("event", Event() as event):
                    self._emit(event)
                    if isinstance(event, DelayedMoved):
                        self._crews[event.queue].peek_soon()

    def _answered(self, crew: WorkerPool, answer: Answer, now: float) -> None:
        crew.answered(answer, now)
        if answer.next_due is not None:
            lateness = self._settings.supervisor.delayed_lateness
            self._mover.expect(answer.queue, wait_after_look(answer.next_due, crew.next_look(now), lateness))

    # -------------------------------------------------------------- stopping
    def _stop(self, now: float) -> None:
        self._stops += 1
        if self._stops > 1:
            self._kill()
            return
        self._kill_at = now + self._settings.supervisor.stop_timeout
        for crew in self._crews.values():
            crew.stop(now=False)

    def _kill(self) -> None:
        self._kill_at = float("inf")
        for crew in self._crews.values():
            if crew.members:
                crew.stop(now=True)

    def _kill_all(self) -> None:
        """Leave no process behind, whatever ended the loop."""
        for crew in self._crews.values():
            for member in crew.members:
                member.process.kill()
                crew.ended(member, -signal.SIGKILL, self._clock())
                member.process.close()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Signal handlers only enqueue; they are the caller's again afterwards."""
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
    def _build_crews(self) -> dict[str, WorkerPool]:
        return {queue.name: self._crew(queue) for queue in self._worked}

    def _crew(self, queue: QueueSettings) -> WorkerPool:
        return WorkerPool(
            queue,
            assign=partial(self._assignment, queue),
            spawn=self._spawn,
            # the peeker is another one in every run()
            ask=lambda name, **how: self._peeker.ask(name, **how),  # noqa: PLW0108
            count_crash=lambda crash: self._peeker.count_crash(crash),  # noqa: PLW0108
            emit=self._emit,
            breaker=self._breaker,
            idle_timeout=self._settings.supervisor.idle_timeout,
        )

    def _assignment(self, queue: QueueSettings, number: int, receive: bool) -> Assignment:
        worker = queue.worker
        return Assignment(
            settings=self._settings,
            queue=queue.name,
            handler=worker.handler,
            number=number,
            attempts=worker.attempts,
            error_queue=self._settings.supervisor.error_queue,
            polls=worker.strategy != "peek",
            receive=receive,
            subscribes=not self._crews[queue.name].proven,
            breaker=self._breaker,
            time_limit=worker.time_limit,
            pace=self._crews[queue.name].pace,
            prompt=worker.throttle_after > 0,
            exclusive=worker.exclusive,
            batch=worker.batch,
            batch_time=worker.batch_time,
            frontier=None if worker.exclusive else self._frontiers[queue.name],
        )


def _with_server(settings: Settings) -> Settings:
    """Start the embedded server once, here; workers get its address."""
    return settings if settings.url is not None else replace(settings, url=embedded.start(settings.data_folder))
