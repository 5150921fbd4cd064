"""Turn what the workers of a queue report into events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rowpost.recoverability.outcome import Discard, Kind, Outcome
from rowpost.workers import events
from rowpost.workers.protocol import Logged, Progress

__all__ = ["EventReporter"]

EVENT_OF_KIND = {
    Kind.FAILED: events.Failed,
    Kind.DELAYED: events.Delayed,
    Kind.MOVED_TO_ERROR: events.MovedToError,
    Kind.CORRUPT: events.Poisoned,
}
UNKNOWN = Discard("its worker gave no reason")


class EventReporter:
    """Emits the events of one queue; adds the queue's name and the wall clock time."""

    def __init__(self, queue: str, emit: Callable[[events.Event], None]) -> None:
        self._queue, self._emit = queue, emit
        self._unmovable_reported = False

    def report(self, kind: type[events.Event], **fields: Any) -> None:
        """Emit one event."""
        self._emit(kind(queue=self._queue, at=time.time(), **fields))

    def report_progress(self, progress: Progress, pid: int) -> None:
        """Emit the events of one progress report of a worker."""
        if progress.handled:
            self._unmovable_reported = False
            times = progress.times
            self.report(
                events.Handled,
                pid=pid,
                count=progress.handled,
                critical_time=times.critical_time,
                processing_time=times.processing_time,
            )
        if progress.expired:
            self.report(events.Expired, pid=pid, count=progress.expired)
        for outcome in progress.dropped:
            self._report_dropped(outcome, pid)
        for outcome in progress.failures:
            self.report_failure(outcome, pid)

    def _report_dropped(self, outcome: Outcome, pid: int) -> None:
        reason, expected, *_ = outcome.discard or UNKNOWN
        self.report(
            events.Discarded, pid=pid, id=outcome.id, message_id=outcome.message_id, message_type=outcome.message_type, reason=reason,
            expected=expected,
        )  # fmt: skip

    def report_failure(self, outcome: Outcome, pid: int) -> None:
        """Emit the event of a failed attempt.

        A message that cannot be moved to the error queue is critical. It is reported once, until a message is handled.
        """
        if outcome.kind is not Kind.UNMOVABLE:
            kind = EVENT_OF_KIND[outcome.kind]
            self.report(kind, pid=pid, id=outcome.id, message_id=outcome.message_id, attempts=outcome.attempts, error=outcome.error or "")
        elif not self._unmovable_reported:
            self._unmovable_reported = True
            self.report(events.Critical, error=outcome.error)

    def report_log(self, record: Logged, pid: int) -> None:
        """Emit what a worker logged."""
        self._emit(
            events.Logged(
                queue=self._queue,
                at=record.at,
                pid=pid,
                level=record.level,
                logger=record.logger,
                text=record.text,
                message_id=record.message_id,
                extra=record.extra,
            )
        )
