"""The folder in which multiprocessing keeps the socket of the fork server.

multiprocessing makes a folder `pymp-…`, and removes it when its process ends in order. A killed supervisor would leave
one for good. Therefore that folder is made in a folder of rowpost, which its process locks: the next supervisor of the
same user removes those that no process locks.
"""

from __future__ import annotations

import multiprocessing.util
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from rowpost.workers.worker.locks import lock

__all__ = ["use_own_folder"]

# short, because the name of a socket may have about 100 characters
PREFIX = "rowpost-mp-"
#: multiprocessing's own folder has -100; the lower one is removed later
EXIT_PRIORITY = -101


def use_own_folder() -> None:
    """Let multiprocessing have its folder in one of rowpost from now on, unless it has one, and remove what killed
    supervisors left.
    """
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
    lock(new, folder=True)  # the descriptor stays open as long as the process
    folder = outer / new.name.replace("rowpost-new-", PREFIX)
    new.rename(folder)  # no process sees it unlocked
    multiprocessing.util.Finalize(None, shutil.rmtree, args=(str(folder), True), exitpriority=EXIT_PRIORITY)
    return folder


def _remove_left_ones(outer: Path) -> None:
    for folder in outer.glob(f"{PREFIX}*"):
        with suppress(OSError):
            descriptor = lock(folder, folder=True)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)
