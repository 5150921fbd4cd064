"""Remember which messages `erase` and `retain` have deleted from an archive, so that `verify` does not call them missed.

A deleted message may still be in its queue. Only its row version is stored, a number of the queue's table: no id and nothing of its
content. A file below `_rowpost/removed` has the row versions of one change, and the epochs of the queue that the archive had then.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rowpost.archive.folder import METADATA_FOLDER
from rowpost.archive.parts import partition_folder
from rowpost.archive.table import ArchiveTable, DataFile

if TYPE_CHECKING:
    from rowpost.archive.parts import NewFile

__all__ = ["remember_removed", "removed_row_versions"]

_COLUMN = "row_version"
_EPOCHS = b"epochs"


def remember_removed(table: ArchiveTable, before: Sequence[DataFile], after: Sequence[NewFile]) -> list[str]:
    """Store the row versions that files have and the files that replace them do not have. Returns the files to delete if nothing is replaced."""
    stored = []
    for queue in sorted({file.queue for file in before}):
        old, new = (_row_versions(table, [file.path for file in files if file.queue == queue]) for files in (before, after))
        gone = old.filter(pc.invert(pc.is_in(old, value_set=new)))
        if not len(gone):
            continue
        epochs = [epoch for epoch, each in table.recorded().items() if each.queue == queue]
        path = f"{_folder(queue)}/{uuid.uuid4().hex}.parquet"
        table.folder.write_table(path, pa.table({_COLUMN: gone.sort()}).replace_schema_metadata({_EPOCHS: json.dumps(epochs)}))
        stored.append(path)
    return stored


def removed_row_versions(table: ArchiveTable, queue: str, epoch: str | None) -> pa.Table:
    """Return the row versions of a queue that were deleted. An epoch excludes what was deleted before the queue was created again."""
    found = [pa.table({_COLUMN: pa.array([], pa.int64())})]
    for path, _ in table.folder.contents(_folder(queue)):
        each = table.folder.read_table(path, [_COLUMN])
        epochs = json.loads((each.schema.metadata or {}).get(_EPOCHS, b"[]"))
        if epoch is None or not epochs or epoch in epochs:
            found.append(each.replace_schema_metadata(None))
    return pa.concat_tables(found)


def _folder(queue: str) -> str:
    return f"{METADATA_FOLDER}/removed/{partition_folder(queue, '').partition('/')[0]}"


def _row_versions(table: ArchiveTable, paths: Iterable[str]) -> pa.Array:
    columns = [table.folder.read_table(path, [_COLUMN]).column(_COLUMN).cast(pa.int64()) for path in paths]
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.int64()).combine_chunks()
