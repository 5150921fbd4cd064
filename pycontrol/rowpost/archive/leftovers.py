"""Find the files below an archive that are not in its table: written for a commit that has not come, or never will.

A file of a batch that is committed, and one that is an hour old, is a leftover of a killed or repeated task. Another
one may belong to a writer that is about to commit it, so only a caller that knows that no job writes may delete it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from rowpost.archive.table import ArchiveTable, DataFile
from rowpost.errors import SparkFailed

__all__ = ["find_leftovers"]

_BATCH = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(\d+)-")
_FINISHED_AFTER = timedelta(hours=1)
_OWN = re.compile(r"queue=[^/]*/day=[^/]*/")  # other folders may belong to other programs
_PARTITION = re.compile(r"queue=([^/]*)/day=(\d{4}-\d\d-\d\d)/")


@dataclass(frozen=True)
class Leftover:
    """A file, relative to the archive's folder. `is_over` tells that no writer can still commit it."""

    path: str
    is_over: bool

    def as_file(self) -> DataFile:
        """Describe it like a file of the table, so that it can be read."""
        found = _PARTITION.search(self.path)
        queue, day = (unquote(found[1]), found[2]) if found else ("", "1970-01-01")
        return DataFile(self.path, queue, day, 0, 0)


def find_leftovers(table: ArchiveTable) -> list[Leftover]:
    """Return the leftovers, ordered by path, without files that the table has replaced, which `vacuum` deletes.

    Raises SparkFailed if the log that was read is not that of this folder: all its files would look like leftovers.
    """
    now = datetime.now(UTC)
    files = table.folder.data_files()  # before the log, so that a file that is committed meanwhile is known
    table.refresh()
    if not table.is_of_folder:
        raise SparkFailed(
            f"Cannot tell the leftovers in {table.path}: it does not hold the files of the table that was read, so "
            "nothing was deleted. Check the path, and restore missing files from a backup."
        )
    known = {file.path for file in table.files()} | set(table.replaced())
    return [
        Leftover(path, _is_committed(table, path) or now - info.mtime > _FINISHED_AFTER)
        for path, info in files if path not in known and _OWN.match(path)
    ]  # fmt: skip


def _is_committed(table: ArchiveTable, path: str) -> bool:
    batch = _BATCH.match(path.rpartition("/")[2])
    return batch is not None and table.last_batch(batch[1]) >= int(batch[2])
