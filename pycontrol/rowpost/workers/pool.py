"""The workers of one queue: moves their number towards the one target that ramp.py names.

No input or output of its own: workers are started by `spawn`, peeks are asked for by `ask`, time is given. So a test
can replay a history without a process or a database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rowpost.recoverability.outcome import Kind
from rowpost.settings.environment import QueueSettings
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.concurrency import (
    Peeked,
    Ramp,
    Received,
    Seen,
    StillBusy,
    WokenUp,
    check_peek_delay,
    spare_workers,
    strategy,
)
from rowpost.workers.health import Health
from rowpost.workers.monitor import Answer, Crash
from rowpost.workers.pool_members import KILLED, OVERDUE, State, WorkerHandle, WorkerHandles, respawn_delay
from rowpost.workers.protocol import Assignment, Back, Backoff, CrashPolicy, InTrouble, Progress, Ready, Refused
from rowpost.workers.reporter import EventReporter
from rowpost.workers.snapshot import Figures, QueueSnapshot
from rowpost.workers.throttle import Throttle

__all__ = ["WorkerPool"]

# In peek delays: a look may come so much earlier, and senders ring so long when the supervisor looks no more.
ALONG, ASLEEP_FOR = 0.2, 4.0
# Looks take one in so many seconds at most: over a million dead rows, which a long transaction holds, each takes long.
REST = 5


class WorkerPool:
    """One queue's workers, monitor and breaker."""

    def __init__(
        self,
        queue: QueueSettings,
        *,
        assign: Callable[[int, bool], Assignment],
        spawn: Callable[[Assignment], Any],
        ask: Callable[..., None],
        count_crash: Callable[[Crash], None],
        emit: Callable[[events.Event], None],
        breaker: CircuitBreaker,
        idle_timeout: float,
    ) -> None:
        worker = queue.worker
        self.name = queue.name
        self._narrator = EventReporter(queue.name, emit)
        self._emit = self._narrator.tell
        self._assign, self._spawn = assign, spawn
        self._ask, self._count_crash = ask, count_crash
        self._limit = worker.limit
        self._peek_delay = worker.peek_delay
        self._warning = check_peek_delay(worker.peek_delay)
        self._ramp: Ramp = strategy(worker.strategy, worker.peek_delay, worker.limit)
        self._health = Health(queue.name, breaker, Throttle(worker.throttle_after, worker.throttle_wait), self._emit, self.peek_now)
        self._idle_timeout = idle_timeout
        self._roster = WorkerHandles()
        self._purging = worker.purge_on_startup
        self._asked = False
        self._peek_at = self._rest_until = float("-inf")
        self._spawn_at = float("-inf")
        self._wanted = 1
        self._deaths = 0
        self._stopping = False
        self.refused: str | None = None
        #: whether a worker has received anything, or nothing: then its endpoint is subscribed
        self.proven = False
        self._figures = Figures()
        self._terms: CrashPolicy | None = None

    # -------------------------------------------------------------- what the supervisor asks
    @property
    def members(self) -> list[WorkerHandle]:
        return self._roster.members

    @property
    def finished(self) -> bool:
        """Whether nothing is left to wait for."""
        return not self._roster and (self._stopping or self.refused is not None)

    def snapshot(self, now: float) -> QueueSnapshot:
        """Figures for a display; may be asked by another thread."""
        return QueueSnapshot(
            queue=self.name,
            depth=self._figures.depth,
            workers=len(self._roster),
            busy=self._roster.busy,
            limit=self._limit,
            target=self._wanted,
            rate=self._figures.rate(now),
            critical=self._health.critical,
            throttled=self._health.throttled,
            critical_time=self._figures.critical_time(now),
            processing_time=self._figures.processing_time(now),
            **self._figures.counts,
        )

    def set_limit(self, limit: int) -> None:
        """Statement 28: takes effect at the next tick; workers above it leave after the message in hand."""
        self._limit = limit
        self.peek_now()
        self._emit(events.LimitChanged, limit=limit)

    def stop(self, *, now: bool) -> None:
        """Ask all to leave after the message in hand; `now`: kill them."""
        self._emit(events.Stopping, now=now)
        self._stopping = True
        for member in self.members:
            if now:
                member.kill()
            elif member.state is not State.LEAVING:
                member.send_away("stop")

    # -------------------------------------------------------------- what happened
    def answered(self, answer: Answer, now: float) -> None:
        """The peeker's answer."""
        if answer.crash is not None:
            self._crash_counted(answer)
            return
        self._asked = False
        if answer.error is not None:
            self._health.record_failure("peeker", "peek", answer.error, now)
            self._peek_at = now + (self._health.wait or self._peek_delay)
            return
        self._health.record_success("peeker")
        if answer.purged:
            self._purging = False
            self._emit(events.Purged, count=answer.count)
            return
        if answer.warning:
            self._emit(events.Warned, text=answer.warning)
        self._rest_until = now + REST * answer.seconds
        self._figures.depth = answer.count
        self._emit(events.Peeked, count=answer.count)
        self._see(Peeked(answer.count, self._roster.occupied, self._roster.coming), now)

    def rang(self, now: float) -> None:
        """A sender says that messages have come."""
        self._see(WokenUp(self._roster.occupied), now)

    def heard(self, member: WorkerHandle, report: object, now: float) -> None:
        """A worker's report."""
        member.heard_at = now
        match report:
            case Progress():
                self._progressed(member, report, now)
            case Ready(pid, terms):
                self._terms = terms or self._terms
                self._emit(events.WorkerStarted, pid=pid)
                if member.state is State.STARTING:
                    member.enter(State.BUSY if member.round else State.IDLE, now)
            case InTrouble(error):
                member.troubled = True
                self._health.record_failure(member.number, "receive from", error, now)
            case Back():
                member.troubled = False
                self._health.record_success(member.number)
            case Refused(error):
                self.refused = error
                self._emit(events.Critical, error=error)
                for other in self.members:
                    other.send_away("refused")

    def ended(self, member: WorkerHandle, exitcode: int | None, now: float) -> None:
        """A worker's process has ended."""
        self._roster.remove(member)
        self._health.without(member.number)
        pid = member.process.pid
        if member.process.in_flight is not None and member.reason != KILLED:
            overdue = member.reason == OVERDUE
            self._count_crash(Crash(self.name, pid, exitcode, *member.process.in_flight, self._terms, overdue))
        if exitcode == 0 or member.reason:
            self._emit(events.WorkerStopped, pid=pid, reason=member.reason or "signal")
            return
        self._figures.counts["died"] += 1
        self._deaths += 1
        delay = respawn_delay(self._deaths)
        self._spawn_at = now + delay
        self._emit(events.WorkerDied, pid=pid, exitcode=exitcode, respawn_in=delay)

    def tick(self, now: float) -> float:
        """Do what is due; returns the time at which to be called again at the latest."""
        self._health.at(now)
        overdue_at = self._kill_overdue(now)
        if self._stopping or self.refused is not None:
            return overdue_at
        if self._warning:
            self._emit(events.Warned, text=self._warning)
            self._warning = None
        if now >= self._peek_at:
            self._look()
        if self._purging:
            return self._due()
        for member in self.members:
            if self._ramp.polls and member.state is State.BUSY and not member.troubled:
                self._see(StillBusy(member.number, now - member.heard_at), now)
        self._move(now)
        return self._due(overdue_at, *self._own_times(now))

    def peek_soon(self) -> None:
        """Messages have come that nobody peeked: look for them at the next tick."""
        if not self._ramp.receiving:
            self.peek_now()

    def peek_now(self) -> None:
        """Look for messages at the next tick, whatever the ramp is at."""
        self._peek_at = float("-inf")

    def look_along(self, now: float) -> None:
        """Somebody looks anyway, and one round trip does for all: a look that is nearly due is done with it."""
        if self._ramp.asleep and now >= self._peek_at - self._peek_delay * ALONG:
            self._look()

    def next_look(self, now: float) -> float:
        """Seconds until the next look at the latest."""
        return max(0.0, self._peek_at - now)

    @property
    def looks(self) -> bool:
        """Whether it has asked, and was not answered yet."""
        return self._asked

    def _look(self) -> None:
        if not self._asked and not self._stopping and self.refused is None:
            self._asked = True
            self._ask(self.name, purge=self._purging, asleep=ASLEEP_FOR * self._peek_delay * self._ramp.asleep)

    def _kill_overdue(self, now: float) -> float:
        """Kill the workers whose handlers exceed their time limit; returns when the next one may."""
        limit = self._terms.time_limit if self._terms is not None else 0.0
        if not limit:
            return float("inf")
        late, next_at = self._roster.overdue(now, limit)
        for member in late:
            self._emit(events.TimedOut, pid=member.process.pid, seconds=limit)
            member.kill(OVERDUE)
        return next_at

    # -------------------------------------------------------------- towards the target
    @property
    def _allowed(self) -> int:
        return self._health.allowed(self._limit)

    def _move(self, now: float) -> None:
        """Start, tell or send away workers until there are as many as wanted."""
        wanted = max(1, min(self._ramp.workers, self._allowed))
        if wanted != self._wanted:
            self._wanted = wanted
            self._emit(events.TargetChanged, workers=wanted)
        polls = self._ramp.polls
        ceiling = wanted if polls else self._allowed
        surplus = len(self._roster.staying) - ceiling
        for member in self._roster.least_useful()[: max(0, surplus)]:
            member.send_away("limit")
        if polls:
            self._start(wanted - len(self._roster.staying), now, receive=False)
        elif self._ramp.receiving:
            self._occupy(wanted, now)
            self._release(wanted, now)
        else:
            self._release(1, now)
            self._start(1 - len(self._roster.staying), now, receive=False)

    def _occupy(self, wanted: int, now: float) -> None:
        """Receive mode: idle workers are told to receive before new ones are started."""
        available = [member for member in self.members if member.available]
        for member in available[: max(0, wanted - self._roster.occupied)]:
            member.receive(now)
        self._start(wanted - self._roster.occupied, now, receive=True)

    def _release(self, wanted: int, now: float) -> None:
        """Idle workers leave, but one (seed 000: "when idle it maintains only one")."""
        idle = {member.number: now - member.since for member in self.members if member.state is State.IDLE}
        for number in spare_workers(idle, len(self._roster.staying), wanted, self._idle_timeout):
            self._roster.find(number).send_away("spare")

    def _start(self, missing: int, now: float, *, receive: bool) -> None:
        """Start workers, but never more than are allowed together with those that still have a message in hand."""
        room = self._allowed - len(self._roster)
        if now < self._spawn_at:
            return
        for _ in range(min(missing, room)):
            number = self._roster.next_number()
            try:
                process = self._spawn(self._assign(number, receive))
            except OSError as error:  # no process or descriptor to be had
                self._emit(events.Trouble, error=f"Failed to start a worker for {self.name}: {error}")
                self._deaths += 1
                self._spawn_at = now + respawn_delay(self._deaths)
                return
            round_ = 1 if receive or self._ramp.polls else 0
            self._roster.add(WorkerHandle(number, process, State.STARTING, now, now, round=round_))

    def _due(self, *own: float) -> float:
        return min((float("inf") if self._asked else self._peek_at, self._health.changes_at, *own))

    def _own_times(self, now: float) -> Iterator[float]:
        """When something becomes due by itself; never what is due and had to wait for somebody else."""
        return (due for due in (self._spawn_at, *self._roster.due(self._ramp.polls, self._idle_timeout)) if due > now)

    # -------------------------------------------------------------- reports in detail
    def _progressed(self, member: WorkerHandle, report: Progress, now: float) -> None:
        if report.runs:
            self._deaths = 0
            self.proven = True
        self._figures.add(report, now)
        self._narrator.progress(report, member.process.pid)
        self._note_failures(report.streak, succeeded=report.handled > 0)
        self._settle(member, report, now)
        if report.runs:
            self._see(Received(member.number, report.runs), now)

    def _crash_counted(self, answer: Answer) -> None:
        """A message killed its worker; where even that could not be counted, it simply is tried again."""
        if answer.outcome is None:
            return
        if answer.outcome.kind is not Kind.UNMOVABLE:
            self._figures.counts[answer.outcome.kind.value] += 1
        self._note_failures(1, succeeded=False)
        self._narrator.failure(answer.outcome, answer.crash.pid)

    def _settle(self, member: WorkerHandle, report: Progress, now: float) -> None:
        """Busy or idle; an old round's end says nothing about the present one."""
        if member.state not in (State.BUSY, State.IDLE) or report.round != member.round:
            return
        state = State.BUSY if report.busy else State.IDLE
        if state is not member.state and not member.troubled:
            member.enter(state, now)

    def _note_failures(self, failures: int, *, succeeded: bool) -> None:
        """Too many failed attempts in a row leave one worker that takes its time (I7)."""
        if self._health.after_attempts(failures, succeeded=succeeded):
            for member in self.members:
                member.process.tell(Backoff(self.pace))

    @property
    def pace(self) -> float:
        """Seconds that a worker waits after a failed attempt, now."""
        return self._health.pace

    def _see(self, seen: Seen, now: float) -> None:
        self._ramp = self._ramp.after(seen, self._allowed)
        if self._ramp.peek_in is not None:
            self._peek_at = max(now + self._ramp.peek_in, self._rest_until)
        leaver = self._roster.find(self._ramp.stop)
        if leaver is not None and leaver.state is not State.LEAVING:
            leaver.send_away("spare")
