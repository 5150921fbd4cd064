"""The workers of one queue: moves their number towards the one target that ramp.py names.

No input or output of its own: workers are started by `spawn`, peeks are asked for by `ask`, time is given. So a test
can replay a history without a process or a database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rowpost import events
from rowpost.breaker import Breaker, arms_breaker
from rowpost.peeker import Answer
from rowpost.pipeline import Kind, Outcome
from rowpost.ramp import Peeked, Ramp, Received, StillBusy, check_peek_delay, spare_workers, strategy
from rowpost.reports import Assignment, Back, InTrouble, Leave, Progress, Ready, Receive, Refused
from rowpost.settings import QueueSettings
from rowpost.snapshot import Figures, QueueSnapshot

__all__ = ["Crew", "Member", "State", "respawn_delay"]

# A poller that says nothing for so long is busy with one message (transport 2.1). Seconds.
LONG_RECEIVE = 5.0
GREATEST_RESPAWN_DELAY = 10.0
EVENT_OF_KIND = {Kind.FAILED: events.Failed, Kind.MOVED_TO_ERROR: events.MovedToError, Kind.POISON: events.Poisoned}


class State(Enum):
    """A worker's life as the supervisor sees it: STARTING -> IDLE <-> BUSY -> LEAVING."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    LEAVING = "leaving"


@dataclass(slots=True)
class Member:
    """One worker. `since`: in this state; `heard_at`: its last report; both in the supervisor's clock."""

    number: int
    process: Any
    state: State
    since: float
    heard_at: float
    round: int = 0
    reason: str = ""
    troubled: bool = False


def respawn_delay(deaths: int) -> float:
    """Seconds until the replacement of a worker, after that many deaths without work done between them.

    >>> [respawn_delay(deaths) for deaths in (1, 2, 3, 8, 20)]
    [0.1, 0.2, 0.4, 10.0, 10.0]
    """
    return min(GREATEST_RESPAWN_DELAY, 0.1 * 2 ** min(deaths - 1, 10))


