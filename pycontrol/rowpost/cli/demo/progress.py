"""Record the progress of the demo: the sender's process, the workers over time, and recent failures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from tempfile import TemporaryFile
from typing import IO

from rowpost.workers import events
from rowpost.workers.snapshot import Snapshot

__all__ = ["Burst", "DemoProgress"]

RECENT_FAILURES = 4
#: how long all queues must be empty before the burst starts, and after it before the demo ends
QUIET_S = 1.0


class Burst:
    """The process that sends the burst, and the number of messages that it has reported as sent."""

    def __init__(self, environment: str | None, queue: str, orders: int) -> None:
        self._command = [sys.executable, "-m", "rowpost.cli.demo.sender", environment or "", queue, str(orders)]
        self._process: subprocess.Popen[str] | None = None
        self._errors = TemporaryFile("w+")  # noqa: SIM115 -- it ends with the program
        self.orders, self.sent = orders, 0

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def over(self) -> bool:
        """Whether the process has exited."""
        return self._process is not None and self._process.poll() is not None

    @property
    def failure(self) -> str | None:
        """Why the process failed, or None."""
        if self._process is None or not self._process.poll():
            return None
        self._errors.seek(0)
        return self._errors.read().strip() or f"exit code {self._process.returncode}"

    def start(self) -> None:
        """Start the process in its own session, so that Ctrl-C in the terminal does not reach it."""
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(  # noqa: S603 -- our own program, no shell
            self._command,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
            env=environment,
        )
        threading.Thread(
            target=self._count, args=(self._process.stdout,), name="rowpost demo burst", daemon=True
        ).start()

    def stop(self) -> None:
        """Terminate the process. Its last batch is either committed or rolled back."""
        if self._process is not None and not self.over:
            self._process.terminate()
            self._process.wait()

    def _count(self, output: IO[str]) -> None:
        for line in output:
            self.sent = int(line)


class DemoProgress:
    """Receives the supervisor's events, samples the number of workers, and detects the end of the demo."""

    def __init__(self, burst: Burst, queues: tuple[str, ...]) -> None:
        self.burst = burst
        self._began = self._quiet_since = self._burst_began = self._last_handled = time.monotonic()
        self._seen_empty_at = dict.fromkeys(queues, float("-inf"))
        self._burst_over_at = float("inf")
        self.workers: list[int] = []
        self.recent: deque[str] = deque(maxlen=RECENT_FAILURES)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def burst_seconds(self) -> float:
        """Seconds from the start of the burst to the last handled message."""
        return max(self._last_handled - self._burst_began, 0.001)

    def start_burst(self) -> None:
        """Start the second process."""
        self._quiet_since = self._burst_began = time.monotonic()
        self.burst.start()

    def record(self, event: events.Event) -> None:
        """Record an event. Called in the supervisor's thread."""
        match event:
            case events.Peeked():
                self._seen_empty_at[event.queue] = time.monotonic() if event.count == 0 else float("-inf")
            case events.Handled():
                self._last_handled = time.monotonic()
            case events.Failed():
                result = f"attempt {event.attempts}" if type(event) is events.Failed else "moved to error"
                self.recent.append(f"{result}: {event.error}")
            case events.Trouble() | events.Critical() | events.WorkerDied():
                self.recent.append(str(event))

    def over(self, snapshot: Snapshot) -> bool:
        """Whether all queues were empty after the burst and have had at most one worker for `QUIET_S` seconds."""
        if self.burst.failure:
            return True
        now = time.monotonic()
        if self.burst.over:
            self._burst_over_at = min(self._burst_over_at, now)
        if min(self._seen_empty_at.values()) <= self._burst_over_at or any(
            queue.busy or queue.workers > 1 for queue in snapshot.queues
        ):
            self._quiet_since = now
        return now - self._quiet_since >= QUIET_S

    @property
    def quiet(self) -> bool:
        """Whether all queues were empty at least once, so that the burst may start."""
        return self.seconds > QUIET_S and min(self._seen_empty_at.values()) > float("-inf")

    def sample(self, snapshot: Snapshot, queue: str) -> None:
        """Record the number of workers of the burst's queue, until the supervisor stops them."""
        if not snapshot.stopping:
            self.workers.append(snapshot.queue(queue).workers)
