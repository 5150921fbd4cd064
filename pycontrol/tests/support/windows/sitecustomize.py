"""Hide from rowpost what Windows does not have, in every Python process that has this folder on PYTHONPATH.

Python imports this module at its start, also in workers that multiprocessing spawns. Only modules of rowpost see the
difference: `import fcntl` fails there, `os.set_blocking` does not exist, `sys.platform` is `win32`, and multiprocessing has
only `spawn`. Everything else uses the real modules, because it runs on the real system. The names are those whose
availability Python's documentation limits to Unix, and `os.set_blocking`, which Windows has from Python 3.12 on.
"""

import builtins
import multiprocessing
import os
import platform
import select
import signal
import socket
import sys
import types


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MODULES = _names("crypt curses fcntl grp posix pty pwd readline resource syslog termios tty")
MISSING = {
    # Windows has kill and pipe, but os.kill(pid, 0) presses Ctrl-C there, and nothing can wait for the ends of os.pipe
    os: _names("""
        kill pipe fork forkpty getuid geteuid getgid getegid getgroups getpgid getpgrp setpgid setsid killpg register_at_fork sysconf statvfs fstatvfs chown
        fchown lchown chroot mkfifo mknod nice uname wait getloadavg pread pwrite posix_fadvise posix_fallocate sched_getaffinity
        sched_setaffinity set_blocking get_blocking openpty ttyname ctermid sendfile pidfd_open memfd_create eventfd
        O_DIRECTORY O_NOFOLLOW O_CLOEXEC O_NONBLOCK O_SYNC WNOHANG EX_OK SCHED_OTHER
    """),
    signal: _names("""
        SIGKILL SIGHUP SIGQUIT SIGALRM SIGCHLD SIGPIPE SIGSTOP SIGCONT SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH SIGTTOU alarm setitimer pause
        sigwait sigtimedwait pthread_kill pthread_sigmask siginterrupt
    """),
    select: _names("poll epoll kqueue devpoll POLLIN POLLOUT"),
    socket: _names("AF_UNIX send_fds recv_fds SOCK_CLOEXEC SOCK_NONBLOCK"),
}


def _get_context(method: str | None = None) -> object:
    if method not in (None, "spawn"):
        raise ValueError(f"cannot find context for {method!r}")
    return multiprocessing.get_context("spawn")


DIFFERENT = {
    sys: {"platform": "win32"},
    os: {"name": "nt"},
    platform: {"system": lambda: "Windows"},
    multiprocessing: {"get_all_start_methods": lambda: ["spawn"], "get_context": _get_context},
}


class _OnWindows(types.ModuleType):
    """A module as rowpost sees it."""

    def __init__(self, real: types.ModuleType) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(DIFFERENT.get(real, {}))
        self._real = real

    def __getattr__(self, name: str) -> object:
        if name in MISSING.get(self._real, ()):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on Windows")
        return getattr(self._real, name)


_import = builtins.__import__
_shown = {real.__name__: _OnWindows(real) for real in {*MISSING, *DIFFERENT}}


def _import_on_windows(name, globals=None, locals=None, fromlist=(), level=0):
    if level or not str((globals or {}).get("__name__")).startswith("rowpost"):
        return _import(name, globals, locals, fromlist, level)
    if name.partition(".")[0] in MODULES:
        raise ModuleNotFoundError(f"No module named {name!r} on Windows", name=name)
    imported = _import(name, globals, locals, fromlist, level)
    return _shown.get(imported.__name__, imported)


builtins.__import__ = _import_on_windows
