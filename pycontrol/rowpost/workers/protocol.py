"""What crosses the pipe between a supervisor and its workers: an assignment, commands one way, reports the other."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from rowpost.pipeline.timings import Times
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.settings.environment import Settings
from rowpost.settings.worker import ADAPTIVE
from rowpost.wire.message import Message
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.receive_cursor import SharedHighWaterMark

__all__ = [
    "ATTEMPTS_FAILED",
    "Assignment",
    "Back",
    "Backoff",
    "CrashPolicy",
    "InFlight",
    "InTrouble",
    "Leave",
    "Progress",
    "Ready",
    "Receive",
    "Refused",
    "Tally",
]

# How many failures a report describes; the rest is counted only.
FAILURES_PER_REPORT = 50
EMPTY_HAND, FULL_HAND = 0, 1
ATTEMPTS_FAILED = frozenset({Kind.FAILED, Kind.DELAYED, Kind.MOVED_TO_ERROR})
BAD = ATTEMPTS_FAILED | {Kind.CORRUPT, Kind.UNMOVABLE}


@dataclass(frozen=True)
class Assignment:
    """All that a worker needs to know; crosses to its process.

    `polls`: polls by itself, else waits for Receive. `receive`: begins receiving at once (round 1). `subscribes`:
    subscribes its endpoint, if it is one, before the first receive. `time_limit`: of a handler that sets none itself.
    `pace`: see Backoff. `prompt`: tell of each failed attempt at once. `batch`, `batch_time`: see batch_size.py. `exclusive`:
    see WorkerSettings. `frontier`: what the queue's workers share (anchor.py).
    """

    settings: Settings
    queue: str
    handler: str
    number: int = 1
    attempts: int = 6
    error_queue: str = "error"
    polls: bool = False
    receive: bool = False
    subscribes: bool = False
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    time_limit: float = 0.0
    pace: float = 0.0
    prompt: bool = False
    exclusive: bool = False
    batch: str | int = ADAPTIVE
    batch_time: float = 0.05
    frontier: SharedHighWaterMark | None = None


class InFlight:
    """A few bytes that a worker and its supervisor share: the message that a handler has in hand.

    Written without a system call, and still readable when the worker was killed.

    >>> hand = InFlight(bytearray(InFlight.SIZE))
    >>> hand.content is None
    True
    """

    LAYOUT = struct.Struct("=16sqdB")
    SIZE = LAYOUT.size

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def hold(self, message: Message | None) -> None:
        """Note the message that the handler is about to get, None when it is done with."""
        if message is None:
            self._memory[self.SIZE - 1] = EMPTY_HAND
        else:
            self.LAYOUT.pack_into(self._memory, 0, message.id.bytes, message.row_version, time.monotonic(), FULL_HAND)

    @property
    def content(self) -> tuple[UUID, int] | None:
        """Id and row version of the message in hand."""
        row_id, row_version, _, full = self.LAYOUT.unpack_from(self._memory)
        return (UUID(bytes=row_id), row_version) if full else None

    @property
    def since(self) -> float | None:
        """When the handler got it, by the monotonic clock, which all processes of a machine share; None: empty hand."""
        _, _, since, full = self.LAYOUT.unpack_from(self._memory)
        return since if full else None


# ------------------------------------------------------------------ commands, supervisor to worker
@dataclass(frozen=True, slots=True)
class Receive:
    """Receive until nothing is found; the report of the last receive names this `round`."""

    round: int


@dataclass(frozen=True, slots=True)
class Backoff:
    """Wait so many seconds after each failed attempt, until one succeeds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Leave:
    """Finish the message in hand, then leave."""


# ------------------------------------------------------------------ reports, worker to supervisor
@dataclass(frozen=True, slots=True)
class CrashPolicy:
    """What holds for a message whose handler killed its process, or had to be killed: it cannot be asked any more, nor
    can its custom policy. `time_limit` in seconds, 0 for none."""

    immediate_retries: int
    delayed_retries: int
    delay_increase: timedelta
    error_queue: str
    time_limit: float = 0.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The handler is imported."""

    pid: int
    terms: CrashPolicy | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The worker cannot work at all: no such handler."""

    error: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What happened between `since` and `until` (wall clock, seconds). `runs`: +n hits, -n misses, in order.

    `busy`: more work is at hand. `round`: the round of Receive that this belongs to. `streak`: attempts that failed
    since the last message that was handled.
    """

    since: float
    until: float
    busy: bool
    round: int
    runs: tuple[int, ...] = ()
    handled: int = 0
    failed: int = 0
    delayed: int = 0
    moved_to_error: int = 0
    expired: int = 0
    poison: int = 0
    failures: tuple[Outcome, ...] = ()
    streak: int = 0
    times: Times = field(default_factory=Times)


@dataclass(frozen=True, slots=True)
class InTrouble:
    """The queue cannot be received from; the worker tries again after a while."""

    error: str


@dataclass(frozen=True, slots=True)
class Back:
    """The trouble is over."""


class Tally:
    """A worker's counts between two reports; add() is on the way of every message."""

    def __init__(self) -> None:
        self._since = time.time()
        self._counts: dict[Kind, int] = {}
        self._runs: list[int] = []
        self._failures: list[Outcome] = []
        self._streak = 0

    def add(self, outcome: Outcome) -> None:
        kind = outcome.kind
        step = -1 if kind is Kind.EMPTY else 1
        runs = self._runs
        if runs and (runs[-1] > 0) == (step > 0):
            runs[-1] += step
        else:
            runs.append(step)
        if kind is Kind.HANDLED:
            self._streak = 0
        elif kind in ATTEMPTS_FAILED:
            self._streak += 1
        if kind in BAD and len(self._failures) < FAILURES_PER_REPORT:
            self._failures.append(outcome)
        if kind is not Kind.EMPTY and kind is not Kind.UNMOVABLE:
            self._counts[kind] = self._counts.get(kind, 0) + 1

    def take(self, *, busy: bool, round_: int, times: Times | None = None) -> Progress:
        until = time.time()
        progress = Progress(
            since=self._since,
            until=until,
            busy=busy,
            round=round_,
            runs=tuple(self._runs),
            failures=tuple(self._failures),
            streak=self._streak,
            times=times or Times(),
            **{kind.value: count for kind, count in self._counts.items()},
        )
        self._since = until
        self._counts, self._runs, self._failures, self._streak = {}, [], [], 0
        return progress
