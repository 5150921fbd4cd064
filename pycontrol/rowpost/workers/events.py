"""The events that a supervisor emits: frozen values, one class per kind, for a display, a log or a test.

`at` is the wall clock time in seconds since 1970, `queue` the queue's name, `pid` the worker's process id.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

__all__ = [
    "BridgeChanged",
    "Critical",
    "Delayed",
    "DelayedMoved",
    "Discarded",
    "Event",
    "Expired",
    "ExpiredPurged",
    "Failed",
    "Handled",
    "LimitChanged",
    "Logged",
    "Maintained",
    "MetricsServed",
    "MovedToError",
    "Paused",
    "Peeked",
    "Poisoned",
    "Purged",
    "Recovered",
    "Reloaded",
    "Resumed",
    "Stopping",
    "TargetChanged",
    "ThrottlingEnded",
    "ThrottlingStarted",
    "TimedOut",
    "Transferred",
    "Trouble",
    "Warned",
    "WorkerDied",
    "WorkerStarted",
    "WorkerStopped",
    "level_of",
    "log_event",
]

logger = logging.getLogger("rowpost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base class of all events."""

    queue: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Event):
    """A worker process has started and has imported its handler."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(Event):
    """A worker exited as requested; `reason` is spare, limit, stop, refused, signal, killed or time limit."""

    pid: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDied(Event):
    """A worker process died; its in-flight message is in the queue again. The next worker starts in `respawn_in` seconds."""

    pid: int
    exitcode: int | None
    respawn_in: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Peeked(Event):
    """About `count` messages wait in the queue."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChanged(Event):
    """The target number of workers has changed to `workers`."""

    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled(Event):
    """A worker handled `count` messages since its last report.

    `critical_time` and `processing_time` are mean values in seconds; see `pipeline/timings.py`.
    """

    pid: int
    count: int
    critical_time: float | None = None
    processing_time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired(Event):
    """A worker removed `count` expired messages without handling them. Each is an event `Discarded` too, up to 50 in a report."""

    pid: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded(Event):
    """A message ended without being handled, for a known `reason`: no saga instance, a control message, its time was over.

    `id` is that of the message's row; `message_id` and `message_type` are the message's own, None if its headers do not tell. `expected`:
    this is the usual end of such a message, as of a timeout whose saga is complete; all others are warnings.
    """

    pid: int
    id: UUID | None
    message_id: str | None = None
    message_type: str | None = None
    reason: str
    expected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    """A handler failed; the message is in the queue again and will be retried.

    `id` is that of the message's row; `message_id` is the message's own, as the error queue shows it, and None if its headers cannot be read
    or its worker died.
    """

    pid: int
    id: UUID | None
    message_id: str | None = None
    attempts: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedToError(Failed):
    """A handler failed, and no retry is left; the message is in the error queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed(Failed):
    """A handler failed, and no immediate retry is left; the message waits in the delayed table for the next round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisoned(Failed):
    """A message whose headers cannot be read was moved unchanged to the error queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged(Event):
    """The queue was emptied at startup, before the first receive."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained(Event):
    """Maintenance changed the queue's table: `action` as `maintain_queue` names it, `text` gives the reason."""

    action: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredPurged(Event):
    """A periodic purge removed `count` expired messages."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedMoved(Event):
    """`count` delayed messages became due and were moved into the queue.

    `forwarded` messages went to the queues that they named, and `failed` messages to the error queue because there is no
    such queue.
    """

    count: int
    forwarded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut(Event):
    """A handler ran longer than its time limit of `seconds`; its process is killed, and the attempt counts as failed."""

    pid: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlingStarted(Event):
    """`failures` attempts failed in a row; the queue has one worker, which waits `wait` seconds between attempts."""

    failures: int
    wait: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlingEnded(Event):
    """A message was handled; the queue has as many workers as before, and they do not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChanged(Event):
    """The maximum number of workers is `limit` now.

    `environment` is the environment's. `by` is the login that set another one in the database, empty if nobody has.
    """

    limit: int
    environment: int
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Event):
    """An operator has paused the queue: nothing new is received. `by`: the login; `reason` may be empty."""

    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded(Event):
    """The supervisor has read its settings again. `changed`: queues whose workers changed."""

    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsServed(Event):
    """The supervisor serves its metrics at `url`."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(Event):
    """An operator has ended the queue's pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble(Event):
    """A peek or a receive failed; it is retried."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """A condition that does not stop the queue but needs a correction."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Critical(Event):
    """A person has to act: a failure lasts, a message cannot be moved, a handler cannot be found, or a defect was met."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged(Event):
    """A worker process logged something: code of a handler, or rowpost itself.

    `level` is a number of the module logging, `logger` the logger's name, and `text` the message with the stack of its exception.
    `message_id` is the message that was handled meanwhile, if any, and `extra` what was logged with `extra=`.
    """

    pid: int
    level: int
    logger: str
    text: str
    message_id: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Event):
    """A failure that was critical is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(Event):
    """The supervisor stops this queue; `now` means without waiting for running handlers."""

    now: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeChanged(Event):
    """A bridge moves messages from the side `source` to the side `target`, stands by because another process does, or has stopped."""

    source: str
    target: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred(Event):
    """A bridge moved `count` messages from the queue on the side `source` to the side `target`."""

    source: str
    target: str
    count: int


LEVELS: dict[type[Event], int] = {
    Critical: logging.CRITICAL,
    MovedToError: logging.ERROR,
    Poisoned: logging.ERROR,
    Trouble: logging.WARNING,
    Failed: logging.WARNING,
    Warned: logging.WARNING,
    WorkerDied: logging.WARNING,
    Delayed: logging.WARNING,
    Discarded: logging.WARNING,
    ThrottlingStarted: logging.WARNING,
    TimedOut: logging.WARNING,
    Handled: logging.DEBUG,
    Peeked: logging.DEBUG,
    DelayedMoved: logging.DEBUG,
    Transferred: logging.DEBUG,
}


def level_of(event: Event) -> int:
    """Return how severe an event is, as a level of the module logging."""
    if isinstance(event, Logged):
        return event.level
    if isinstance(event, Discarded) and event.expected:
        return logging.INFO
    return LEVELS.get(type(event), logging.INFO)


def log_event(event: Event) -> None:
    """Write an event to the logger "rowpost", or to the logger that a worker used; the default of a supervisor without `on_event`."""
    if isinstance(event, Logged):
        own = logging.makeLogRecord({}).__dict__  # with what the program's record factory adds, which logging refuses as extra
        given = {key: value for key, value in event.extra.items() if key not in own}
        extra = {**given, "rowpost_queue": event.queue, "rowpost_worker": event.pid, "rowpost_message_id": event.message_id}
        logging.getLogger(event.logger).log(event.level, "%s", event.text, extra=extra)
    else:
        logger.log(level_of(event), "%s", event)
