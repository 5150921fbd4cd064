"""Format a supervisor's events as lines of text and as JSON documents."""

from __future__ import annotations

import logging
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rowpost.cli.formats import format_seconds
from rowpost.workers import events
from rowpost.workers.snapshot import QueueSnapshot

__all__ = ["describe_event", "describe_figures", "event_document", "style_of"]

#: events that are too frequent to print; the figures of the queue include them
FREQUENT = (events.Handled, events.Expired, events.Peeked, events.DelayedMoved, events.Transferred)
#: reasons for which workers stop, in words; other reasons are printed as they are
STOP_REASONS = {"spare": "idle"}
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
    events.Paused: "yellow",
    events.Resumed: "green",
}


def describe_event(event: events.Event) -> str | None:
    """Describe an event in one line. Returns None for events that are too frequent to print.

    >>> describe_event(events.WorkerStarted(queue="Sales", at=0.0, pid=42))
    'Sales: worker 42 started'
    """
    if isinstance(event, FREQUENT):
        return None
    text = _text_of(event)
    return f"{event.queue}: {text}" if event.queue else text


def _text_of(event: events.Event) -> str:  # noqa: PLR0911, PLR0912 -- one line per kind
    match event:
        case events.WorkerStarted(pid=pid):
            return f"worker {pid} started"
        case events.WorkerStopped(pid=pid, reason=reason):
            return f"worker {pid} stopped ({STOP_REASONS.get(reason, reason)})"
        case events.WorkerDied(pid=pid, exitcode=code, respawn_in=seconds):
            return f"worker {pid} died (exit code {code}); its message returned to the queue; a new worker starts in {seconds:g} s"
        case events.TargetChanged(workers=workers):
            return f"target: {workers} worker{'' if workers == 1 else 's'}"
        case events.Logged(pid=pid, level=level, logger=logger, text=text, message_id=message_id):
            return f"worker {pid}: {logging.getLevelName(level)} {logger}: {text}{f' (message {message_id})' if message_id else ''}"
        case events.Poisoned(id=row, error=error):
            return f"message {row} moved to the error queue unchanged: {error}"
        case events.MovedToError(attempts=attempts, error=error):
            return f"message {_id(event)} moved to the error queue after {attempts} attempts: {error}"
        case events.Delayed(attempts=attempts, error=error):
            return f"message {_id(event)} failed {attempts} times and will be retried later: {error}"
        case events.Failed(attempts=attempts, error=error):
            return f"message {_id(event)} failed, attempt {attempts}: {error}"
        case events.Discarded(message_type=type_, reason=reason):
            return f"message {_id(event)}{f' ({type_})' if type_ else ''} discarded: {reason}"
        case events.Purged(count=count):
            return f"purged {count:,} messages at startup"
        case events.Maintained(action=action, text=text):
            return f"maintenance, {action}: {text}"
        case events.ExpiredPurged(count=count):
            return f"purged {count:,} expired messages"
        case events.TimedOut(pid=pid, seconds=seconds):
            return f"worker {pid} was killed: its handler ran longer than {seconds:g} s"
        case events.ThrottlingStarted(failures=failures, wait=wait):
            return f"{failures} consecutive attempts failed: throttled to one worker, {wait:g} s between attempts"
        case events.ThrottlingEnded():
            return "a message was handled: throttling ended"
        case events.LimitChanged() | events.Paused() | events.Resumed() | events.Reloaded() | events.MetricsServed():
            return _control_text(event)
        case events.Stopping(now=True):
            return "stopping at once"
        case events.Stopping():
            return "stopping: running handlers finish"
        case events.Critical(error=error):
            return f"CRITICAL: {error}"
        case events.Recovered():
            return "recovered"
        case events.BridgeChanged(source=source, target=target, state=state):
            return f"bridge from {source} to {target}: {state}"
        case _:
            return str(getattr(event, "text", None) or getattr(event, "error", None) or type(event).__name__)


def _id(event: events.Failed | events.Discarded) -> object:
    """Return the id by which `rowpost errors show` knows the message."""
    return event.message_id or event.id


def style_of(event: events.Event) -> str:
    """Return the rich style of an event's line on a terminal."""
    if isinstance(event, events.Logged):
        return "red" if event.level >= logging.ERROR else "yellow" if event.level >= logging.WARNING else ""
    if isinstance(event, events.Discarded):
        return "" if event.expected else "yellow"
    return _STYLES.get(type(event), "")


def _control_text(event: events.LimitChanged | events.Paused | events.Resumed | events.Reloaded | events.MetricsServed) -> str:
    match event:
        case events.MetricsServed(url=url):
            return f"metrics at {url}"
        case events.LimitChanged(limit=limit, by=""):
            return f"limit changed to {limit} workers"
        case events.LimitChanged(limit=limit, environment=environment, by=by):
            return f"limit changed to {limit} workers by {by} in the database; the environment says {environment}, which rowpost queue limit --clear brings back"
        case events.Paused(by=by, reason=reason):
            return f"paused by {by}{f': {reason}' if reason else ''}; messages in flight are handled, nothing new is received"
        case events.Resumed():
            return "resumed"
        case events.Reloaded(changed=changed):
            return f"the environment was read again; {', '.join(changed) if changed else 'no queue'} changed"


def event_document(event: events.Event) -> dict[str, Any]:
    """Return an event as a JSON document."""
    at = datetime.fromtimestamp(event.at, UTC).isoformat()
    return {"event": type(event).__name__, **asdict(event), "at": at, "level": logging.getLevelName(events.level_of(event)).lower()}


def describe_figures(queue: QueueSnapshot) -> str:
    """Format a queue's figures in one line."""
    parts = [
        f"{queue.handled:,} handled",
        f"{queue.rate:,.0f}/s",
        f"paused, {queue.workers} workers left" if queue.paused else f"{queue.workers} of {queue.limit} workers",
        f"{queue.attempts_failed:,} failed attempts",
        f"{queue.moved_to_error + queue.poison:,} moved to error",
    ]
    if queue.depth:
        parts.insert(1, f"{queue.depth:,} waiting")
    if queue.expired:
        parts.append(f"{queue.expired:,} expired")
    if queue.discarded:
        parts.append(f"{queue.discarded:,} discarded")
    if queue.critical_time is not None:
        parts.append(f"critical time {format_seconds(queue.critical_time)}")
    if queue.processing_time is not None:
        parts.append(f"processing time {format_seconds(queue.processing_time)}")
    return f"{queue.queue}: {', '.join(parts)}"
