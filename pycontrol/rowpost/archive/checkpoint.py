"""Note outside of an archive how far it is, so that an archive that was restored from an older copy is refused.

An archiver needs no checkpoint to continue: it continues where the table ends. But a table cannot tell that it had a newer version.
"""

from __future__ import annotations

import hashlib

from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.source.streams import Offset
from rowpost.errors import SparkFailed

__all__ = ["Checkpoint"]


class Checkpoint:
    """The notes in a folder: the last offset of each queue that an archive has confirmed. Without a folder, nothing is noted."""

    def __init__(self, place: str | None) -> None:
        self._folder = None if place is None else ArchiveFolder(place)

    def check(self, archive: str, queue: str, position: Offset) -> None:
        """Raise SparkFailed if the archive ends before the last offset that it has confirmed."""
        noted = None if self._folder is None else self._folder.read(self._name(archive, position))
        if self._folder is not None and noted is not None and any(position.get(name, 0) < noted.get(name, 0) for name in ("row_version", "number")):
            raise SparkFailed(
                f"The archive {archive} is older than the checkpoint {self._folder.path}: it has confirmed messages of {queue} that it does not have now, so it was "
                "restored or replaced. Nothing was read or deleted. Restore the newer archive. If you do not have it, delete the folder of the checkpoint: "
                "a tail then archives again what is still in the queue. Messages that a drain had archived since are lost."
            )

    def note(self, archive: str, position: Offset) -> None:
        """Note an offset that the archive has confirmed."""
        if self._folder is not None:
            self._folder.write(self._name(archive, position), dict(position))

    def _name(self, archive: str, position: Offset) -> str:
        named = f"{archive} {position['queue']}".encode()
        return f"confirmed/{hashlib.sha256(named).hexdigest()[:16]}.json"
