"""Turn what the workers of a queue report into events."""

from __future__ import annotations

from rowpost.recoverability.outcome import Discard, Kind, Outcome
from rowpost.workers import events
from rowpost.workers.protocol import WorkerProgress

__all__ = ["EventReporter"]

EVENT_OF_KIND = {
    Kind.FAILED: events.Failed,
    Kind.DELAYED: events.Delayed,
    Kind.MOVED_TO_ERROR: events.MovedToError,
    Kind.CORRUPT: events.Poisoned,
}
UNKNOWN = Discard("its worker gave no reason")


class EventReporter:
    """Emits the events of one queue's messages."""

    def __init__(self, queue: str, emit: events.Emit) -> None:
        self._queue, self._emit = queue, emit
        self._unmovable_reported = False

    def report_progress(self, progress: WorkerProgress, pid: int) -> None:
        """Emit the events of one progress report of a worker."""
        queue, times = self._queue, progress.times
        if progress.handled:
            self._unmovable_reported = False
            critical, processing = times.critical_time, times.processing_time
            self._emit(
                events.Handled(
                    queue=queue, pid=pid, count=progress.handled, critical_time=critical, processing_time=processing
                )
            )
        if progress.expired:
            self._emit(events.Expired(queue=queue, pid=pid, count=progress.expired))
        for each in progress.dropped:
            reason, expected, *_ = each.discard or UNKNOWN
            self._emit(
                events.Discarded(
                    queue=queue,
                    pid=pid,
                    id=each.id,
                    message_id=each.message_id,
                    message_type=each.message_type,
                    reason=reason,
                    expected=expected,
                )
            )
        for outcome in progress.failures:
            self.report_failure(outcome, pid)

    def report_failure(self, outcome: Outcome, pid: int) -> None:
        """Emit the event of a failed attempt.

        A message that cannot be moved to the error queue is critical. It is reported once, until a message is handled.
        """
        if outcome.kind is not Kind.UNMOVABLE:
            failed, identity, error = EVENT_OF_KIND[outcome.kind], outcome.message_id, outcome.error or ""
            self._emit(
                failed(
                    queue=self._queue,
                    pid=pid,
                    id=outcome.id,
                    message_id=identity,
                    attempts=outcome.attempts,
                    error=error,
                )
            )
        elif not self._unmovable_reported:
            self._unmovable_reported = True
            self._emit(events.Critical(queue=self._queue, error=outcome.error or ""))
