"""Tells what a queue's workers reported as events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.workers import events
from rowpost.workers.protocol import Progress

__all__ = ["EventReporter"]

EVENT_OF_KIND = {
    Kind.FAILED: events.Failed,
    Kind.DELAYED: events.Delayed,
    Kind.MOVED_TO_ERROR: events.MovedToError,
    Kind.CORRUPT: events.Poisoned,
}


class EventReporter:
    """Events of one queue, with its name and the wall clock."""

    def __init__(self, queue: str, emit: Callable[[events.Event], None]) -> None:
        self._queue, self._emit = queue, emit
        self._stuck = False

    def tell(self, kind: type[events.Event], **fields: Any) -> None:
        """One event."""
        self._emit(kind(queue=self._queue, at=time.time(), **fields))

    def progress(self, report: Progress, pid: int) -> None:
        """What a worker did since it last said so."""
        if report.handled:
            self._stuck = False
            times = report.times
            self.tell(
                events.Handled,
                pid=pid,
                count=report.handled,
                critical_time=times.critical_time,
                processing_time=times.processing_time,
            )
        if report.expired:
            self.tell(events.Expired, pid=pid, count=report.expired)
        for outcome in report.failures:
            self.failure(outcome, pid)

    def failure(self, outcome: Outcome, pid: int) -> None:
        """A failed attempt; a message that cannot be moved is critical, once until something is handled again."""
        if outcome.kind is not Kind.UNMOVABLE:
            kind = EVENT_OF_KIND[outcome.kind]
            self.tell(kind, pid=pid, id=outcome.id, attempts=outcome.attempts, error=outcome.error or "")
        elif not self._stuck:
            self._stuck = True
            self.tell(events.Critical, error=outcome.error)
