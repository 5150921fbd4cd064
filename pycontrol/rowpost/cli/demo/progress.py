"""What the demo knows while it runs: the burst's second process, the workers over time, what failed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from rowpost.cli.run.event_text import describe_event
from rowpost.workers import events
from rowpost.workers.snapshot import Snapshot

__all__ = ["Burst", "Progress"]

RECENT = 4
# Seconds of one worker each, before the burst and after it.
CALM = 1.0


class Burst:
    """The sender's process: starts when told, counts what it reports."""

    def __init__(self, environment: str | None, queue: str, orders: int) -> None:
        self._arguments = [environment or "", queue, str(orders)]
        self._process: subprocess.Popen[str] | None = None
        self.orders = orders
        self.sent = 0

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def over(self) -> bool:
        """Whether the process has ended."""
        return self._process is not None and self._process.poll() is not None

    @property
    def failure(self) -> str | None:
        """Why it failed; None while it runs and where it did not."""
        if self._process is None or not self._process.poll():
            return None
        return self._error.strip() or f"exit code {self._process.returncode}"

    def start(self) -> None:
        """Starts the process; Ctrl-C in this one's terminal does not reach it."""
        self._error = ""
        self._process = subprocess.Popen(  # noqa: S603 -- our own program, no shell
            [sys.executable, "-m", "rowpost.cli.demo.sender", *self._arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        for read in (self._count, self._listen):
            threading.Thread(target=read, name="rowpost demo burst", daemon=True).start()

    def stop(self) -> None:
        """Ends it; its last batch is in the queue or it is not."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def _count(self) -> None:
        for line in self._process.stdout:
            self.sent = int(line)

    def _listen(self) -> None:
        self._error = self._process.stderr.read()


class Progress:
    """Hears the supervisor's events, samples the workers, and says when everything is over."""

    def __init__(self, burst: Burst, queues: tuple[str, ...], clock: Callable[[], float] = time.monotonic) -> None:
        self.burst = burst
        self._clock = clock
        self._began = clock()
        self._looked_empty: dict[str, float] = dict.fromkeys(queues, float("-inf"))
        self._burst_over_at = float("inf")
        self._calm_since = self._burst_began = self._last_handled = self._began
        self.workers: list[int] = []
        self.recent: deque[str] = deque(maxlen=RECENT)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._clock() - self._began

    @property
    def burst_seconds(self) -> float:
        """From the burst's start to the last message that was handled."""
        return max(self._last_handled - self._burst_began, 0.001)

    def start_burst(self) -> None:
        """Starts the second process."""
        self._calm_since = self._burst_began = self._clock()
        self.burst.start()

    def heard(self, event: events.Event) -> None:
        """An event; called in the supervisor's thread."""
        if isinstance(event, events.Peeked):
            self._looked_empty[event.queue] = self._clock() if event.count == 0 else float("-inf")
        elif isinstance(event, events.Handled):
            self._last_handled = self._clock()
        elif isinstance(event, events.Failed):
            became = f"attempt {event.attempts}" if type(event) is events.Failed else "moved to error"
            self.recent.append(f"{became}: {event.error}")
        elif isinstance(event, events.Trouble | events.Critical | events.WorkerDied):
            self.recent.append(describe_event(event) or "")

    def over(self, snapshot: Snapshot) -> bool:
        """Whether every queue was seen empty after the burst's end, and each has been down to its last worker for a
        moment that a person can see."""
        if self.burst.failure:
            return True
        if self._burst_over_at == float("inf") and self.burst.over:
            self._burst_over_at = self._clock()
        looked = min(self._looked_empty.values())
        if looked <= self._burst_over_at or any(queue.busy or queue.workers > 1 for queue in snapshot.queues):
            self._calm_since = self._clock()
        return self._clock() - self._calm_since >= CALM

    @property
    def quiet(self) -> bool:
        """Whether every queue has been seen empty for a moment: the beginning is worked off, the burst may come."""
        return self.seconds > CALM and min(self._looked_empty.values()) > float("-inf")

    def sample(self, snapshot: Snapshot, queue: str) -> None:
        """Notes the workers of the burst's queue at this moment, until they are sent home."""
        if not snapshot.stopping:
            self.workers.append(snapshot.queue(queue).workers)
