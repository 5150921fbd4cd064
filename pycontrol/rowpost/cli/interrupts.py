"""Defer Ctrl-C while a commit runs, and cancel a running statement when it is pressed."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupts", "cancel_on_interrupt", "defer_interrupts"]

_deferred = threading.Event()
_END = b"\0"


class Interrupts:
    """Records whether Ctrl-C was pressed while it was deferred."""

    def __init__(self) -> None:
        self.pending = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed. Call this where stopping is safe."""
        if self.pending:
            self.pending = False
            raise KeyboardInterrupt


@contextmanager
def defer_interrupts(interrupts: Interrupts | None = None) -> Iterator[Interrupts]:
    """Defer the first Ctrl-C within the block. A caller that must stop after the block calls `check()`.

    The second Ctrl-C is never deferred.

    >>> with defer_interrupts() as interrupts:
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
    _deferred.set()
    try:
        yield interrupts
    finally:
        _deferred.clear()
        signal.signal(signal.SIGINT, before)


@contextmanager
def cancel_on_interrupt(cancel: Callable[[], None]) -> Iterator[None]:
    """Call `cancel` in a thread when Ctrl-C is pressed within the block and not deferred.

    A driver that waits for the server in C code does not notice Ctrl-C until its statement is cancelled.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def listen() -> None:
        while (number := reader.recv(1)) != _END:
            if number[0] == signal.SIGINT and not _deferred.is_set():
                cancel()

    thread = threading.Thread(target=listen, name="rowpost interrupts", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writer.send(_END)
        thread.join()
        reader.close()
        writer.close()
