"""Figures of a supervisor's queues at one moment, for a display or a condition to wait for."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from rowpost.errors import QueueNotFound
from rowpost.pipeline.histograms import Histograms, merge
from rowpost.pipeline.timings import Times
from rowpost.workers.protocol import WorkerProgress

__all__ = ["Figures", "QueueSnapshot", "Snapshot"]

RATE_WINDOW_S = 5.0
COUNTED = ("handled", "failed", "delayed", "moved_to_error", "expired", "poison", "discarded")


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """One queue at one moment.

    Attributes:
        depth: messages that the last peek found, counted up to 1,000; None before the first peek.
        limit: the maximum number of workers.
        target: the target number of workers.
        paused: whether operators have paused the queue, so that nothing new is received.
        busy: workers that have work.
        handled, failed, delayed, moved_to_error, expired, poison, discarded: messages since the supervisor started.
            `failed` counts attempts that are retried at once, `delayed` those that are retried later.
        died: worker processes that died since the supervisor started.
        rate: messages handled per second over the last five seconds.
        critical: whether the circuit breaker has triggered.
        quiet: whether the queue needs no worker of its own: the warm process has its handler, and takes its messages.
        throttled: whether the queue has one worker after many failed attempts in a row.
        critical_time, processing_time: means over the last five seconds, in seconds (see `pipeline/timings.py`); None
            if no message was handled.
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
    paused: bool = False
    quiet: bool = False
    discarded: int = 0
    critical_time: float | None = None
    processing_time: float | None = None

    @property
    def attempts_failed(self) -> int:
        """Failed attempts to handle a message, the last one of each included."""
        return self.failed + self.delayed + self.moved_to_error


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All queues at one moment."""

    queues: tuple[QueueSnapshot, ...]
    stopping: bool = False

    def queue(self, name: str) -> QueueSnapshot:
        """Return the figures of one queue. Raises QueueNotFound."""
        for snapshot in self.queues:
            if snapshot.queue == name:
                return snapshot
        raise QueueNotFound(
            f"Queue {name!r} has no worker in this supervisor. Add `worker:` to the queue in the settings."
        )

    @property
    def idle(self) -> bool:
        """Whether the last peek of every queue found no message, or the queue is paused, and no worker is busy."""
        return all((queue.depth == 0 or queue.paused) and queue.busy == 0 for queue in self.queues)


class Figures:
    """Counts of one queue since the start, and the recent reports for rate and times."""

    def __init__(self) -> None:
        self.depth: int | None = None
        self.counts = dict.fromkeys((*COUNTED, "died"), 0)
        self._recent: deque[tuple[float, int, Times]] = deque()
        self._histograms: Histograms = {}
        self._lock = threading.Lock()  # copying a deque while it changes raises RuntimeError

    def add(self, progress: WorkerProgress, now: float) -> None:
        """Count a worker's report."""
        for name in COUNTED:
            self.counts[name] += getattr(progress, name)
        with self._lock:
            while self._recent and self._recent[0][0] < now - RATE_WINDOW_S:
                self._recent.popleft()
            if progress.handled:
                self._recent.append((now, progress.handled, progress.times))
            if progress.histograms is not None:
                merge(self._histograms, progress.histograms)

    @property
    def histograms(self) -> Histograms:
        """The times of all messages since the start, by message type; empty if the environment serves no metrics.

        Thread-safe.
        """
        copied: Histograms = {}
        with self._lock:
            merge(copied, self._histograms)
        return copied

    def rate(self, now: float) -> float:
        """Return the messages handled per second over at most the last five seconds. Thread-safe."""
        recent = self._latest(now)
        if not recent:
            return 0.0
        return sum(count for _, count, _ in recent) / max(1.0, min(RATE_WINDOW_S, now - recent[0][0]))

    def times(self, now: float) -> Times:
        """Return the critical and processing times over the last five seconds. Thread-safe."""
        return sum((times for _, _, times in self._latest(now)), Times())

    def _latest(self, now: float) -> list[tuple[float, int, Times]]:
        with self._lock:
            recent = tuple(self._recent)
        return [each for each in recent if each[0] >= now - RATE_WINDOW_S]
