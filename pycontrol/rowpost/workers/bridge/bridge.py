"""Run a bridge: both directions, each in a thread, until it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from rowpost.settings.bridge import BridgeSettings
from rowpost.workers import events
from rowpost.workers.bridge.direction import BridgeCounts, Direction

__all__ = ["Bridge", "BridgeSnapshot"]

TICK_S = 0.05


@dataclass(frozen=True, slots=True)
class BridgeSnapshot:
    """What a bridge did so far.

    Attributes:
        counts: (source, target, endpoint, what became of its messages).
        idle: whether neither direction found anything to move.
    """

    counts: tuple[tuple[str, str, str, BridgeCounts], ...]
    idle: bool


class Bridge:
    """Moves messages in both directions.

    Args:
        settings: the bridge.
        on_event: called with each event, in the threads of both directions.
    """

    def __init__(self, settings: BridgeSettings, on_event: events.Emit = events.log_event) -> None:
        self._settings, self._emit = settings, on_event
        self._stopping, self._at_once = threading.Event(), threading.Event()
        first, second = settings.sides
        self._pairs = ((first, second), (second, first))
        self._directions = [Direction(settings, here, there, self._stopping, on_event) for here, there in self._pairs]

    def run(self, until: Callable[[BridgeSnapshot], bool] | None = None) -> None:
        """Move messages until `stop` is called, or until `until` returns True.

        After a stop it waits for the batches that are being moved, at most `stop_timeout` seconds. What is not finished
        then is rolled back by the servers when the process ends.

        Raises:
            BaseException: a defect that ended a direction.
        """
        for direction in self._directions:
            direction.start()
        while not self._stopping.is_set() and not any(each.failure for each in self._directions):
            if until is not None and until(self.snapshot()):
                break
            self._stopping.wait(TICK_S)
        self._stopping.set()
        self._wait(time.monotonic() + self._settings.stop_timeout)
        for direction in self._directions:
            if direction.failure is not None:
                raise direction.failure

    def _wait(self, end: float) -> None:
        for direction in self._directions:
            while direction.is_alive() and time.monotonic() < end and not self._at_once.is_set():
                direction.join(TICK_S)
        if any(each.is_alive() for each in self._directions):
            text = (
                "The bridge was stopped within a batch: its messages stay in their queue, and none will be sent twice."
            )
            self._emit(events.Warned(text=text))

    def stop(self) -> None:
        """Stop after the batches that are being moved.

        The second call does not wait for them. Safe in a signal handler.
        """
        if self._stopping.is_set():
            self._at_once.set()
        self._stopping.set()

    def snapshot(self) -> BridgeSnapshot:
        """Return what was moved so far."""
        counts = tuple(
            (here.name, there.name, name, count)
            for (here, there), direction in zip(self._pairs, self._directions, strict=True)
            for name, count in direction.counts.items()
        )
        return BridgeSnapshot(counts, all(each.idle for each in self._directions))
