"""Tell handlers and policies that their process stops, and interrupt one that does not end by itself.

`STOP` is the stop of whoever runs: that of this process, or in a process with several messages that of the slot in
which a message is handled (`in_slot`). A worker shares the memory of its stops with its supervisor, so that a handler
sees a request while it runs. A stop by force raises `HandlerInterrupted` in the main thread, by a signal, or cancels
the task of an `async def` handler, but only within a block of `with STOP`, which surrounds handlers and policies. So no
commit and no move of a message is interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["FORCED", "GRACE_S", "OVERDUE", "REQUESTED", "STOP", "CurrentStop", "HandlerInterrupted", "ProcessStop"]

RUNNING, REQUESTED, FORCED, OVERDUE = range(4)
#: seconds from the interruption of a handler until its process is killed
GRACE_S = 2.0


class HandlerInterrupted(KeyboardInterrupt):
    """Ends a handler whose process is stopped by force. Its message is in the queue again, and no attempt is counted.

    It is a `KeyboardInterrupt`: `except Exception` does not catch it, and psycopg cancels the statement that runs.
    """


class ProcessStop:
    """Whether a process stops, or one slot of it.

    Attributes:
        memory: its last byte is RUNNING, REQUESTED, FORCED or OVERDUE: the message in the slot has reached its time
            limit. Another process may write it.
        cancel: cancels the task of the `async def` handler that runs; None if none does.
    """

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.cancel: Callable[[], None] | None = None
        self._interruptible = False

    @property
    def requested(self) -> bool:
        """Whether the process is to stop as soon as its handler returns."""
        return bool(self.memory[-1] != RUNNING)

    @property
    def forced(self) -> bool:
        """Whether the handler that runs has to end now."""
        return bool(self.memory[-1] >= FORCED)

    @property
    def overdue(self) -> bool:
        """Whether that is because of the time limit."""
        return bool(self.memory[-1] == OVERDUE)

    def request(self, level: int) -> None:
        """Request the stop: REQUESTED, or FORCED or OVERDUE, which take effect at the next `interrupt`."""
        self.memory[-1] = max(self.memory[-1], level)

    def interrupt(self) -> None:
        """Raise HandlerInterrupted if the stop is forced and a handler or a policy runs. Signal handlers call this."""
        if self._interruptible and self.forced:
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


_of_process = ProcessStop(bytearray(1))
_of_slot: ContextVar[ProcessStop] = ContextVar("rowpost_stop", default=_of_process)


class CurrentStop:
    """The stop of whoever asks: of the slot whose thread, or whose handler's task, this is; else of the process.

    A block of `with STOP` surrounds a handler or a policy, which may be interrupted.
    """

    process = _of_process

    @property
    def current(self) -> ProcessStop:
        """The stop that counts here."""
        return _of_slot.get()

    @property
    def requested(self) -> bool:
        """Whether the handler should end soon."""
        return _of_slot.get().requested

    @staticmethod
    @contextmanager
    def in_slot(stop: ProcessStop) -> Iterator[None]:
        """Let another stop count in this thread, for a block."""
        token = _of_slot.set(stop)
        try:
            yield
        finally:
            _of_slot.reset(token)

    def suspended(self) -> AbstractContextManager[None]:
        """Interrupt nothing within a block; a forced stop takes effect at its end."""
        return _of_slot.get().suspended()

    def __enter__(self) -> None:
        stop = _of_slot.get()
        stop._interruptible = True
        if stop.memory[-1] >= FORCED:  # asked here too, because this runs for each message
            stop.interrupt()

    def __exit__(self, *_: object) -> None:
        _of_slot.get()._interruptible = False


STOP = CurrentStop()
