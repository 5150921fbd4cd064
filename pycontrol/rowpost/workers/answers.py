"""What the queue monitor answers to the supervisor, and the crash that it counts."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from rowpost.errors import RowpostError
from rowpost.recoverability.outcome import Outcome
from rowpost.workers.protocol import CrashPolicy

__all__ = ["Answer", "Control", "Crash", "WakeUp"]


@dataclass(frozen=True, slots=True)
class Crash:
    """A worker process that died, by `exitcode`, with a message in flight.

    `crash_policy` is its endpoint's, None if the worker never reported one. `overdue`: it was killed at its time limit.
    `counts`: this is a failed attempt; if not, a message that the process has leased comes back to its queue.
    `suspect`: it may have killed the process, which had other messages too.
    """

    queue: str
    pid: int
    exitcode: int | None
    row_id: UUID
    row_version: int
    crash_policy: CrashPolicy | None = None
    overdue: bool = False
    counts: bool = True
    suspect: bool = False

    @property
    def error(self) -> OSError:
        """The error that the message's failure headers describe."""
        if self.overdue and self.crash_policy is not None:
            limit = f"its time limit of {self.crash_policy.time_limit:g} s"
            return TimeoutError(f"the handler ran longer than {limit}, and was ended")
        signal_ = f"signal {-self.exitcode}" if self.exitcode and self.exitcode < 0 else f"exit code {self.exitcode}"
        return ChildProcessError(f"the worker process died ({signal_}) while its handler handled this message")


@dataclass(frozen=True, slots=True)
class Control:
    """What operators have set for a queue.

    Attributes:
        paused: whether nothing new is received.
        limit: how many workers this supervisor runs at most; None: what its environment says. 0 pauses it: other
            supervisors have all.
        reason, by: why, and by which login; empty if nothing is set.
    """

    paused: bool = False
    limit: int | None = None
    reason: str = ""
    by: str = ""

    @property
    def stops(self) -> bool:
        """Whether this supervisor receives nothing new."""
        return self.paused or self.limit == 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request.

    Attributes:
        count: messages that wait in the queue; if `purged`, messages that were removed.
        error: why the request failed, None if it succeeded.
        seconds: duration of the peek.
        next_due: seconds until the next delayed message is due; infinite if there is none, None if the peek did not
            ask.
        crash, outcome: a crash that was counted, and what happened to its message.
        warning: a condition that needs a correction, empty if there is none.
        control: what operators have set for the queue; None if the peek did not ask.
    """

    queue: str
    count: int = 0
    purged: bool = False
    error: Exception | None = None
    seconds: float = 0.0
    next_due: float | None = None
    crash: Crash | None = None
    outcome: Outcome | None = None
    warning: str = ""
    control: Control | None = None

    @property
    def unexpected(self) -> bool:
        """Whether the error indicates a defect: rowpost did not raise it."""
        return self.error is not None and not isinstance(self.error, RowpostError)


@dataclass(frozen=True, slots=True)
class WakeUp:
    """Senders have committed messages to the queue; None: possibly to any queue, because notifications may have been
    lost.
    """

    queue: str | None = None
