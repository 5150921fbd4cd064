"""Manage the worker processes of one queue: start and stop workers to reach the target that `concurrency.py` computes.

Performs no I/O. The caller injects `spawn` (starts a worker), `ask` (requests a peek) and the time, so that tests can
replay a history without processes or a database.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from uuid import UUID

from rowpost.recoverability.outcome import Kind
from rowpost.settings.worker import WorkerSettings
from rowpost.transport.supervisors import ReportedWorker
from rowpost.workers import concurrency, events, protocol
from rowpost.workers.answers import Answer, Crash
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.concurrency import Observation, Strategy, make_strategy, spare_workers
from rowpost.workers.effect import Effect
from rowpost.workers.protocol import Assignment, CrashPolicy
from rowpost.workers.snapshot import Figures, QueueSnapshot
from rowpost.workers.supervision.control import Controls
from rowpost.workers.supervision.handles import INTERRUPTED, KILLED, OVERDUE, WorkerHandle, WorkerHandles, WorkerState
from rowpost.workers.supervision.health import Health, Throttle
from rowpost.workers.supervision.peek_watch import PeekWatch
from rowpost.workers.supervision.quarantine import Quarantine
from rowpost.workers.supervision.reporter import EventReporter
from rowpost.workers.supervision.warm import ADOPT_AFTER_S, IdleWorkers, WarmProcess
from rowpost.workers.worker.process import WorkerProcess

__all__ = ["ADOPT_AT", "WorkerPool"]

# Fraction of peek_delay: a peek that is due within it joins another queue's round trip.
COALESCE_WITHIN = 0.2
# A queue adopts the warm process when it borrows it so often within its idle timeout.
ADOPT_AT = 5
AT_ONCE = float("-inf")
# The name of the peeks among the sources of failures; workers use their numbers.
MONITOR = "monitor"


class WorkerPool:
    """The workers of one queue.

    Not thread-safe, except for `snapshot`, which any thread may call.

    Args:
        assign: returns the assignment of a worker; called with its number and whether it starts to receive at once.
        spawn: starts a process for an assignment. Raises OSError.
        ask: requests a peek from the queue monitor; the answer arrives at `on_answer`.
        count_crash: requests that a crash is counted; the answer arrives at `on_answer`.
        emit: called with each event.
        idle_timeout: seconds after which an idle worker that is not needed exits.
        patience: seconds that the other messages of a process have which is replaced.
        leases: whether messages of the queue can be leased.
        figures: counts to continue. Default: new ones.
        warm, idle: for a queue that may be quiet: the process that takes its first messages, and what says whether the
            queue keeps a worker without work. Default: it keeps one.
    """

    def __init__(
        self,
        name: str,
        worker: WorkerSettings,
        *,
        assign: Callable[[int, bool], Assignment],
        spawn: Callable[[Assignment], WorkerProcess],
        ask: Callable[..., None],
        count_crash: Callable[[Crash], None],
        emit: events.Emit,
        breaker: CircuitBreaker,
        idle_timeout: float,
        patience: float = 10.0,
        leases: bool = False,
        figures: Figures | None = None,
        warm: WarmProcess | None = None,
        idle: IdleWorkers | None = None,
    ) -> None:
        self.name, self._idle_timeout, self._patience, self._leases = name, idle_timeout, patience, leases
        self._reporter = EventReporter(name, emit)
        self._emit = emit
        self._ask, self._count_crash = ask, count_crash
        self._control = Controls(name, worker.limit, emit)
        self._peek_delay = worker.peek_delay
        self._new_strategy = partial(make_strategy, worker.strategy, worker.peek_delay)
        self._strategy: Strategy = self._new_strategy(worker.limit)
        self._health = Health(name, breaker, Throttle(worker.throttle_after, worker.throttle_wait), emit, self.peek_now)
        self._handles = WorkerHandles(name, assign, spawn, emit)
        self._purging = worker.purge_on_startup
        self._peeks = PeekWatch(name, worker.peek_delay, emit)
        self._peek_at = self._no_peek_before = AT_ONCE
        self._target = 1
        self._stopping = False
        #: when `tick` has to be called at the latest, by the supervisor's clock
        self.due_at = AT_ONCE
        #: why no worker can run, None while workers can
        self.refused: str | None = None
        #: whether its endpoint is subscribed: a worker has called receive, or the warm process has subscribed it
        self.is_subscribed = False
        self.figures = figures or Figures()
        self._crash_policy: CrashPolicy | None = None
        self._quarantine = Quarantine(name, emit)
        #: processes that poll, or have several slots, are as many as the settings say
        self._in_steps = worker.strategy == "peek" and worker.concurrency == 1
        self._effect = self._effect_of(worker.limit)
        self._warm, self._idle = warm, idle or IdleWorkers()
        self._is_prepared = False
        #: when the warm process was borrowed
        self._borrowed_at: deque[float] = deque(maxlen=ADOPT_AT)

    # -------------------------------------------------------------- for the supervisor
    @property
    def handles(self) -> list[WorkerHandle]:
        """All workers, also those that are exiting."""
        return self._handles.all

    @property
    def finished(self) -> bool:
        """Whether the pool has ended and no worker is left."""
        return not self._handles and (self._stopping or self.refused is not None)

    def snapshot(self, now: float) -> QueueSnapshot:
        """Return the figures of the queue. Thread-safe."""
        times = self.figures.times(now)
        return QueueSnapshot(
            queue=self.name,
            depth=self.figures.depth,
            workers=len(self._handles),
            busy=self._handles.busy,
            limit=self._control.limit,
            paused=self._control.stops,
            target=self._target,
            rate=self.figures.rate(now),
            critical=self._health.breaker.triggered,
            throttled=self._health.throttle.active,
            quiet=self._is_prepared and not self._least,
            critical_time=times.critical_time,
            processing_time=times.processing_time,
            **self.figures.counts,
        )

    def workers(self, now: float) -> list[ReportedWorker]:
        """Return the workers as a report shows them."""
        return [handle.described(self.name, now) for handle in self.handles]

    def set_limit(self, limit: int) -> None:
        """Set the environment's maximum number of workers.

        At the next tick, surplus workers exit after their in-flight messages.
        """
        self._control.set_limit(limit)
        self.peek_now()

    def stop(self, *, now: bool) -> None:
        """Request that all workers exit after their in-flight messages; `now`: interrupt their handlers."""
        self.due_at = AT_ONCE
        self._stopping = True
        for handle in self.handles:
            if now:
                handle.interrupt()
            elif handle.state is not WorkerState.EXITING:
                handle.request_exit("stop")
        self._emit(
            events.Stopping(queue=self.name, now=now)
        )  # after the requests: who reads the event may rely on them

    # -------------------------------------------------------------- inputs
    def on_answer(self, answer: Answer, now: float) -> None:
        """Process an answer of the queue monitor."""
        self.due_at = AT_ONCE
        if answer.crash is not None:
            self._crash_counted(answer.crash, answer)
            return
        self._peeks.end(answer.error)
        if not answer.purged and answer.error is None and self._control.apply(answer.control):
            self._strategy = self._new_strategy(self._control.limit)
        if answer.error is not None:
            self._health.record_failure(MONITOR, "peek", answer.error, now)
            self._peek_at = now + (self._health.breaker.wait or self._peek_delay)
            return
        self._health.record_success(MONITOR)
        if answer.purged:
            self._purging = False
            self._emit(events.Purged(queue=self.name, count=answer.count))
            return
        if answer.warning:
            self._emit(events.Warned(queue=self.name, text=answer.warning))
        self._no_peek_before = now + self._peeks.rest(answer.seconds)
        self.figures.depth = answer.count
        self._emit(events.Peeked(queue=self.name, count=answer.count))
        self._peek_at = now + self._peek_delay  # in a pause; else the strategy decides
        self._observe(concurrency.PeekCounted(answer.count, self._handles.occupied, self._handles.without_message), now)

    def on_wake_up(self, now: float) -> None:
        """Process a wake-up: a sender has committed messages."""
        self.due_at = AT_ONCE
        self._observe(concurrency.WokenUp(self._handles.occupied), now)

    def on_report(self, handle: WorkerHandle, report: object, now: float) -> None:
        """Process a report of a worker."""
        self.due_at = AT_ONCE
        handle.reported_at = now
        match report:
            case protocol.WorkerProgress():
                self._on_progress(handle, report, now)
            case protocol.Ready(pid, crash_policy):
                self._crash_policy = crash_policy or self._crash_policy
                if handle.process.is_first():
                    self._emit(events.WorkerStarted(queue=self.name, pid=pid))
                if handle.state is WorkerState.STARTING:
                    handle.enter(WorkerState.BUSY if handle.round else WorkerState.IDLE, now)
            case protocol.ReceiveFailed(error):
                handle.failing = True
                self._health.record_failure(handle.number, "receive from", error, now)
            case protocol.Tried(row_version):
                self._quarantine.tried(row_version, handle, self.handles)
            case events.Logged():
                self._emit(replace(report, queue=self.name))
            case protocol.ReceiveRecovered():
                handle.failing = False
                self._health.record_success(handle.number)
            case protocol.HandlerRefused(error):
                self.refuse(error)

    def refuse(self, error: str) -> None:
        """Let no worker run: the handler cannot be imported."""
        self.due_at = AT_ONCE
        if self.refused is None:
            self.refused = error
            self._emit(events.Critical(queue=self.name, error=error))
        for handle in self.handles:
            handle.request_exit("refused")

    def prepared(self, crash_policy: CrashPolicy | None) -> None:
        """Process that the warm process has imported the handler."""
        self._crash_policy = crash_policy or self._crash_policy
        self._is_prepared = True

    def subscribed(self) -> None:
        """Process that the warm process has subscribed the endpoint."""
        self.is_subscribed = True

    def wake(self) -> None:
        """Process that the warm process is free."""
        self.due_at = AT_ONCE

    def on_exit(self, handle: WorkerHandle, exitcode: int | None, now: float) -> None:
        """Process the end of a worker's process."""
        self.due_at = AT_ONCE
        del self._handles[handle.number]
        self._health.forget(handle.number)
        process, pid = handle.process, handle.process.pid
        died = not (exitcode == 0 or handle.reason)
        if process.in_flight is not None:
            self._treat_lost(handle, exitcode, *process.in_flight)
        if not process.is_last:
            return
        if not died:
            self._emit(events.WorkerStopped(queue=self.name, pid=pid, reason=handle.reason or "signal"))
            return
        self.figures.counts["died"] += 1
        self._quarantine.report(pid, process.lost)
        self._emit(events.WorkerDied(queue=self.name, pid=pid, exitcode=exitcode, respawn_in=self._handles.delay(now)))

    def _treat_lost(self, handle: WorkerHandle, exitcode: int | None, row_id: UUID, row_version: int) -> None:
        """Treat the message that a worker had when it ended: count an attempt, suspect it with others, or neither."""
        overdue, killed = handle.reason == OVERDUE, handle.reason in (KILLED, INTERRUPTED)
        suspect = handle.process.lost > 1 and exitcode != 0 and not (overdue or killed)
        if self._leases or not (suspect or killed):
            self._count_crash(
                Crash(
                    self.name,
                    handle.process.pid,
                    exitcode,
                    row_id,
                    row_version,
                    self._crash_policy,
                    overdue=overdue,
                    counts=not (suspect or killed),
                    suspect=suspect,
                )
            )
        elif suspect:
            self._quarantine.add(row_version)

    def tick(self, now: float) -> float:
        """Perform all actions that are due; return the time of the next call at the latest, which `due_at` is then."""
        self.due_at = due = self._tick(now)
        return due

    def _tick(self, now: float) -> float:
        self._health.at(now)
        overdue_at = min(self._kill_overdue(now), self._replace_retiring(now), self._adopt(now))
        if self._stopping or self.refused is not None:
            return overdue_at
        self._weigh(now)
        if now >= self._peek_at:
            self._request_peek(now)
        self._peeks.report_silence(now)
        if self._purging or (self._strategy.polls and not self._control.known):
            return (
                self._due()
            )  # a worker that polls would receive before the first peek has found out whether the queue is paused
        for handle in self.handles:
            if self._strategy.polls and handle.state is WorkerState.BUSY and not handle.failing:
                self._observe(concurrency.StillBusy(handle.number, now - handle.reported_at), now)
        self._approach_target(now)
        return self._due(overdue_at, *self._own_deadlines(now))

    # -------------------------------------------------------------- peeks
    def peek_soon(self) -> None:
        """Request a peek at the next tick, unless the workers are receiving anyway."""
        if not self._strategy.receiving:
            self.peek_now()

    def peek_now(self) -> None:
        """Request a peek at the next tick."""
        self._peek_at = self.due_at = AT_ONCE

    def coalesce_peek(self, now: float) -> None:
        """Request a peek that is nearly due, because another queue's peek makes the round trip anyway."""
        if self._strategy.wants_wake_up and now >= self._peek_at - self._peek_delay * COALESCE_WITHIN:
            self._request_peek(now)

    def seconds_to_next_peek(self, now: float) -> float:
        """Return the seconds until the next peek at the latest."""
        return max(0.0, self._peek_at - now)

    @property
    def peek_pending(self) -> bool:
        """Whether a peek was requested and not answered yet."""
        return self._peeks.asked

    def _request_peek(self, now: float) -> None:
        if not self._peeks.asked and not self._stopping and self.refused is None:
            self._peeks.begin(now, purging=self._purging)
            wants_wake_up = self._strategy.wants_wake_up and not self._control.stops
            wake_up_ttl_s = self._peeks.wake_up_ttl if wants_wake_up else 0.0
            self._ask(self.name, purge=self._purging, wake_up_ttl_s=wake_up_ttl_s)

    def _kill_overdue(self, now: float) -> float:
        """Kill the workers whose handlers exceed their time limit; return when the next one exceeds it."""
        limit = self._crash_policy.time_limit if self._crash_policy is not None else 0.0
        if not limit:
            return float("inf")
        late, next_at = self._handles.overdue(now, limit)
        for handle in late:
            self._emit(events.TimedOut(queue=self.name, pid=handle.process.pid, seconds=limit))
            handle.kill(OVERDUE)
        return next_at

    def _replace_retiring(self, now: float) -> float:
        """Let workers exit whose process has a handler that cannot be ended. Return when the next process is killed."""
        retiring = [handle for handle in self.handles if handle.process.retiring]
        for handle in retiring:
            if handle.state is not WorkerState.EXITING:
                handle.request_exit("replaced")
            if now >= handle.process.kill_at(now, self._patience) and not handle.killed:
                handle.kill()
        return min((handle.process.kill_at(now, self._patience) for handle in retiring if not handle.killed),
                   default=float("inf"))  # fmt: skip

    # -------------------------------------------------------------- the warm process
    @property
    def _least(self) -> int:
        """How many workers the queue keeps without work."""
        return 1 if self._warm is None or not self._warm.serves or self._idle.keeps(self.name) else 0

    def _borrow(self, now: float) -> bool:
        """Return whether the warm process works for the queue or will soon, so that no other worker is to start.

        Borrows it if the queue has no worker of its own.
        """
        if self._warm is None:
            return False
        borrowed = next((handle for handle in self.handles if handle.process.borrowed), None)
        if borrowed is not None or self._handles.staying:
            return borrowed is not None
        handle = self._handles.borrow(partial(self._warm.borrow, now=now), now)
        if handle is None:
            return self._warm.comes_soon(self.name, now)
        self._borrowed_at.append(now)
        if len(self._borrowed_at) == ADOPT_AT and now - self._borrowed_at[0] < self._idle_timeout:
            self._make_own(handle)
        return True

    def _adopt(self, now: float) -> float:
        """Let the warm process be the queue's own if it has worked for it long enough. Return when it will have."""
        for handle in self.handles if self._warm is not None else ():
            if handle.process.borrowed and handle.state is not WorkerState.EXITING:
                if now < handle.since + ADOPT_AFTER_S:
                    return handle.since + ADOPT_AFTER_S
                self._make_own(handle)
        return float("inf")

    def _make_own(self, handle: WorkerHandle) -> None:
        handle.process.adopt()
        self._idle.worked(self.name)
        self._emit(events.WorkerStarted(queue=self.name, pid=handle.process.pid))

    # -------------------------------------------------------------- number of workers
    @property
    def _allowed(self) -> int:
        if self._effect.limit != self._control.limit:
            self._effect = self._effect_of(self._control.limit)
        return 0 if self._control.stops else self._health.allowed(self._effect.workers)

    def _effect_of(self, limit: int) -> Effect:
        return Effect(limit) if self._in_steps else Effect(limit, workers=limit)

    def _weigh(self, now: float) -> None:
        """Allow more workers if they bring throughput, or fewer if the last ones brought none."""
        before = self._effect.workers
        self._effect = self._effect.after(now, self._handles.busy, sum(self.figures.counts.values()))
        if self._effect.workers != before:
            self.peek_now()

    def _approach_target(self, now: float) -> None:
        """Start workers, command them to receive, or request their exit, until their number is the target; none in a
        pause.
        """
        target = min(max(1, self._strategy.workers), self._allowed)
        if target != self._target:
            self._target = target
            self._emit(events.TargetChanged(queue=self.name, workers=target))
        least = self._least
        polls = self._strategy.polls
        ceiling = target if polls else self._allowed
        surplus = len(self._handles.staying) - ceiling
        for handle in self._handles.least_useful()[: max(0, surplus)]:
            handle.request_exit("paused" if self._control.stops else "limit")
        if self._control.stops:
            return
        if self._quarantine:
            self._try_alone(now)
        elif polls:
            self._start(target - len(self._handles.staying), now, receive=False)
        elif self._strategy.receiving:
            if not self._borrow(now):
                self._occupy(target, now)
            self._release(target, now)
        else:
            self._release(least, now)
            self._start(least - len(self._handles.staying), now, receive=False)

    def _try_alone(self, now: float) -> None:
        """Let one worker, alone in a process, try the messages that may kill one, and no other worker receive."""
        for handle in self._handles.staying:
            if not self._quarantine.is_tried_by(handle):
                handle.request_exit("quarantine")
        suspects = self._quarantine.to_try(self.handles)
        if suspects and not any(self._quarantine.is_tried_by(handle) for handle in self.handles):
            for handle in self._handles.start(1, now, receive=True, round=1, suspects=suspects):
                self._quarantine.begin(handle, suspects)

    def _occupy(self, target: int, now: float) -> None:
        """Command idle workers to receive before starting new ones."""
        available = [handle for handle in self.handles if handle.available]
        for handle in available[: max(0, target - self._handles.occupied)]:
            handle.receive(now)
        self._start(target - self._handles.occupied, now, receive=True)

    def _release(self, target: int, now: float) -> None:
        """Request the exit of workers that were idle for `idle_timeout`, if there are more than `target`."""
        idle = {handle.number: handle for handle in self.handles if handle.state is WorkerState.IDLE}
        seconds = {number: now - handle.since for number, handle in idle.items()}
        for number in spare_workers(seconds, len(self._handles.staying), target, self._idle_timeout):
            idle[number].request_exit("spare")

    def _start(self, missing: int, now: float, *, receive: bool) -> None:
        """Start `missing` workers, but never more than are allowed together with those that are exiting."""
        room = self._allowed - len(self._handles)
        self._handles.start(min(missing, room), now, receive=receive, round=1 if receive or self._strategy.polls else 0)

    def _due(self, *own: float) -> float:
        return min((self._peeks.silent_at if self._peeks.asked else self._peek_at, self._health.changes_at, *own))

    def _own_deadlines(self, now: float) -> Iterator[float]:
        """Yield when actions become due without any input; past times wait for an input, and must not make the loop
        spin.
        """
        return (
            due
            for due in (
                self._handles.next_start_at,
                float("inf") if self._warm is None else self._warm.waits_until(self.name),
                *self._handles.due(self._strategy.polls, self._idle_timeout),
            )
            if due > now
        )

    # -------------------------------------------------------------- reports in detail
    def _on_progress(self, handle: WorkerHandle, progress: protocol.WorkerProgress, now: float) -> None:
        if progress.runs:
            self._handles.worked()
            self.is_subscribed = True
            if not handle.process.borrowed:
                self._idle.worked(self.name)
        self.figures.add(progress, now)
        self._reporter.report_progress(progress, handle.process.pid)
        succeeded = progress.handled > 0 or any(each.succeeded for each in progress.dropped)
        self._count_failures(progress.streak, succeeded=succeeded)
        self._update_state(handle, progress, now)
        if progress.runs:
            self._observe(concurrency.Received(handle.number, progress.runs), now)

    def _crash_counted(self, crash: Crash, answer: Answer) -> None:
        """Process the answer to a crash. If the crash could not be counted, the message is retried without a count."""
        if crash.suspect:
            self._quarantine.add(crash.row_version)  # it is in the queue again, or its lease expires
        if not crash.counts:
            return
        if answer.outcome is None:
            if answer.unexpected:
                said = f"{type(answer.error).__name__}: {answer.error}"
                self._emit(
                    events.Critical(
                        queue=self.name, error=f"Failed to count a crash of a worker of {self.name}: {said}"
                    )
                )
            return
        if answer.outcome.kind is not Kind.FAILED:  # else it is retried at once
            self._quarantine.forget(crash.row_version)
        if answer.outcome.kind is not Kind.UNMOVABLE:
            self.figures.counts[answer.outcome.kind.value] += 1
        self._count_failures(1, succeeded=False)
        self._reporter.report_failure(answer.outcome, crash.pid)

    def _update_state(self, handle: WorkerHandle, progress: protocol.WorkerProgress, now: float) -> None:
        """Set the worker busy or idle; a report of an earlier round says nothing about the current one."""
        if handle.state not in (WorkerState.BUSY, WorkerState.IDLE) or progress.round != handle.round:
            return
        state = WorkerState.BUSY if progress.busy else WorkerState.IDLE
        if state is WorkerState.IDLE and handle.process.borrowed:
            handle.reason, state = "returned", WorkerState.EXITING  # it ends by itself
        if state is not handle.state and not handle.failing:
            handle.enter(state, now)

    def _count_failures(self, failures: int, *, succeeded: bool) -> None:
        if self._health.after_attempts(failures, succeeded=succeeded):
            for handle in self.handles:
                handle.process.send(protocol.Backoff(self.backoff))

    @property
    def backoff(self) -> float:
        """Seconds that a worker waits after a failed attempt, now."""
        return self._health.throttle.backoff

    def _observe(self, observation: Observation, now: float) -> None:
        if self._control.stops:
            return
        self._strategy = self._strategy.after(observation, self._allowed)
        if self._strategy.peek_in is not None:
            self._peek_at = max(now + self._strategy.peek_in, self._no_peek_before)
        stopped = None if self._strategy.stop is None else self._handles.get(self._strategy.stop)
        if stopped is not None and stopped.state is not WorkerState.EXITING:
            stopped.request_exit("spare")
