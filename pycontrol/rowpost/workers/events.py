"""The events that a supervisor emits: frozen values, one class per kind, for a display, a log or a test.

`at` is the wall clock time in seconds since 1970, `queue` the queue's name, empty for the supervisor itself, and `pid`
the worker's process id.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, dataclass_transform
from uuid import UUID

__all__ = [
    "BridgeChanged",
    "Critical",
    "Delayed",
    "DelayedMoved",
    "Discarded",
    "Emit",
    "Event",
    "Expired",
    "ExpiredPurged",
    "Failed",
    "Handled",
    "LeaseExpired",
    "LimitChanged",
    "Logged",
    "Maintained",
    "MetricsServed",
    "MovedToError",
    "Paused",
    "Peeked",
    "Poisoned",
    "Purged",
    "Quarantined",
    "Recovered",
    "Reloaded",
    "Resumed",
    "ScheduleMoved",
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
    "log_event",
]

logger = logging.getLogger("rowpost")


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Event:
    """Base class of all events, which are frozen dataclasses.

    `str(event)` is one line of text that begins with the queue's name.

    Attributes:
        frequent: whether there are too many of these events to print each; the figures of the queue include them.
    """

    _level: ClassVar[int] = logging.INFO
    _template: ClassVar[str] = ""
    frequent: ClassVar[bool] = False

    queue: str = ""
    at: float = field(default_factory=time.time)

    def __init_subclass__(cls, *, level: int | None = None, text: str = "", frequent: bool = False) -> None:
        """Declare a kind of events.

        Args:
            level: how severe it is, as a level of the module logging. Default: the level of the base class.
            text: formatted with the event. A kind whose text depends on more has a method `_text`.
            frequent: see the class.
        """
        cls._level, cls._template, cls.frequent = cls._level if level is None else level, text, frequent
        dataclass(frozen=True, kw_only=True)(cls)

    @property
    def severity(self) -> int:
        """How severe the event is, as a level of the module logging."""
        return self._level

    def __str__(self) -> str:
        return f"{self.queue}: {self._text()}" if self.queue else self._text()

    def _text(self) -> str:
        return self._template.format(self) or type(self).__name__


#: receives events
Emit = Callable[[Event], None]


class WorkerStarted(Event, text="worker {0.pid} started"):
    """A worker process has started and has imported its handler."""

    pid: int


class WorkerStopped(Event):
    """A worker exited as requested.

    `reason` is spare, limit, paused, stop, refused, signal, interrupted, killed, time limit, quarantine or replaced.
    """

    pid: int
    reason: str

    def _text(self) -> str:
        return f"worker {self.pid} stopped ({'idle' if self.reason == 'spare' else self.reason})"


class WorkerDied(
    Event,
    level=logging.WARNING,
    text=(
        "worker {0.pid} died (exit code {0.exitcode}); its message returned to the queue; a new worker starts in "
        "{0.respawn_in:g} s"
    ),
):
    """A worker process died; its in-flight message is in the queue again.

    The next worker starts in `respawn_in` seconds.
    """

    pid: int
    exitcode: int | None
    respawn_in: float


class Quarantined(
    Event,
    level=logging.WARNING,
    text=(
        "worker {0.pid} died while {0.count} messages were handled in it; each of them is handled alone next, and only "
        "a death there counts as an attempt"
    ),
):
    """A worker process died with several messages, any of which may be the cause."""

    pid: int
    count: int


class Peeked(Event, level=logging.DEBUG, frequent=True, text="{0.count:,} messages wait"):
    """About `count` messages wait in the queue."""

    count: int


class TargetChanged(Event):
    """The target number of workers has changed to `workers`."""

    workers: int

    def _text(self) -> str:
        return f"target: {self.workers} worker{'' if self.workers == 1 else 's'}"


class Handled(Event, level=logging.DEBUG, frequent=True, text="{0.count:,} messages handled by worker {0.pid}"):
    """A worker handled `count` messages since its last report.

    `critical_time` and `processing_time` are mean values in seconds; see `pipeline/timings.py`.
    """

    pid: int
    count: int
    critical_time: float | None = None
    processing_time: float | None = None


class Expired(Event, frequent=True, text="{0.count:,} expired messages removed by worker {0.pid}"):
    """A worker removed `count` expired messages without handling them.

    Each is an event `Discarded` too, up to 50 in a report.
    """

    pid: int
    count: int


class Discarded(Event):
    """A message ended without being handled, for a known `reason`: no saga instance, a control message, its time was
    over.

    `id` is that of the message's row; `message_id` and `message_type` are the message's own, None if its headers do not
    have them. `expected`: this is the usual end of such a message, as of a timeout whose saga is complete; all others
    are warnings.
    """

    pid: int
    id: UUID | None
    message_id: str | None = None
    message_type: str | None = None
    reason: str
    expected: bool = False

    @property
    def severity(self) -> int:
        """A warning, unless this is the usual end of such a message."""
        return logging.INFO if self.expected else logging.WARNING

    def _text(self) -> str:
        return (
            f"message {self.message_id or self.id}{f' ({self.message_type})' if self.message_type else ''} discarded: "
            f"{self.reason}"
        )


class Failed(Event, level=logging.WARNING, text="message {0.known_as} failed, attempt {0.attempts}: {0.error}"):
    """A handler failed; the message is in the queue again and will be retried.

    `id` is that of the message's row; `message_id` is the message's own, as the error queue shows it, and None if its
    headers cannot be read or its worker died.
    """

    pid: int
    id: UUID | None
    message_id: str | None = None
    attempts: int
    error: str

    @property
    def known_as(self) -> object:
        """The id with which `rowpost errors show` finds the message."""
        return self.message_id or self.id


class LeaseExpired(
    Event,
    level=logging.WARNING,
    text=(
        "the lease of {0.owner} on message {0.id} expired: its process was killed, stopped or cut off; the message "
        "is taken from it"
    ),
):
    """A process did not renew the lease of a message in time. An event of the failed attempt follows.

    `owner` is the host, the process and the slot that held it.
    """

    owner: str
    id: UUID | None


class MovedToError(
    Failed,
    level=logging.ERROR,
    text="message {0.known_as} moved to the error queue after {0.attempts} attempts: {0.error}",
):
    """A handler failed, and no retry is left; the message is in the error queue."""


class Delayed(
    Failed,
    level=logging.WARNING,
    text="message {0.known_as} failed {0.attempts} times and will be retried later: {0.error}",
):
    """A handler failed, and no immediate retry is left; the message waits in the delayed table for the next round."""


class Poisoned(Failed, level=logging.ERROR, text="message {0.id} moved to the error queue unchanged: {0.error}"):
    """A message whose headers cannot be read was moved unchanged to the error queue."""


class Purged(Event, text="purged {0.count:,} messages at startup"):
    """The queue was emptied at startup, before the first receive."""

    count: int


class Maintained(Event, text="maintenance, {0.action}: {0.text}"):
    """Maintenance changed the queue's table: `action` as `maintain_queue` names it, `text` gives the reason."""

    action: str
    text: str


