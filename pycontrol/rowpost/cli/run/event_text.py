"""A supervisor's events as one line for a person, and as a document for a machine."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rowpost.cli.formats import format_seconds
from rowpost.workers import events
from rowpost.workers.snapshot import QueueSnapshot

__all__ = ["describe_event", "describe_figures", "event_document", "style_of"]

#: too many to print one by one: figures tell the same
FREQUENT = (events.Handled, events.Expired, events.Peeked, events.DelayedMoved)
_STYLES: dict[type[events.Event], str] = {
    events.Critical: "bold red",
    events.MovedToError: "red",
    events.Poisoned: "red",
    events.Trouble: "yellow",
    events.Failed: "yellow",
    events.Warned: "yellow",
    events.WorkerDied: "yellow",
    events.Delayed: "yellow",
    events.TimedOut: "yellow",
    events.ThrottlingStarted: "yellow",
    events.ThrottlingEnded: "green",
    events.Recovered: "green",
}


def describe_event(event: events.Event) -> str | None:
    """One line; None for what happens too often to print.

    >>> describe_event(events.WorkerStarted(queue="Sales", at=0.0, pid=42))
    'Sales: worker 42 started'
    """
    if isinstance(event, FREQUENT):
        return None
    text = _words(event)
    return f"{event.queue}: {text}" if event.queue else text


def _words(event: events.Event) -> str:  # noqa: PLR0911, PLR0912 -- one line per kind
    match event:
        case events.WorkerStarted(pid=pid):
            return f"worker {pid} started"
        case events.WorkerStopped(pid=pid, reason=reason):
            return f"worker {pid} left ({reason})"
        case events.WorkerDied(pid=pid, exitcode=code, respawn_in=seconds):
            return f"worker {pid} died (exit code {code}), its message is back; the next one starts in {seconds:g} s"
        case events.TargetChanged(workers=workers):
            return f"{workers} worker{'' if workers == 1 else 's'} wanted"
        case events.Poisoned(id=row, error=error):
            return f"message {row} moved to the error queue as it is: {error}"
        case events.MovedToError(id=row, attempts=attempts, error=error):
            return f"message {row} moved to the error queue after {attempts} attempts: {error}"
        case events.Delayed(id=row, attempts=attempts, error=error):
            return f"message {row} failed {attempts} times and is tried again later: {error}"
        case events.Failed(id=row, attempts=attempts, error=error):
            return f"message {row} failed, attempt {attempts}: {error}"
        case events.Purged(count=count):
            return f"purged {count:,} messages at startup"
        case events.Maintained(action=action, text=text):
            return f"upkeep, {action}: {text}"
        case events.ExpiredPurged(count=count):
            return f"purged {count:,} expired messages"
        case events.TimedOut(pid=pid, seconds=seconds):
            return f"worker {pid} is killed: its handler ran longer than {seconds:g} s"
        case events.ThrottlingStarted(failures=failures, wait=wait):
            return f"{failures} attempts failed in a row: one worker from now on, {wait:g} s between attempts"
        case events.ThrottlingEnded():
            return "a message was handled: all workers again"
        case events.LimitChanged(limit=limit):
            return f"at most {limit} workers from now on"
        case events.Stopping(now=True):
            return "stopping at once"
        case events.Stopping():
            return "stopping: running handlers finish"
        case events.Critical(error=error):
            return f"CRITICAL: {error}"
        case events.Recovered():
            return "recovered"
        case _:
            return str(getattr(event, "text", None) or getattr(event, "error", None) or type(event).__name__)


def style_of(event: events.Event) -> str:
    """Colour of an event's line on a terminal."""
    return _STYLES.get(type(event), "")


def event_document(event: events.Event) -> dict[str, Any]:
    """An event for machines."""
    at = datetime.fromtimestamp(event.at, UTC).isoformat()
    return {"event": type(event).__name__, **asdict(event), "at": at}


def describe_figures(queue: QueueSnapshot) -> str:
    """One queue's figures as one line."""
    parts = [
        f"{queue.handled:,} handled",
        f"{queue.rate:,.0f}/s",
        f"{queue.workers} of {queue.limit} workers",
        f"{queue.failed:,} failed attempts",
        f"{queue.moved_to_error + queue.poison:,} moved to error",
    ]
    if queue.expired:
        parts.append(f"{queue.expired:,} expired")
    if queue.critical_time is not None:
        parts.append(f"critical time {format_seconds(queue.critical_time)}")
    if queue.processing_time is not None:
        parts.append(f"processing time {format_seconds(queue.processing_time)}")
    return f"{queue.queue}: {', '.join(parts)}"