class Crew:
    """One queue's workers, monitor and breaker."""

    def __init__(
        self,
        queue: QueueSettings,
        *,
        assign: Callable[[int, bool], Assignment],
        spawn: Callable[[Assignment], Any],
        ask: Callable[..., None],
        emit: Callable[[events.Event], None],
        breaker: Breaker,
        idle_timeout: float,
    ) -> None:
        worker = queue.worker
        self.name = queue.name
        self._assign, self._spawn, self._ask, self._emit_event = assign, spawn, ask, emit
        self._limit = worker.limit
        self._peek_delay = worker.peek_delay
        self._warning = check_peek_delay(worker.peek_delay)
        self._ramp: Ramp = strategy(worker.strategy, worker.peek_delay, worker.limit)
        self._breaker = breaker
        self._idle_timeout = idle_timeout
        self._members: dict[int, Member] = {}
        self._numbers = 0
        self._purging = worker.purge_on_startup
        self._asked = False
        self._peek_at = float("-inf")
        self._spawn_at = float("-inf")
        self._wanted = 1
        self._deaths = 0
        self._last_error = ""
        self._stuck = False
        self._stopping = False
        self.refused: str | None = None
        self._figures = Figures()

    # -------------------------------------------------------------- what the supervisor asks
    @property
    def members(self) -> list[Member]:
        return list(self._members.values())

    @property
    def finished(self) -> bool:
        """Whether nothing is left to wait for."""
        return not self._members and (self._stopping or self.refused is not None)

    def snapshot(self, now: float) -> QueueSnapshot:
        """Figures for a display; may be asked by another thread."""
        members = self.members
        return QueueSnapshot(
            queue=self.name,
            depth=self._figures.depth,
            workers=len(members),
            busy=sum(1 for m in members if m.state is State.BUSY and not m.troubled),
            limit=self._limit,
            target=self._wanted,
            rate=self._figures.rate(now),
            critical=self._breaker.triggered,
            **self._figures.counts,
        )

    def set_limit(self, limit: int) -> None:
        """Statement 28: takes effect at the next tick; workers above it leave after the message in hand."""
        self._limit = limit
        self._peek_at = float("-inf")
        self._emit(events.LimitChanged, limit=limit)

    def stop(self, *, now: bool) -> None:
        """Ask all to leave after the message in hand; `now`: kill them."""
        self._emit(events.Stopping, now=now)
        self._stopping = True
        for member in self.members:
            if now:
                member.reason = "killed"
                member.process.kill()
            elif member.state is not State.LEAVING:
                self._send_away(member, "stop")

    # -------------------------------------------------------------- what happened
    def answered(self, answer: Answer, now: float) -> None:
        """The peeker's answer."""
        self._asked = False
        if answer.error is not None:
            self._suffers("peeker", f"Failed to peek {self.name}: {answer.error}", answer.error, now)
            self._peek_at = now + (self._breaker.wait or self._peek_delay)
            return
        self._is_well("peeker")
        if answer.purged:
            self._purging = False
            self._emit(events.Purged, count=answer.count)
            return
        self._figures.depth = answer.count
        self._emit(events.Peeked, count=answer.count)
        busy = sum(1 for m in self._members.values() if m.state in (State.BUSY, State.STARTING))
        self._see(Peeked(answer.count, busy), now)

    def heard(self, member: Member, report: object, now: float) -> None:
        """A worker's report."""
        member.heard_at = now
        match report:
            case Progress():
                self._progressed(member, report, now)
            case Ready(pid):
                self._emit(events.WorkerStarted, pid=pid)
                if member.state is State.STARTING:
                    self._enter(member, State.BUSY if member.round else State.IDLE, now)
            case InTrouble(error):
                member.troubled = True
                self._suffers(member.number, f"Failed to receive from {self.name}: {error}", None, now)
            case Back():
                member.troubled = False
                self._is_well(member.number)
            case Refused(error):
                self.refused = error
                self._emit(events.Critical, error=error)
                for other in self.members:
                    self._send_away(other, "refused")

    def ended(self, member: Member, exitcode: int | None, now: float) -> None:
        """A worker's process has ended."""
        del self._members[member.number]
        self._breaker = self._breaker.without(member.number)
        pid = member.process.pid
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
        self._note_breaker(self._breaker.at(now))
        if self._stopping or self.refused is not None:
            return float("inf")
        if self._warning:
            self._emit(events.Warned, text=self._warning)
            self._warning = None
        if not self._asked and now >= self._peek_at:
            self._asked = True
            self._ask(self.name, purge=self._purging)
        if self._purging:
            return self._due(now, ())
        for member in self.members:
            if self._ramp.polls and member.state is State.BUSY and not member.troubled:
                self._see(StillBusy(member.number, now - member.heard_at), now)
        self._move(now)
        return self._due(now, self._own_times(now))

    # -------------------------------------------------------------- towards the target
    @property
    def _allowed(self) -> int:
        return self._breaker.concurrency(self._limit)

    def _move(self, now: float) -> None:
        """Start, tell or send away workers until there are as many as wanted."""
        wanted = max(1, min(self._ramp.workers, self._allowed))
        if wanted != self._wanted:
            self._wanted = wanted
            self._emit(events.TargetChanged, workers=wanted)
        staying = [m for m in self.members if m.state is not State.LEAVING]
        ceiling = wanted if self._ramp.polls else self._allowed
        for member in _least_useful_first(staying)[: max(0, len(staying) - ceiling)]:
            self._send_away(member, "limit")
        if not self._ramp.polls:
            self._occupy(wanted, now)
            self._release(wanted, now)
        staying = [m for m in self.members if m.state is not State.LEAVING]
        working = staying if self._ramp.polls else [m for m in staying if m.state is not State.IDLE]
        open_round = self._ramp.polls or getattr(self._ramp, "receiving", False)
        missing = wanted - len(working) if open_round else 1 - len(staying)
        room = self._allowed - len(staying)
        if now >= self._spawn_at:
            for _ in range(max(0, min(missing, room))):
                self._start_worker(now, receive=open_round and not self._ramp.polls)

    def _occupy(self, wanted: int, now: float) -> None:
        """Receive mode: idle workers are told to receive before new ones are started."""
        if not self._ramp.receiving:
            return
        working = sum(1 for m in self.members if m.state in (State.BUSY, State.STARTING))
        idle = [m for m in self.members if m.state is State.IDLE]
        for member in idle[: max(0, wanted - working)]:
            member.round += 1
            self._enter(member, State.BUSY, now)
            member.process.tell(Receive(member.round))

    def _release(self, wanted: int, now: float) -> None:
        """Idle workers leave, but one (seed 000: "when idle it maintains only one")."""
        idle = {m.number: now - m.since for m in self.members if m.state is State.IDLE}
        staying = sum(1 for m in self.members if m.state is not State.LEAVING)
        keep = wanted if self._ramp.receiving else 1
        for number in spare_workers(idle, staying, keep, self._idle_timeout):
            self._send_away(self._members[number], "spare")

    def _start_worker(self, now: float, *, receive: bool) -> None:
        self._numbers += 1
        process = self._spawn(self._assign(self._numbers, receive))
        polls = self._ramp.polls
        member = Member(self._numbers, process, State.STARTING, now, now, round=1 if receive or polls else 0)
        self._members[member.number] = member

    def _send_away(self, member: Member, reason: str) -> None:
        member.reason = reason
        member.state = State.LEAVING
        member.process.tell(Leave())

    def _enter(self, member: Member, state: State, now: float) -> None:
        member.state, member.since = state, now

    def _due(self, now: float, own: Iterator[float] | tuple[float, ...]) -> float:
        peek_at = float("inf") if self._asked else self._peek_at
        return min((peek_at, self._breaker.triggers_at or float("inf"), *own))

    def _own_times(self, now: float) -> Iterator[float]:
        if self._spawn_at > now:
            yield self._spawn_at
        for member in self._members.values():
            if member.state is State.IDLE and len(self._members) > 1 and not self._ramp.polls:
                yield member.since + self._idle_timeout
            if self._ramp.polls and member.state is State.BUSY and (due := member.heard_at + LONG_RECEIVE) > now:
                yield due + 0.001

    # -------------------------------------------------------------- reports in detail
    def _progressed(self, member: Member, report: Progress, now: float) -> None:
        if report.runs:
            self._deaths = 0
        self._figures.add(report, now)
        pid = member.process.pid
        if report.handled:
            self._stuck = False
            self._emit(events.Handled, pid=pid, count=report.handled)
        if report.expired:
            self._emit(events.Expired, pid=pid, count=report.expired)
        for outcome in report.failures:
            self._emit_failure(outcome, pid)
        self._settle(member, report, now)
        if report.runs:
            self._see(Received(member.number, report.runs), now)

    def _settle(self, member: Member, report: Progress, now: float) -> None:
        """Busy or idle; an old round's end says nothing about the present one."""
        if member.state not in (State.BUSY, State.IDLE) or report.round != member.round:
            return
        state = State.BUSY if report.busy else State.IDLE
        if state is not member.state and not member.troubled:
            self._enter(member, state, now)

    def _emit_failure(self, outcome: Outcome, pid: int) -> None:
        if outcome.kind is Kind.STUCK:
            if not self._stuck:
                self._stuck = True
                self._emit(events.Critical, error=outcome.error)
            return
        kind = EVENT_OF_KIND[outcome.kind]
        self._emit(kind, pid=pid, id=outcome.id, attempts=outcome.attempts, error=outcome.error or "")

    def _see(self, seen: Peeked | Received | StillBusy, now: float) -> None:
        self._ramp = self._ramp.after(seen, self._allowed)
        if self._ramp.peek_in is not None:
            self._peek_at = now + self._ramp.peek_in
        stop = self._ramp.stop
        if stop is not None and stop in self._members and not self._stopping:
            self._send_away(self._members[stop], "spare")

    # -------------------------------------------------------------- breaker
    def _suffers(self, who: object, text: str, error: BaseException | None, now: float) -> None:
        if error is not None and not arms_breaker(error):
            return
        self._last_error = text
        if who not in self._breaker.failing:
            self._emit(events.Trouble, error=text)
        self._note_breaker(self._breaker.after_failure(now, who))

    def _is_well(self, who: object) -> None:
        self._note_breaker(self._breaker.after_success(who))

    def _note_breaker(self, breaker: Breaker) -> None:
        self._breaker = breaker
        if breaker.change == "triggered":
            self._emit(events.Critical, error=self._last_error)
        elif breaker.change == "recovered":
            self._peek_at = float("-inf")
            self._emit(events.Recovered)

    def _emit(self, kind: type[events.Event], **fields: Any) -> None:
        self._emit_event(kind(queue=self.name, at=time.time(), **fields))


def _least_useful_first(members: list[Member]) -> list[Member]:
    """Idle before starting before busy, the youngest first."""
    order = {State.IDLE: 0, State.STARTING: 1, State.BUSY: 2}
    return sorted(members, key=lambda m: (order[m.state], -m.number))
