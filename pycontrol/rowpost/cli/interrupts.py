"""Ctrl-C at the right moment: held back while half a thing would be worse than all of it or nothing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupts", "cancel_on_interrupt", "hold_interrupts"]

_held = threading.Event()
_END = b"\0"


class Interrupts:
    """Whether Ctrl-C was pressed while it was held back."""

    def __init__(self) -> None:
        self.pending = False

    def check(self) -> None:
        """A safe point: raises KeyboardInterrupt if Ctrl-C was pressed."""
        if self.pending:
            self.pending = False
            raise KeyboardInterrupt


@contextmanager
def hold_interrupts(interrupts: Interrupts | None = None) -> Iterator[Interrupts]:
    """Holds Ctrl-C back within the block; whoever must not go on after it asks `check()`. The second one is never
    held back.

    >>> with hold_interrupts() as interrupts:
    ...     sum(range(10))  # a commit, say
    45
    >>> interrupts.check()
    """
    interrupts = interrupts or Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return

    def note(number: int, frame: FrameType | None) -> None:
        if interrupts.pending:
            raise KeyboardInterrupt
        interrupts.pending = True

    before = signal.signal(signal.SIGINT, note)
    _held.set()
    try:
        yield interrupts
    finally:
        _held.clear()
        signal.signal(signal.SIGINT, before)


@contextmanager
def cancel_on_interrupt(cancel: Callable[[], None]) -> Iterator[None]:
    """Calls `cancel`, in a thread, when Ctrl-C is pressed within the block and not held back.

    A driver that waits for the server in C does not see Ctrl-C: what it waits for has to be cancelled first.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ear, mouth = os.pipe()
    os.set_blocking(mouth, False)

    def listen() -> None:
        while (said := os.read(ear, 1)) != _END:
            if said[0] == signal.SIGINT and not _held.is_set():
                cancel()

    thread = threading.Thread(target=listen, name="rowpost interrupts", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.write(mouth, _END)
        thread.join()
        os.close(ear)
        os.close(mouth)
