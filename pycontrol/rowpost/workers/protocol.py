"""The messages between a supervisor and its workers: an assignment, commands to the worker, reports to the supervisor.

A worker also reports what it logs, as an event `Logged` without the queue's name.
"""

from __future__ import annotations

import ctypes
import struct
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from rowpost.pipeline.histograms import Histograms
from rowpost.pipeline.measurements import Measurements
from rowpost.pipeline.observer import Observer
from rowpost.pipeline.timings import Times
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.recoverability.policy import Recoverability
from rowpost.recoverability.stopping import ProcessStop
from rowpost.settings.environment import Settings
from rowpost.settings.worker import ADAPTIVE, FunctionRetries, Growth
from rowpost.wire.message import Message
from rowpost.workers.circuit_breaker import CircuitBreaker

__all__ = [
    "ATTEMPTS_FAILED",
    "Assignment",
    "Backoff",
    "CrashPolicy",
    "EndpointsSubscribed",
    "Exit",
    "HandlerRefused",
    "Imported",
    "InFlight",
    "Interrupt",
    "Keep",
    "Leave",
    "OfSlot",
    "Ready",
    "Receive",
    "ReceiveFailed",
    "ReceiveRecovered",
    "Returned",
    "SharedHighWaterMark",
    "SlotEnded",
    "StartSlot",
    "Take",
    "Tally",
    "ToSlot",
    "Tried",
    "WorkerProgress",
    "attempt_failed",
]

# A report describes at most so many failures, and so many dropped messages: then it is sent at once.
FAILURES_PER_REPORT = 50
NO_MESSAGE, MESSAGE_IN_FLIGHT = 0, 1
ATTEMPTS_FAILED = frozenset({Kind.FAILED, Kind.DELAYED, Kind.MOVED_TO_ERROR})
BAD = ATTEMPTS_FAILED | {Kind.CORRUPT, Kind.UNMOVABLE}
DROPPED = frozenset({Kind.DISCARDED, Kind.EXPIRED})


class SharedHighWaterMark(ctypes.Structure):
    """State that all workers of a queue share, in shared memory; initially zero.

    `row_version`: no worker has seen a free row at or below it; 0 means unknown. `scanned_at`: when the last full scan
    ended, by the monotonic clock, which all processes of a machine share. `scan_seconds`: how long it took.

    The fields are read and written without a lock. A lost update costs at most an extra scan.
    """

    _fields_ = (("row_version", ctypes.c_int64), ("scanned_at", ctypes.c_double), ("scan_seconds", ctypes.c_double))


@dataclass(frozen=True)
class Assignment:
    """The parameters of one worker; pickled for its process.

    Attributes:
        retries: see WorkerSettings; None for the default, and for an endpoint.
        polls: the worker polls on its own; if not, it waits for Receive.
        receive: the worker starts to receive at once, as round 1.
        subscribes: the worker subscribes its endpoint, if its handler is one, before the first receive.
        time_limit: seconds that a handler may run; 0 for no limit. An endpoint may set its own.
        backoff: seconds, see Backoff.
        reports_failures_at_once: the worker reports each failed attempt at once, for the throttle.
        exclusive: see WorkerSettings.
        batch, batch_time: see pipeline/batch_size.py; `batch_time` in seconds.
        high_water_mark: shared by the workers of the queue, see worker/receive_cursor.py.
        lifeline: shared with the supervisor, see supervision/lifelines.py.
        imports_only: the worker exits when it has imported its handler.
        suspects: row versions of messages, one of which has probably killed a process: the worker, which is alone in
            its process, tries each of them first.
        returns: the worker ends when it finds no message, because its process is a warm one; see worker/warm.py.
    """

    settings: Settings
    queue: str
    handler: str
    number: int = 1
    retries: FunctionRetries | None = None
    error_queue: str = "error"
    polls: bool = False
    receive: bool = False
    subscribes: bool = False
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    time_limit: float = 0.0
    backoff: float = 0.0
    reports_failures_at_once: bool = False
    exclusive: bool = False
    batch: str | int = ADAPTIVE
    batch_time: float = 0.05
    high_water_mark: SharedHighWaterMark | None = None
    lifeline: object = None
    imports_only: bool = False
    suspects: tuple[int, ...] = ()
    returns: bool = False


