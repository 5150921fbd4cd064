"""Remember SIGHUP until the program can read its environment again.

SIGHUP ends a process that has no handler for it. A service manager may send it as soon as the process has started,
which is before the modules of `rowpost run` are imported.
"""

import signal
import threading
from collections.abc import Callable, Iterable

__all__ = ["is_run", "remember", "take_over"]

_early = threading.Event()


def is_run(arguments: Iterable[str]) -> bool:
    """Return whether these are arguments of `rowpost run`, the only command that reloads; SIGHUP ends all others."""
    words = iter(arguments)
    for word in words:
        if word == "--env":
            next(words, None)
        elif not word.startswith("-"):
            return word == "run"
    return False


def remember() -> None:
    """Remember each SIGHUP from now on. Windows does not have this signal."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: _early.set())


def take_over(reload: Callable[[], None]) -> None:
    """Call `reload` if a SIGHUP was remembered. Call this when SIGHUP has another handler."""
    if _early.is_set():
        _early.clear()
        reload()
