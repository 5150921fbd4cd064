"""The files of an Iceberg table: what its manifests list, and new files as its manifests describe them.

pyiceberg's own `add_files` takes statistics of all columns from the footers of the files. rowpost describes a file by its `NewFile`,
which has those of the columns in STATISTICS only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile as OwnFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.typedef import Record
from pyiceberg.types import TimestampType, TimestamptzType
from pyiceberg.utils.datetime import datetime_to_micros

from rowpost.spark.archive.parts import PARTITIONS, STATISTICS, NewFile
from rowpost.spark.archive.table import DataFile

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.name_mapping import MappedField
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.types import IcebergType

__all__ = ["Listing", "Manifests", "described", "folder_path", "has_other_statistics", "is_renamed", "listing", "relative"]

_EPOCH = date(1970, 1, 1)
_OTHER_SPELLINGS = {"s3": "s3a", "s3n": "s3a"}


@dataclass(frozen=True)
class Listing:
    """The files of a snapshot.

    Attributes:
        files: ordered by queue, day and path.
        own: what the manifests say of each file, by its path.
        obstacle: what only Iceberg's own readers understand, or None.
    """

    files: list[DataFile] = field(default_factory=list)
    own: dict[str, OwnFile] = field(default_factory=dict)
    obstacle: str | None = None


class Manifests:
    """The entries of manifests. A manifest never changes, so that each is read once."""

    def __init__(self) -> None:
        self._read: dict[str, list[ManifestEntry]] = {}

    def entries(self, manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
        """Return all entries, with those of files that were removed. Raises FileNotFoundError."""
        if manifest.manifest_path not in self._read:
            self._read[manifest.manifest_path] = manifest.fetch_manifest_entry(io, discard_deleted=False)
        return self._read[manifest.manifest_path]

    def live(self, snapshot: Snapshot, io: FileIO) -> Iterator[ManifestEntry]:
        """Yield the entries of the data files of a snapshot. Raises FileNotFoundError."""
        for manifest in snapshot.manifests(io):
            if manifest.content == ManifestContent.DATA:
                yield from (entry for entry in self.entries(manifest, io) if entry.status != ManifestEntryStatus.DELETED)

    def forget_all_but(self, manifests: set[str]) -> None:
        self._read = {path: entries for path, entries in self._read.items() if path in manifests}


def folder_path(location: str) -> str:
    """Return a location in the catalogue as a path, or as a URI that Spark can read.

    >>> folder_path("file:///lake/archive"), folder_path("s3://lake/archive")
    ('/lake/archive', 's3a://lake/archive')
    """
    scheme, colon, rest = location.partition(":")
    if colon and scheme == "file":
        return f"/{rest.lstrip('/')}"
    return f"{_OTHER_SPELLINGS.get(scheme, scheme)}{colon}{rest}"


def relative(folder: str, location: str) -> str | None:
    """Return the path of a file in a folder. None if it is elsewhere."""
    path = folder_path(location)
    return path.removeprefix(f"{folder}/") if path.startswith(f"{folder}/") else None


def listing(table: Table, manifests: Manifests, folder: str) -> Listing:
    """Read the manifests of the current snapshot. Raises FileNotFoundError."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return Listing()
    known = snapshot.manifests(table.io)
    written = {each.snapshot_id: each.timestamp_ms for each in table.metadata.snapshots}
    files, own = [], {}
    deletes = [each for each in known if each.content == ManifestContent.DELETES and (each.has_added_files() or each.has_existing_files())]
    obstacle = "row-level deletes" if deletes else None
    for entry in manifests.live(snapshot, table.io):
        path = relative(folder, entry.data_file.file_path)
        if path is None:
            obstacle, path = "data files outside of its folder", entry.data_file.file_path
        if entry.data_file.file_format != FileFormat.PARQUET:
            obstacle = f"data files in the format {entry.data_file.file_format.value}"
        queue, day = _partition(entry.data_file, table)
        own[path] = entry.data_file
        files.append(
            DataFile(path, queue, day, entry.data_file.file_size_in_bytes, entry.data_file.record_count, written.get(entry.snapshot_id or 0, 0))
        )
    manifests.forget_all_but({each.manifest_path for each in known})
    return Listing(sorted(files, key=lambda file: (file.queue, file.day, file.path)), own, obstacle)


def _partition(file: OwnFile, table: Table) -> tuple[str, str]:
    names = [each.name for each in table.specs()[file.spec_id].fields]
    queue, day = (file.partition[names.index(name)] for name in PARTITIONS)
    return str(queue), str(_EPOCH + timedelta(days=day) if isinstance(day, int) else day)


def described(file: NewFile, table: Table) -> OwnFile:
    """Return a new file as a manifest has it. Its statistics are the rows, and the range and nulls of the columns in STATISTICS."""
    values: dict[str, Any] = {"queue": file.queue, "day": (date.fromisoformat(file.day) - _EPOCH).days}
    known: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}} | json.loads(file.statistics)
    own = {name: table.schema().find_field(name) for name in STATISTICS if name in known["nullCount"]}
    found = OwnFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location().rstrip('/')}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*(values[each.name] for each in table.spec().fields)),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
        column_sizes={},
        value_counts={each.field_id: file.rows for each in own.values()},
        null_value_counts={each.field_id: known["nullCount"][name] for name, each in own.items()},
        nan_value_counts={},
        lower_bounds=_bounds(known["minValues"], own),
        upper_bounds=_bounds(known["maxValues"], own),
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    found.spec_id = table.spec().spec_id
    return found


def _bounds(values: dict[str, Any], fields: dict[str, Any]) -> dict[int, bytes]:
    return {fields[name].field_id: _bound(fields[name].field_type, value) for name, value in values.items() if name in fields}


def _bound(kind: IcebergType, value: Any) -> bytes:
    is_time = isinstance(kind, TimestampType | TimestamptzType)
    return to_bytes(kind, datetime_to_micros(datetime.fromisoformat(value)) if is_time else value)  # type: ignore[arg-type]


def has_other_statistics(entries: Iterator[ManifestEntry], schema: Schema) -> bool:
    """Whether entries have values of columns that are not in STATISTICS."""
    known = {schema.find_field(name).field_id for name in (*STATISTICS, *PARTITIONS) if name in schema.column_names}
    return any(not (entry.data_file.lower_bounds or {}).keys() | (entry.data_file.upper_bounds or {}).keys() <= known for entry in entries)


def is_renamed(fields: list[MappedField]) -> bool:
    """Whether a name mapping has several names for a column, because another program has renamed it."""
    return any(len(each.names) > 1 or is_renamed(each.fields) for each in fields)
