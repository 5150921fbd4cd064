"""Lock files and folders for as long as a process lives, so that others find what a process that died has left.

The system frees a lock when the last process that has the descriptor ends, however it ends. Windows has no such locks.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["lock"]


def lock(path: Path, *, folder: bool = False) -> int:
    """Lock a file or a folder of this user, and return its descriptor.

    Raises:
        OSError: another process has locked it, or it is not a file or folder of this user.
    """
    if sys.platform == "win32":
        raise OSError("Windows has no such locks")
    descriptor = os.open(path, os.O_NOFOLLOW | (os.O_DIRECTORY if folder else os.O_RDWR))
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or not (folder or stat.S_ISREG(found.st_mode)):
            raise PermissionError(f"{path} belongs to another user")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
