"""What a supervisor tells: frozen values, one class per kind, for a display, a log or a test.

`at` is the wall clock in seconds since 1970, `queue` the queue's name, `pid` the worker's process.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from uuid import UUID

__all__ = [
    "Critical",
    "Delayed",
    "DelayedMoved",
    "Event",
    "Expired",
    "ExpiredPurged",
    "Failed",
    "Handled",
    "LimitChanged",
    "Maintained",
    "MovedToError",
    "Peeked",
    "Poisoned",
    "Purged",
    "Recovered",
    "Stopping",
    "TargetChanged",
    "ThrottlingEnded",
    "ThrottlingStarted",
    "TimedOut",
    "Trouble",
    "Warned",
    "WorkerDied",
    "WorkerStarted",
    "WorkerStopped",
    "log_event",
]

logger = logging.getLogger("rowpost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Root of all events."""

    queue: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Event):
    """A worker process is up; its handler is imported."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(Event):
    """A worker left as it was told to, `reason` says why: spare, limit, stop, signal, killed or time limit."""

    pid: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDied(Event):
    """A worker vanished; what it had in hand is back in the queue. The next one starts in `respawn_in` seconds."""

    pid: int
    exitcode: int | None
    respawn_in: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Peeked(Event):
    """About `count` messages wait."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChanged(Event):
    """The number of workers wanted from now on."""

    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled(Event):
    """A worker handled `count` messages since it last said so, in the mean times of monitoring.py, in seconds."""

    pid: int
    count: int
    critical_time: float | None = None
    processing_time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired(Event):
    """A worker dropped `count` expired messages."""

    pid: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    """A handler failed; the message is back and will be tried again."""

    pid: int
    id: UUID | None
    attempts: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedToError(Failed):
    """A handler failed for the last time; the message is in the error queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed(Failed):
    """A handler failed for the last time of its round; the message waits in the delayed table for the next round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisoned(Failed):
    """A message whose headers cannot be read was moved, unchanged, to the error queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged(Event):
    """The queue was emptied at startup, before the first receive."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained(Event):
    """Upkeep did something to the queue's table: `action` as maintain_queue names it, `text` why."""

    action: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredPurged(Event):
    """A purge removed `count` expired messages, unasked by any receiver."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedMoved(Event):
    """The time of `count` delayed messages had come: they are in the queue now.

    `forwarded` went to the queues that they named, `failed` to the error queue because there is no such queue.
    """

    count: int
    forwarded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut(Event):
    """A handler ran longer than its time limit of `seconds`: its process is killed, the attempt counts as failed."""

    pid: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlingStarted(Event):
    """`failures` attempts failed in a row: one worker from now on, which waits `wait` seconds between attempts."""

    failures: int
    wait: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlingEnded(Event):
    """A message was handled: as many workers as before, without waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChanged(Event):
    """The greatest number of workers from now on."""

    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble(Event):
    """The queue cannot be peeked or received from; it is tried again."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """Something that works but should not stay so."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Critical(Event):
    """Somebody has to look: the trouble lasts, a message cannot be moved, a handler cannot be found."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Event):
    """The trouble that was critical is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(Event):
    """The supervisor was asked to stop this queue; `now` means without waiting for running handlers."""

    now: bool


LEVELS: dict[type[Event], int] = {
    Critical: logging.CRITICAL,
    MovedToError: logging.ERROR,
    Poisoned: logging.ERROR,
    Trouble: logging.WARNING,
    Failed: logging.WARNING,
    Warned: logging.WARNING,
    WorkerDied: logging.WARNING,
    Delayed: logging.WARNING,
    ThrottlingStarted: logging.WARNING,
    TimedOut: logging.WARNING,
    Handled: logging.DEBUG,
    Peeked: logging.DEBUG,
    DelayedMoved: logging.DEBUG,
}


def log_event(event: Event) -> None:
    """Write an event to the logger "rowpost"; what a supervisor does when nobody else listens."""
    logger.log(LEVELS.get(type(event), logging.INFO), "%s", event)
