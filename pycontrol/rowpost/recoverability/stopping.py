"""Tell handlers and policies that their process stops, and interrupt one that does not end by itself.

`STOP` is the stop of this process. A worker shares its memory with its supervisor, so that a handler sees a request
while it runs. A stop by force is a signal too: it raises `HandlerInterrupted` in the main thread, but only within a
block of `with STOP`, which surrounds handlers and policies. So no commit and no move of a message is interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["FORCED", "GRACE_S", "REQUESTED", "STOP", "HandlerInterrupted", "ProcessStop"]

RUNNING, REQUESTED, FORCED = range(3)
#: seconds from the interruption of a handler until its process is killed
GRACE_S = 2.0


class HandlerInterrupted(KeyboardInterrupt):
    """Ends a handler whose process is stopped by force. Its message is in the queue again, and no attempt is counted.

    It is a `KeyboardInterrupt`: `except Exception` does not catch it, and psycopg cancels the statement that runs.
    """


class ProcessStop:
    """Whether a process stops.

    Attributes:
        memory: its last byte is RUNNING, REQUESTED or FORCED. Another process may write it.
    """

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self._interruptible = False

    @property
    def requested(self) -> bool:
        """Whether the process is to stop as soon as its handler returns."""
        return bool(self.memory[-1] != RUNNING)

    def request(self, level: int) -> None:
        """Request the stop: REQUESTED, or FORCED, which takes effect at the next `interrupt`."""
        self.memory[-1] = max(self.memory[-1], level)

    def interrupt(self) -> None:
        """Raise HandlerInterrupted if the stop is forced and a handler or a policy runs. Signal handlers call this."""
        if self._interruptible and self.memory[-1] == FORCED:
            self._interruptible = False
            raise HandlerInterrupted("The process of this handler is stopped by force.")

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Interrupt nothing within the block; a forced stop takes effect at its end."""
        before, self._interruptible = self._interruptible, False
        try:
            yield
        finally:
            self._interruptible = before
        self.interrupt()

    def __enter__(self) -> None:
        self._interruptible = True
        if self.memory[-1] == FORCED:  # asked here too, because this runs for each message
            self.interrupt()

    def __exit__(self, *_: object) -> None:
        self._interruptible = False


STOP = ProcessStop(bytearray(1))