class ExpiredPurged(Event, text="purged {0.count:,} expired messages"):
    """A periodic purge removed `count` expired messages."""

    count: int


class DelayedMoved(
    Event,
    level=logging.DEBUG,
    frequent=True,
    text=(
        "{0.count:,} delayed messages moved into the queue, {0.forwarded:,} to other queues, {0.failed:,} to the error "
        "queue"
    ),
):
    """`count` delayed messages became due and were moved into the queue.

    `forwarded` messages went to the queues that they named, and `failed` messages to the error queue because the named
    queue does not exist.
    """

    count: int
    forwarded: int = 0
    failed: int = 0


class ScheduleMoved(Event, level=logging.DEBUG, frequent=True, text="schedule {0.schedule}: {0.count:,} messages sent"):
    """A schedule is seen with another due time than before, or `count` of its messages were sent by this process.

    `next_due` is the tick that was due then, in seconds since 1970; None if the schedule is paused, or nothing is due.
    """

    schedule: str
    count: int
    next_due: float | None


class TimedOut(
    Event, level=logging.WARNING, text="worker {0.pid} was killed: its handler ran longer than {0.seconds:g} s"
):
    """A handler ran longer than its time limit of `seconds`; its process is killed, and the attempt counts as
    failed.
    """

    pid: int
    seconds: float


