"""What a supervisor's queues look like at one moment, for a display or a condition to wait for."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from rowpost.errors import QueueNotFound
from rowpost.pipeline.timings import Times
from rowpost.workers.protocol import Progress

__all__ = ["Figures", "QueueSnapshot", "Snapshot"]

# Seconds that a handled message counts for the rate.
RATE_WINDOW = 5.0
COUNTED = ("handled", "failed", "delayed", "moved_to_error", "expired", "poison")


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """One queue at one moment.

    `depth` is what the last peek found, counted up to 1,000 (None: nobody could look yet); `target` the workers
    wanted, `busy` those that have work; `rate` messages handled a second over the last five; `critical` whether the
    circuit breaker has triggered. Counts are since the supervisor started: `failed` attempts that are repeated at once, `delayed` those
    that are repeated later, `died` workers. `throttled`: one attempt at a time, after many failures in a row.
    `critical_time` and `processing_time` are means over the last five seconds, in seconds (monitoring.py), None where
    nothing was handled.
    """

    queue: str
    depth: int | None
    workers: int
    busy: int
    limit: int
    target: int
    handled: int
    failed: int
    delayed: int
    moved_to_error: int
    expired: int
    poison: int
    died: int
    rate: float
    critical: bool
    throttled: bool = False
    critical_time: float | None = None
    processing_time: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All queues at one moment."""

    queues: tuple[QueueSnapshot, ...]
    stopping: bool = False

    def queue(self, name: str) -> QueueSnapshot:
        """The figures of one queue. Raises QueueNotFound."""
        for snapshot in self.queues:
            if snapshot.queue == name:
                return snapshot
        raise QueueNotFound(f"the supervisor works no queue named {name!r}: give it a worker in the settings")

    @property
    def idle(self) -> bool:
        """Whether the last peek of every queue found nothing, and nobody is busy."""
        return all(queue.depth == 0 and queue.busy == 0 for queue in self.queues)


class Figures:
    """Counts of one queue since the start, and the recent ones for the rate."""

    def __init__(self) -> None:
        self.depth: int | None = None
        self.counts = dict.fromkeys((*COUNTED, "died"), 0)
        self._recent: deque[tuple[float, int, Times]] = deque()
        self._lock = threading.Lock()  # a copy of a deque that grows meanwhile is a RuntimeError

    def add(self, progress: Progress, now: float) -> None:
        """Count a worker's report."""
        for name in COUNTED:
            self.counts[name] += getattr(progress, name)
        with self._lock:
            while self._recent and self._recent[0][0] < now - RATE_WINDOW:
                self._recent.popleft()
            if progress.handled:
                self._recent.append((now, progress.handled, progress.times))

    def rate(self, now: float) -> float:
        """Messages handled a second, over the last five seconds at most; may be asked by another thread."""
        recent = self._latest(now)
        if not recent:
            return 0.0
        return sum(count for _, count, _ in recent) / max(1.0, min(RATE_WINDOW, now - recent[0][0]))

    def critical_time(self, now: float) -> float | None:
        """Mean over the same time, in seconds."""
        return sum((times for _, _, times in self._latest(now)), Times()).critical_time

    def processing_time(self, now: float) -> float | None:
        """Mean over the same time, in seconds."""
        return sum((times for _, _, times in self._latest(now)), Times()).processing_time

    def _latest(self, now: float) -> list[tuple[float, int, Times]]:
        with self._lock:
            recent = tuple(self._recent)
        return [each for each in recent if each[0] >= now - RATE_WINDOW]
