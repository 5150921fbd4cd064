"""What operators have set for a queue in the database, and what the pool of its workers makes of it.

The queue monitor reads it with every look at the queue, so that a pause is effective on all hosts within a peek delay. What operators set
goes before what the environment says, until they clear it.
"""

from __future__ import annotations

from collections.abc import Callable

from rowpost.workers import events
from rowpost.workers.answers import Control

__all__ = ["Controls"]


class Controls:
    """The limit of one queue's workers: the environment's, and over it what operators have set.

    Args:
        limit: the environment's.
        emit: called with the kind and the fields of each event.
    """

    def __init__(self, limit: int, emit: Callable[..., None]) -> None:
        self._environment, self._emit = limit, emit
        self.now = Control()
        #: whether the database was asked: until then, nobody knows whether the queue is paused
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
        """Set the environment's limit. It has no effect while operators have set another one, which is said."""
        self._environment = limit
        self._say_limit()

    def apply(self, control: Control | None) -> bool:
        """Take over what a look has found; None if it did not ask. Return whether that starts or ends a pause."""
        before, self.known = self.now, True
        if control is None or control == before:
            return False
        self.now = control
        if control.stops and not before.stops:
            self._emit(events.Paused, by=control.by, reason=control.reason)
        elif before.stops and not control.stops:
            self._emit(events.Resumed)
        if control.limit != before.limit:
            self._say_limit()
        return control.stops != before.stops

    def _say_limit(self) -> None:
        self._emit(events.LimitChanged, limit=self.limit, environment=self._environment, by="" if self.now.limit is None else self.now.by)
