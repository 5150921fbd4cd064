"""Remember what metrics need and no snapshot holds: counts of events, and the last answer of the queue monitor about
each queue.

A supervisor has `Observations` only if its environment serves metrics. They are written in the thread of its loop, and
read in those of the HTTP server.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rowpost.pipeline.histograms import Histograms
from rowpost.settings.environment import Settings
from rowpost.workers import events
from rowpost.workers.answers import Answer
from rowpost.workers.snapshot import Snapshot

__all__ = ["LastPeek", "Observations", "Status"]


@dataclass(frozen=True, slots=True)
class LastPeek:
    """The last peek at a queue. Times are in seconds since 1970.

    Attributes:
        at: when a peek last succeeded; None if none has.
        next_due: when the next delayed message is due; None if there is none, or the queue has no table of them.
        error: why the last peek failed; empty if it succeeded.
    """

    at: float | None = None
    next_due: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """A supervisor at one moment.

    Attributes:
        settings: its environment.
        snapshot: the figures of its queues.
        histograms: critical and processing times, by queue.
        refused: why no worker of a queue can run, by queue.
        silent_s: seconds since the loop last ran.
    """

    settings: Settings
    snapshot: Snapshot
    histograms: Mapping[str, Histograms]
    refused: Mapping[str, str]
    silent_s: float


class Observations:
    """What one supervisor has seen since its start.

    Attributes:
        started_at: seconds since 1970.
    """

    def __init__(self) -> None:
        self.started_at = time.time()
        self._events: Counter[tuple[type[events.Event], str]] = Counter()
        self._counts: Counter[tuple[type[events.Event], str]] = Counter()
        self._peeks: dict[str, LastPeek] = {}
        #: by queue and schedule, when it is due next; None if it is paused
        self._schedules: dict[tuple[str, str], float | None] = {}
        #: by queue, the processes that have imported the handler, and not ended since
        self._able: dict[str, set[int]] = {}

    def watching(self, emit: Callable[[events.Event], None]) -> Callable[[events.Event], None]:
        """Return a function that counts an event, and emits it."""

        def count_and_emit(event: events.Event) -> None:
            self._count(event)
            emit(event)

        return count_and_emit

    def _count(self, event: events.Event) -> None:
        kind = type(event)
        self._events[kind, event.queue] += 1
        if isinstance(event, events.DelayedMoved | events.ExpiredPurged):
            self._counts[kind, event.queue] += event.count
        elif isinstance(event, events.ScheduleMoved):
            self._schedules[event.queue, event.schedule] = event.next_due
        elif isinstance(event, events.WorkerStarted):
            self._able.setdefault(event.queue, set()).add(event.pid)
        elif isinstance(event, events.WorkerDied | events.WorkerStopped):
            self._able.get(event.queue, set()).discard(event.pid)

    def answered(self, answer: Answer) -> None:
        """Note what the queue monitor answered."""
        if answer.crash is not None or answer.purged:
            return
        before, now = self._peeks.get(answer.queue, LastPeek()), time.time()
        if answer.error is not None:
            self._peeks[answer.queue] = LastPeek(
                before.at, before.next_due, str(answer.error) or type(answer.error).__name__
            )
            return
        due = answer.next_due
        self._peeks[answer.queue] = LastPeek(now, None if due is None or due == float("inf") else now + due)

    def number(self, kind: type[events.Event], queue: str) -> int:
        """Return how many events of a kind there were."""
        return self._events[kind, queue]

    def queues_of(self, kind: type[events.Event]) -> list[str]:
        """Return the queues of the events of a kind; an empty name stands for the supervisor itself."""
        return sorted({queue for each, queue in list(self._events) if each is kind})

    def count(self, kind: type[events.DelayedMoved | events.ExpiredPurged], queue: str) -> int:
        """Return how many messages the events of a kind were about."""
        return self._counts[kind, queue]

    @property
    def schedules(self) -> dict[tuple[str, str], float]:
        """When each schedule is due next, in seconds since 1970, by queue and name; without those that are paused."""
        return {name: due for name, due in sorted(self._schedules.items()) if due is not None}

    def peek(self, queue: str) -> LastPeek:
        """Return the last peek at a queue."""
        return self._peeks.get(queue, LastPeek())

    def able(self, queue: str) -> int:
        """Return how many workers have started, that is imported the handler, and not ended since."""
        return len(self._able.get(queue, ()))
