"""Let signals stop what runs, or let it read its settings again."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rowpost.settings.password import hurry

__all__ = ["stop_signals"]


@contextmanager
def stop_signals(stop: Callable[[signal.Signals], None], reload: Callable[[], None] | None) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT and `reload` on SIGHUP within the block, if this is the main thread; then
    restore the caller's handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: object) -> None:
        hurry()
        stop(signal.Signals(number))

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    if reload is not None and hasattr(signal, "SIGHUP"):
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: reload())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
