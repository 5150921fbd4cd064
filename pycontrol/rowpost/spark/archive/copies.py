"""Remember where messages of an archive were copied to, so that `erase` and `retain` reach the copies: tables of decoded messages.

Each place is a JSON file in the archive's folder `_rowpost/copies`. A place is a table, or a folder of tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from rowpost.archive.folder import METADATA_FOLDER, ArchiveFolder
from rowpost.archive.opening import open_table
from rowpost.archive.table import ArchiveTable
from rowpost.errors import ArchiveNotFound

__all__ = ["places", "remember", "tables_in"]

_FOLDER = "copies"


def remember(archive: ArchiveFolder, place: str) -> None:
    """Note a place, before anything is copied there."""
    name = hashlib.sha256(place.encode()).hexdigest()[:16]
    archive.write(f"{_FOLDER}/{name}.json", {"path": place})


def places(archive: ArchiveFolder) -> list[str]:
    """Return all places that were noted, in order."""
    names = [name.rpartition("/")[2] for name, info in archive.contents(f"{METADATA_FOLDER}/{_FOLDER}") if info.is_file and name.endswith(".json")]
    return sorted(found["path"] for name in names if (found := archive.read(f"{_FOLDER}/{name}")) is not None)


def tables_in(place: str) -> Iterator[ArchiveTable]:
    """Open the table of a place, or the tables in it. Raises ArchiveNotFound if there is none."""
    folder = ArchiveFolder(place)
    if folder.is_delta:
        yield open_table(place)
        return
    below = [name for name, info in folder.contents(recursive=False) if not info.is_file and ArchiveFolder(f"{place}/{name}").is_delta]
    if not below:
        raise ArchiveNotFound(f"There is no table in {place}, to which messages were copied.")
    for name in below:
        yield open_table(f"{place}/{name}")
