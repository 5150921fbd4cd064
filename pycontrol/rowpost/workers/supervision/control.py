"""Apply what operators have set for a queue in the database to the pool of its workers.

The queue monitor reads it with every peek, so that a pause is effective on all hosts within a peek delay. What
operators set overrides the environment, until they clear it.
"""

from __future__ import annotations

from rowpost.workers import events
from rowpost.workers.answers import Control

__all__ = ["Controls"]


class Controls:
    """The limit of one queue's workers: the environment's, and over it what operators have set.

    Args:
        limit: the environment's.
        emit: called with each event.
    """

    def __init__(self, queue: str, limit: int, emit: events.Emit) -> None:
        self._queue, self._environment, self._emit = queue, limit, emit
        self.now = Control()
        #: whether a peek has found out if the queue is paused
        self.known = False

    @property
    def limit(self) -> int:
        """The maximum number of workers."""
        return self._environment if self.now.limit is None else self.now.limit

    @property
    def stops(self) -> bool:
        """Whether nothing new is received."""
        return self.now.stops

    def set_limit(self, limit: int) -> None:
        """Set the environment's limit. It has no effect while operators have set another one, as the event says."""
        self._environment = limit
        self._report_limit()

    def apply(self, control: Control | None) -> bool:
        """Apply what a peek has found; None if it did not ask. Return whether that starts or ends a pause."""
        before, self.known = self.now, True
        if control is None or control == before:
            return False
        self.now = control
        if control.stops and not before.stops:
            self._emit(events.Paused(queue=self._queue, by=control.by, reason=control.reason))
        elif before.stops and not control.stops:
            self._emit(events.Resumed(queue=self._queue))
        if control.limit != before.limit:
            self._report_limit()
        return control.stops != before.stops

    def _report_limit(self) -> None:
        self._emit(
            events.LimitChanged(
                queue=self._queue,
                limit=self.limit,
                environment=self._environment,
                by="" if self.now.limit is None else self.now.by,
            )
        )
