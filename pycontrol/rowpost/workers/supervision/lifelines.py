"""Find the supervisors of this host that have died, and whose workers have ended too.

    lifeline = Lifeline(settings)
    lifeline.hold()
    lifeline.departed()        # ids of supervisors that were killed
    lifeline.forget(those)     # when the database has recorded their ends
    lifeline.release()

A supervisor locks a file, and its workers inherit the lock: the system frees it when the last of these processes ends,
however it ends. A process id does not show that, because ids are used again, and each container has its own numbers. A
service manager may give each start of a service its own temporary folder, and therefore the files are in the folder of
the system's shared memory, if there is one.

Without files that can be locked (Windows), no supervisor is found.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import reduction
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from rowpost.settings.environment import Settings
from rowpost.workers.worker.locks import lock

__all__ = ["Lifeline"]

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- the files are empty, and those of other users are not opened
#: supervisors that one search finds at most
MOST = 100


class Lifeline:
    """The locked file of one supervisor. A worker holds the lock if its assignment has the lifeline.

    Attributes:
        supervisor_id: under which the supervisor reports itself.
    """

    def __init__(self, settings: Settings) -> None:
        self.supervisor_id: UUID = uuid4()
        place = hashlib.sha256(f"{settings.engine} {settings.target} {settings.environment}".encode()).hexdigest()[:16]
        self._folder = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        self._prefix = f"rowpost-supervisor-{place}-"
        self._descriptor: int | None = None

    def hold(self) -> None:
        """Lock the file. Where that is impossible, other supervisors wait until this one's report is overdue."""
        if sys.platform == "win32":
            return
        with suppress(OSError):
            opened, name = tempfile.mkstemp(prefix="rowpost-new-", dir=self._folder)
            os.close(opened)
            self._descriptor = lock(Path(name))
            os.replace(name, self._path(self.supervisor_id))  # no process sees it unlocked

    def departed(self) -> list[UUID]:
        """Return the supervisors of this user, environment and database that have died, with all their workers; not too
        many at once.
        """
        found: list[UUID] = []
        for path in self._folder.glob(f"{self._prefix}*"):
            with suppress(OSError, ValueError):
                supervisor = UUID(path.name.removeprefix(self._prefix))
                os.close(lock(path))
                found.append(supervisor)
            if len(found) == MOST:
                break
        return found

    def forget(self, supervisors: Iterable[UUID]) -> None:
        """Remove the files of supervisors that have ended."""
        for each in supervisors:
            with suppress(OSError):
                self._path(each).unlink()

    def release(self) -> None:
        """Release the lock.

        The file stays, for a supervisor that ends this one in the database; `forget` removes it.
        """
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _path(self, supervisor: UUID) -> Path:
        return self._folder / f"{self._prefix}{supervisor}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Give the lock to a process that starts."""
        if sys.platform == "win32" or self._descriptor is None:
            return _inherited, (None,)
        return _inherited, (reduction.DupFd(self._descriptor),)


def _inherited(duplicate: Any) -> int | None:
    """Return a worker's descriptor of the file, which it keeps until it ends."""
    if duplicate is None:
        return None
    descriptor: int = duplicate.detach()
    os.set_inheritable(descriptor, False)
    return descriptor
