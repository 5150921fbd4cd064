"""Add batches of messages to an archive's table, each once: the only writer of batches, of Spark's archiver and of the
one without Spark.

`TableWriter` compares a batch with what the table confirms (identity.py), adds its files in one commit that stores the
offsets of the batch, and merges small files. Nothing of a batch that is refused stays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from rowpost.archive.columns import ESSENTIAL
from rowpost.archive.identity import StreamBatch, is_new, recorded_after
from rowpost.archive.maintenance_lock import maintenance_lock
from rowpost.archive.merging import AUTOMATIC_FILES, merge, small_files
from rowpost.archive.parts import NewFile
from rowpost.archive.table import ArchiveTable

__all__ = ["TableWriter"]

_VACUUM_EVERY_S = 3600.0
_LOG = logging.getLogger("rowpost.archive")


class TableWriter:
    """The writer of one process. `needed` are the columns without which the table is of something else."""

    def __init__(self, table: ArchiveTable, needed: Sequence[str] = ESSENTIAL) -> None:
        self.table, self._needed = table, needed
        self._vacuumed = time.monotonic()

    def add(
        self, batch: StreamBatch, queue: str | None, write: Callable[[str], Sequence[NewFile]], *, always: bool = False
    ) -> int | None:
        """Add a batch, and return the number of its rows. Returns None if the table has it already.

        `write` writes the files of the batch, whose names begin with its argument. It is not called if the table has
        the batch. With `always`, the offsets of a batch without messages at the end of the table are committed too.
        Raises SparkFailed if the batch is not the next one of the table, or the table must not be changed.
        """
        table = self.table
        table.refresh()
        if not is_new(batch, table.recorded(), table.last_batch(batch.query)):
            return None
        table.check_writable()
        table.check_columns(self._needed)
        new = write(f"{batch.query}-{batch.number}")
        rows = sum(file.rows for file in new)
        note = {"job": "archive", "queue": queue, "batch": batch.number, "rows": rows}
        if (new or batch.moved or always) and not self._commit(batch, new, note):
            return None
        self._merge_small_files()
        return rows

    def _commit(self, batch: StreamBatch, new: Sequence[NewFile], note: Mapping[str, object]) -> bool:
        """Add the files of a batch. Returns False if another process has added the same batch meanwhile."""
        table = self.table
        try:
            while is_new(batch, table.recorded(), table.last_batch(batch.query)):
                recorded = recorded_after(batch, table.recorded())
                if table.commit(new, batches={batch.query: batch.number}, recorded=recorded, note=note):
                    return True
                table.refresh()
        except BaseException:
            with suppress(Exception):  # the files are leftovers then, which `verify --sweep` deletes
                table.discard(new)
            raise
        table.discard(new)
        return False

    def _merge_small_files(self) -> None:
        """Merge small files when there are many, unless another job maintains the archive now."""
        groups = small_files(self.table.files(), AUTOMATIC_FILES)
        if not groups:
            return
        try:
            with maintenance_lock(self.table.folder, "archive", wait_s=0):
                for _ in merge(self.table, groups):
                    pass
                if time.monotonic() - self._vacuumed > _VACUUM_EVERY_S:
                    self.table.vacuum()
                    self._vacuumed = time.monotonic()
        except Exception as error:  # noqa: BLE001 -- the batch is committed, and the next one tries again
            _LOG.warning("the small files of %s were not merged: %s", self.table.address, error)