class InFlight(Observer):
    """The message that a handler handles, in memory that a worker shares with its supervisor.

    It is an observer of the worker's pipeline. The last byte of the memory is the worker's stop, which the supervisor
    writes; see `recoverability.stopping`. A process with several slots has such a memory for each of them, and one for
    itself, one behind the other.

    Writing needs no system call, and the supervisor can still read it when the worker was killed.

    >>> in_flight = InFlight(bytearray(InFlight.SIZE))
    >>> in_flight.message is None
    True
    """

    LAYOUT = struct.Struct("=16sqdB")
    SIZE = LAYOUT.size + 1

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self.stop = ProcessStop(memory)
        self.held: Message | None = None  # known in the worker's process only

    def reset(self) -> None:
        """Make the memory that of a new slot."""
        self._memory[self.LAYOUT.size - 1] = self._memory[self.LAYOUT.size] = NO_MESSAGE

    def starting(self, message: Message) -> None:
        """Store the message that the handler is about to handle."""
        self.held = message
        self.LAYOUT.pack_into(
            self._memory, 0, message.id.bytes, message.row_version, time.monotonic(), MESSAGE_IN_FLIGHT
        )

    def ended(self, _: object = None) -> None:
        """Remove the message: its handler has returned, or the message is in its queue again."""
        self.held = None
        self._memory[self.LAYOUT.size - 1] = NO_MESSAGE

    @property
    def message(self) -> tuple[UUID, int] | None:
        """Id and row version of the in-flight message; None if there is none."""
        row_id, row_version, _, full = self.LAYOUT.unpack_from(self._memory)
        return (UUID(bytes=row_id), row_version) if full else None

    @property
    def since(self) -> float | None:
        """When the handler got the message, by the monotonic clock, which all processes of a machine share; None if no
        message.
        """
        _, _, since, full = self.LAYOUT.unpack_from(self._memory)
        return since if full else None


# ------------------------------------------------------------------ commands, supervisor to worker
@dataclass(frozen=True, slots=True)
class Receive:
    """Receive until the queue is empty; the report of the last receive contains this `round`."""

    round: int


@dataclass(frozen=True, slots=True)
class Backoff:
    """Wait `seconds` after each failed attempt, until one succeeds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Exit:
    """Finish the in-flight message, then exit."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """End the handler that runs: the slot's stop says whether by force, or because of its time limit."""


@dataclass(frozen=True, slots=True)
class StartSlot:
    """Start a slot. `changes` are the attributes of its Assignment in which it differs from that of its process."""

    index: int
    changes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToSlot:
    """A command for one slot of a process."""

    index: int
    command: object


@dataclass(frozen=True, slots=True)
class Take:
    """Work for a queue until it is empty.

    `changes` are the attributes of the queue's Assignment that are others now.
    """

    queue: str
    changes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Keep:
    """Go on to work for the queue: the warm process belongs to it now."""


@dataclass(frozen=True, slots=True)
class Leave:
    """End the warm process, which works for no queue."""


# ------------------------------------------------------------------ reports, worker to supervisor
@dataclass(frozen=True, slots=True)
class OfSlot:
    """A report of one slot of a process."""

    index: int
    report: object


@dataclass(frozen=True, slots=True)
class SlotEnded:
    """The loop of a slot has ended.

    Attributes:
        abandoned: its handler still runs, without a session of the database.
        leaving: its process was asked to exit, and starts no slot any more.
    """

    abandoned: bool = False
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """The worker has tried one of its suspects, and lives."""

    row_version: int


