"""The folder in which multiprocessing keeps the socket of the fork server.

multiprocessing makes a folder `pymp-…`, and removes it when its process ends in order. A killed supervisor would leave one for good. Therefore
that folder is made in a folder of rowpost, which its process locks: the next supervisor of the same user removes those that nobody locks.
"""

from __future__ import annotations

import multiprocessing.util
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["use_own_folder"]

# short, because the name of a socket may have about 100 characters
PREFIX = "rowpost-mp-"
#: multiprocessing's own folder has -100; the lower one is removed later
EXIT_PRIORITY = -101


def use_own_folder() -> None:
    """Let multiprocessing have its folder in one of rowpost from now on, unless it has one, and remove what killed supervisors left."""
    if sys.platform == "win32":
        return
    before = tempfile.tempdir
    with suppress(OSError):  # then it is as without this module
        outer = Path(tempfile.gettempdir())
        _remove_left_ones(outer)
        tempfile.tempdir = str(_make(outer))
        try:
            multiprocessing.util.get_temp_dir()  # it keeps the answer
        finally:
            tempfile.tempdir = before


def _make(outer: Path) -> Path:
    new = Path(tempfile.mkdtemp(prefix="rowpost-new-", dir=outer))
    _lock(new)  # the descriptor stays open as long as the process
    folder = outer / new.name.replace("rowpost-new-", PREFIX)
    new.rename(folder)  # nobody sees it unlocked
    multiprocessing.util.Finalize(None, shutil.rmtree, args=(str(folder), True), exitpriority=EXIT_PRIORITY)
    return folder


def _remove_left_ones(outer: Path) -> None:
    for folder in outer.glob(f"{PREFIX}*"):
        with suppress(OSError):
            descriptor = _lock(folder)
            try:
                if sys.platform != "win32" and os.fstat(descriptor).st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def _lock(folder: Path) -> int:
    """Lock a folder, and return its descriptor. Raises OSError if another process has locked it, or if it is none."""
    if sys.platform == "win32":
        raise OSError("Windows has no such locks")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
