"""Ctrl-C at the right moment: held back while half a thing would be worse than all of it or nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupts", "hold_interrupts"]


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
    ...     database.commit()
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
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