class ThrottlingStarted(
    Event,
    level=logging.WARNING,
    text="{0.failures} consecutive attempts failed: throttled to one worker, {0.wait:g} s between attempts",
):
    """`failures` attempts failed in a row; the queue has one worker, which waits `wait` seconds between attempts."""

    failures: int
    wait: float


class ThrottlingEnded(Event, text="a message was handled: throttling ended"):
    """A message was handled; the queue has as many workers as before, and they do not wait."""


class LimitChanged(Event):
    """The maximum number of workers is `limit` now.

    `environment` is the environment's. `by` is the login that set another one in the database, empty if none is set.
    """

    limit: int
    environment: int
    by: str = ""

    def _text(self) -> str:
        limit = f"limit changed to {self.limit} workers"
        if not self.by:
            return limit
        return (
            f"{limit} by {self.by} in the database; the environment says {self.environment}, which rowpost queue limit "
            "--clear brings back"
        )


class Paused(Event):
    """An operator has paused the queue: nothing new is received. `by`: the login; `reason` may be empty."""

    by: str
    reason: str

    def _text(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"paused by {self.by}{reason}; messages in flight are handled, nothing new is received"


class Reloaded(Event):
    """The supervisor has read its settings again. `changed`: queues whose workers changed."""

    changed: tuple[str, ...]

    def _text(self) -> str:
        return f"the environment was read again; {', '.join(self.changed) or 'no queue'} changed"


class MetricsServed(Event, text="metrics at {0.url}"):
    """The supervisor serves its metrics at `url`."""

    url: str


class Resumed(Event, text="resumed"):
    """An operator has ended the queue's pause."""


class Trouble(Event, level=logging.WARNING, text="{0.error}"):
    """A peek or a receive failed; it is retried."""

    error: str


class Warned(Event, level=logging.WARNING, text="{0.text}"):
    """A condition that does not stop the queue but needs a correction."""

    text: str


class Critical(Event, level=logging.CRITICAL, text="CRITICAL: {0.error}"):
    """A person has to act: a failure lasts, a message cannot be moved, a handler cannot be found, or a defect was
    met.
    """

    error: str


class Logged(Event):
    """A worker process logged something: code of a handler, or rowpost itself.

    `level` is a number of the module logging, `logger` the logger's name, and `text` the message with the stack of its
    exception. `message_id` is the message that was handled meanwhile, if any, and `extra` what was logged with
    `extra=`.
    """

    pid: int
    level: int
    logger: str
    text: str
    message_id: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def severity(self) -> int:
        """The level with which it was logged."""
        return self.level

    def _text(self) -> str:
        message = f" (message {self.message_id})" if self.message_id else ""
        return f"worker {self.pid}: {logging.getLevelName(self.level)} {self.logger}: {self.text}{message}"


class Recovered(Event, text="recovered"):
    """A failure that was critical is over."""


class Stopping(Event):
    """The supervisor stops this queue; `now` means that it interrupts running handlers."""

    now: bool

    def _text(self) -> str:
        return "stopping at once" if self.now else "stopping: running handlers finish"


class BridgeChanged(Event, text="bridge from {0.source} to {0.target}: {0.state}"):
    """A bridge moves messages from the side `source` to the side `target`, waits because another process does, or has
    stopped.
    """

    source: str
    target: str
    state: str


class Transferred(
    Event, level=logging.DEBUG, frequent=True, text="{0.count:,} messages moved from {0.source} to {0.target}"
):
    """A bridge moved `count` messages from the queue on the side `source` to the side `target`."""

    source: str
    target: str
    count: int


def log_event(event: Event) -> None:
    """Write an event to the logger "rowpost", or to the logger that a worker used; the default of a supervisor without
    `on_event`.
    """
    if isinstance(event, Logged):
        own = logging.makeLogRecord(
            {}
        ).__dict__  # with what the program's record factory adds, which logging refuses as extra
        given = {key: value for key, value in event.extra.items() if key not in own}
        extra = {
            **given,
            "rowpost_queue": event.queue,
            "rowpost_worker": event.pid,
            "rowpost_message_id": event.message_id,
        }
        logging.getLogger(event.logger).log(event.level, "%s", event.text, extra=extra)
    else:
        logger.log(event.severity, "%s", event)
