"""What an archive remembers beside its table, below `_rowpost`: where its messages were copied to, and which were
deleted.

`erase` and `retain` reach the copies, which are tables of decoded messages: each place is a JSON file in `copies`, and
is a table, or a folder of tables. `verify` does not call messages missed that were deleted, and may still be in their
queue: a file in `removed` has the row versions of one change, and the epochs of the queue that the archive had then. No
id and nothing of a message's content is stored.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rowpost.archive.folder import LOG_FOLDER, METADATA_FOLDER, ArchiveFolder
from rowpost.archive.parts import NewFile, partition_folder
from rowpost.archive.table import ArchiveTable, DataFile, open_table
from rowpost.errors import ArchiveNotFound

__all__ = ["places", "remember_copy", "remember_removed", "removed_row_versions", "tables_in"]

_COPIES = "copies"
_KEY, _EPOCHS = "row_version", b"epochs"


def remember_copy(archive: ArchiveFolder, place: str) -> None:
    """Note a place, before anything is copied there."""
    name = hashlib.sha256(place.encode()).hexdigest()[:16]
    archive.write(f"{_COPIES}/{name}.json", {"path": place})


def places(archive: ArchiveFolder) -> list[str]:
    """Return all places that were noted, in order."""
    names = [name for name, _ in archive.contents(f"{METADATA_FOLDER}/{_COPIES}") if name.endswith(".json")]
    read = (archive.read(name.removeprefix(f"{METADATA_FOLDER}/")) for name in names)
    return sorted(found["path"] for found in read if found is not None)


def tables_in(place: str) -> list[ArchiveTable]:
    """Open the table of a place, or the tables in it. Raises ArchiveNotFound if there is none."""
    folder = ArchiveFolder(place)
    below = [f"{place}/{name}" for name, _ in folder.contents(recursive=False) if folder.exists(f"{name}/{LOG_FOLDER}")]
    if not (tables := [place] if folder.is_delta else below):
        raise ArchiveNotFound(f"There is no table in {place}, to which messages were copied.")
    return list(map(open_table, tables))


def remember_removed(table: ArchiveTable, before: Sequence[DataFile], after: Sequence[NewFile]) -> list[str]:
    """Store the row versions that files have and the files that replace them do not have.

    Returns the files to delete if nothing is replaced.
    """
    stored = []
    for queue in sorted({file.queue for file in before}):
        old, new = (_row_versions(table, queue, files) for files in (before, after))
        gone = old.filter(pc.invert(pc.is_in(old, value_set=new)))
        if len(gone):
            epochs = [epoch for epoch, each in table.recorded().items() if each.queue == queue]
            rows = pa.table({_KEY: gone.sort()}).replace_schema_metadata({_EPOCHS: json.dumps(epochs)})
            stored.append(f"{_removed(queue)}/{uuid.uuid4().hex}.parquet")
            table.folder.write_table(stored[-1], rows)
    return stored


def removed_row_versions(table: ArchiveTable, queue: str, epoch: str | None) -> pa.Table:
    """Return the row versions of a queue that were deleted.

    An epoch excludes what was deleted before the queue was created again.
    """
    found = [pa.table({_KEY: pa.array([], pa.int64())})]
    for path, _ in table.folder.contents(_removed(queue)):
        each = table.folder.read_table(path, [_KEY])
        epochs = json.loads((each.schema.metadata or {}).get(_EPOCHS, b"[]"))
        if epoch is None or not epochs or epoch in epochs:
            found.append(each.replace_schema_metadata(None))
    return pa.concat_tables(found)


def _removed(queue: str) -> str:
    return f"{METADATA_FOLDER}/removed/{partition_folder(queue, '').partition('/')[0]}"


def _row_versions(table: ArchiveTable, queue: str, files: Sequence[DataFile | NewFile]) -> pa.Array:
    own = [table.folder.read_table(file.path, [_KEY]).column(_KEY) for file in files if file.queue == queue]
    chunks = [chunk.cast(pa.int64()) for column in own for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.int64()).combine_chunks()