@dataclass(frozen=True, slots=True)
class CrashPolicy:
    """How to treat a message whose handler killed its process or exceeded its time limit.

    The supervisor applies it, because the endpoint's own policy cannot be called any more. `time_limit` is in seconds,
    0 for no limit.
    """

    immediate_retries: int
    delayed_retries: int
    delay_increase: timedelta
    error_queue: str
    time_limit: float = 0.0
    backoff: Growth = "linear"
    longest_delay: timedelta | None = None

    @classmethod
    def of(cls, policy: Recoverability, error_queue: str, time_limit: float = 0.0) -> CrashPolicy:
        """Return how a policy treats such messages."""
        return cls(
            policy.immediate_retries, policy.delayed_retries, policy.delay_increase, error_queue, time_limit,
            policy.backoff, policy.longest_delay,
        )  # fmt: skip

    @property
    def recoverability(self) -> Recoverability:
        """What is left of the endpoint's policy."""
        return Recoverability(
            self.immediate_retries,
            self.delayed_retries,
            self.delay_increase,
            backoff=self.backoff,
            longest_delay=self.longest_delay,
        )


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has imported its handler."""

    pid: int
    crash_policy: CrashPolicy | None = None


@dataclass(frozen=True, slots=True)
class HandlerRefused:
    """The worker cannot run, because its handler cannot be imported; it exits."""

    error: str


@dataclass(frozen=True, slots=True)
class Imported:
    """The warm process has imported the handler of a queue, or cannot: `error` says why."""

    queue: str
    crash_policy: CrashPolicy | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class EndpointsSubscribed:
    """The warm process has imported all handlers, and has subscribed the endpoints of these queues.

    It is sent again when others could be subscribed later; `errors` are those of the queues that could not.
    """

    queues: tuple[str, ...]
    errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Returned:
    """The warm process works for no queue any more."""


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """What a worker did since its last report.

    Attributes:
        busy: the worker continues to receive.
        round: the round of the last Receive.
        runs: receives in order: +n for n messages in a row, -n for n empty receives in a row.
        failures: failed attempts; a report is sent when it has 50 of them.
        dropped: discarded and expired messages; a report is sent when it has 50 of them.
        streak: failed attempts since the last message that was handled.
        times: critical and processing times.
        measured: single measurements for ServiceControl; None if there is none, or the environment sends no metrics.
        histograms: critical and processing times by message type; None if there is none, or the environment serves no
            metrics.
    """

    busy: bool
    round: int
    runs: tuple[int, ...] = ()
    handled: int = 0
    failed: int = 0
    delayed: int = 0
    moved_to_error: int = 0
    expired: int = 0
    poison: int = 0
    discarded: int = 0
    failures: tuple[Outcome, ...] = ()
    dropped: tuple[Outcome, ...] = ()
    streak: int = 0
    times: Times = field(default_factory=Times)
    measured: Measurements | None = None
    histograms: Histograms | None = None


@dataclass(frozen=True, slots=True)
class ReceiveFailed:
    """Receiving failed; the worker retries after a pause."""

    error: str


@dataclass(frozen=True, slots=True)
class ReceiveRecovered:
    """Receiving works again."""


def attempt_failed(outcome: Outcome) -> bool:
    """Return whether an attempt to handle a message has failed."""
    return outcome.kind in ATTEMPTS_FAILED or (outcome.kind is Kind.DISCARDED and not outcome.succeeded)


class Tally:
    """The counts of a worker between two reports. `add` is called for every message."""

    def __init__(self) -> None:
        self._counts: dict[Kind, int] = {}
        self._runs: list[int] = []
        self._failures: list[Outcome] = []
        self._dropped: list[Outcome] = []
        self._streak = 0

    def add(self, outcome: Outcome) -> None:
        if outcome.exception is not None:
            outcome = outcome._replace(exception=None)  # reports go to another process
        kind = outcome.kind
        step = -1 if kind is Kind.EMPTY else 1
        runs = self._runs
        if runs and (runs[-1] > 0) == (step > 0):
            runs[-1] += step
        else:
            runs.append(step)
        if outcome.succeeded:
            self._streak = 0
        elif attempt_failed(outcome):
            self._streak += 1
        if kind in DROPPED:
            self._dropped.append(outcome)
        if kind in BAD:
            self._failures.append(outcome)
        if kind is not Kind.EMPTY and kind is not Kind.UNMOVABLE:
            self._counts[kind] = self._counts.get(kind, 0) + 1

    @property
    def is_full(self) -> bool:
        """Whether the report must be sent before the next message, because it describes as many messages as it may."""
        return len(self._failures) >= FAILURES_PER_REPORT or len(self._dropped) >= FAILURES_PER_REPORT

    def take(
        self,
        *,
        busy: bool,
        round_: int,
        times: Times | None = None,
        measured: Measurements | None = None,
        histograms: Histograms | None = None,
    ) -> WorkerProgress:
        progress = WorkerProgress(
            busy=busy,
            round=round_,
            runs=tuple(self._runs),
            failures=tuple(self._failures),
            dropped=tuple(self._dropped),
            streak=self._streak,
            times=times or Times(),
            measured=measured,
            histograms=histograms,
            **{kind.value: count for kind, count in self._counts.items()},
        )
        self._counts, self._runs, self._failures, self._dropped, self._streak = {}, [], [], [], 0
        return progress
