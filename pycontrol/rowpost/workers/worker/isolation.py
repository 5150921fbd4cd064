"""Keep the signals of a supervisor's process group away from its workers, and end a worker with all that it started.

Terminals, `timeout`, `dumb-init` and other init programs send a signal to a whole process group. Only the supervisor
decides what that means for its workers. Therefore the processes between it and them are started with all signals
blocked, and each worker has a process group of its own, which it shares with what its handlers start. Windows has
neither groups nor blocked signals: there all this does nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait

from rowpost.recoverability.stopping import FORCED, GRACE_S, REQUESTED

__all__ = [
    "become_a_group",
    "end_with_the_supervisor",
    "forget_safe_path",
    "in_forked_children",
    "kill_group",
    "kill_worker",
    "safe_path",
    "signals_blocked",
]

_SAFE_PATH = "PYTHONSAFEPATH"
_BY_ROWPOST = "rowpost"


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Start processes that no signal reaches, except SIGKILL and SIGSTOP, until they allow it.

    The fork server never does. A signal for this process waits until the block ends, or goes to another thread.
    """
    if sys.platform == "win32":
        yield
        return
    from multiprocessing import resource_tracker

    blocked = signal.valid_signals() - {signal.SIGCHLD}  # the fork server waits for it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)  # again, because the tracker's start allows two of them
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def safe_path() -> Iterator[None]:
    """Start Python processes that import nothing from the current folder before they have the caller's `sys.path`.

    Otherwise a file there that is named like a module of Python, such as `queue.py`, takes that module's place in the
    fork server.
    """
    if _SAFE_PATH in os.environ:
        yield
        return
    os.environ[_SAFE_PATH] = _BY_ROWPOST
    try:
        yield
    finally:
        del os.environ[_SAFE_PATH]


def forget_safe_path() -> None:
    """Keep what `safe_path` has set from programs that handlers start."""
    if os.environ.get(_SAFE_PATH) == _BY_ROWPOST:
        del os.environ[_SAFE_PATH]


def become_a_group() -> None:
    """Give this worker a process group of its own, and allow the signals that are sent to it.

    It is a background group of its terminal, and may write there all the same.
    """
    if sys.platform == "win32":
        return
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def in_forked_children(close: Callable[[], None]) -> None:
    """Let processes that handlers fork be ordinary ones: they close what is the worker's, and signals end them."""
    if sys.platform == "win32":
        return

    def after() -> None:
        close()
        with suppress(ValueError):  # not the main thread
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)

    os.register_at_fork(after_in_child=after)


def end_with_the_supervisor(seconds: float, request: Callable[[int], None]) -> None:
    """Interrupt the handlers of this worker so many seconds after its supervisor has ended without stopping it. Then
    kill the worker, and what its handlers started.

    Args:
        seconds: how long they may go on.
        request: requests a stop, as `ProcessStop.request`.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        request(REQUESTED)
        time.sleep(seconds)
        request(FORCED)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_S)
        kill_group(os.getpid())
        os._exit(1)

    threading.Thread(target=watch, name="rowpost supervisor's end", daemon=True).start()


def kill_group(pid: int) -> None:
    """Kill a worker and the processes that its handlers started.

    Processes with a session of their own stay. Windows: does nothing.
    """
    if sys.platform == "win32":
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def kill_worker(pid: int) -> None:
    """Kill a worker, which has no group yet if it has just begun, and its group.

    The worker may not have been waited for.
    """
    if sys.platform == "win32":
        return
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    kill_group(pid)
