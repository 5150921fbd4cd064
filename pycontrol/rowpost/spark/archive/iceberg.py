"""An archive's table as an Iceberg table, which a catalogue knows.

A commit is the catalogue's: it replaces the pointer to the table's metadata if the branch main still has the snapshot that was
read. pyiceberg's own transactions are not used, because they rebase a refused commit on the newest snapshot and repeat it. The last batch of each query is in the table's properties, because a
snapshot and its summary expire. A commit writes the properties, the note (in the summary) and the files together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, ancestors_of
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate
from pyiceberg.transforms import IdentityTransform

from rowpost.errors import SparkFailed
from rowpost.spark.archive import iceberg_expiry as expiry
from rowpost.spark.archive.iceberg_catalog import asked, load
from rowpost.spark.archive.iceberg_files import (
    Listing,
    Manifests,
    described,
    folder_path,
    has_other_statistics,
    is_renamed,
    listing,
    relative,
)
from rowpost.spark.archive.iceberg_schema import iceberg_schema, spark_schema
from rowpost.spark.archive.parts import PARTITIONS, STATISTICS, NewFile
from rowpost.spark.archive.table import NOTE, ArchiveTable, DataFile

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["IcebergArchive"]

_BATCH = "rowpost.batch."
_NAME_MAPPING = "schema.name-mapping.default"
_PROPERTIES = {
    "format-version": "2",
    "write.metadata.metrics.default": "none",
    **{f"write.metadata.metrics.column.{name}": "full" for name in STATISTICS},
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest-merge.enabled": "true",
}
_FORMAT_VERSION = 2
_FIRST_PARTITION_FIELD = 1000
_ATTEMPTS = 5


class IcebergArchive(ArchiveTable):
    """A snapshot of an Iceberg table."""

    def __init__(self, address: str, table: Table) -> None:
        super().__init__(address, folder_path(table.location()))
        self._table = table
        self._manifests = Manifests()
        self._check_partitions()
        self._listing = self._listed()

    @classmethod
    def open(cls, address: str) -> IcebergArchive:
        """Read the newest snapshot. Raises ArchiveNotFound, SettingsError, SparkFailed, SparkUnavailable."""
        return cls(address, _loaded(address, *load(address)))

    @classmethod
    def create(cls, address: str, schema: StructType) -> IcebergArchive:
        """Read the newest snapshot. Creates the table and its namespace if there are none. Raises what `open` raises, but ArchiveNotFound."""
        catalog, name = load(address)
        with asked(address):
            if not catalog.table_exists(name):
                columns = iceberg_schema(schema)
                fields = [
                    PartitionField(columns.find_field(each).field_id, _FIRST_PARTITION_FIELD + number, IdentityTransform(), each)
                    for number, each in enumerate(PARTITIONS)
                ]  # fmt: skip
                properties = {k: v for k, v in _PROPERTIES.items() if k.rpartition(".")[2] in columns.column_names or ".column." not in k}
                catalog.create_namespace_if_not_exists(name[:-1])
                with suppress(TableAlreadyExistsError):  # another process has just created it
                    catalog.create_table(name, columns, partition_spec=PartitionSpec(*fields),
                                         properties={**properties, _NAME_MAPPING: columns.name_mapping.model_dump_json()})  # fmt: skip
        return cls(address, _loaded(address, catalog, name))

    @property
    def place(self) -> str:
        return self.address

    @property
    def version(self) -> int:
        """The sequence number of the snapshot, 0 before the first one."""
        snapshot = self._table.current_snapshot()
        return 0 if snapshot is None else snapshot.sequence_number or 0

    @property
    def schema(self) -> StructType:
        return spark_schema(self._table.schema(), self.address)

    def files(self) -> list[DataFile]:
        return self._listing.files

    def paths_at(self, version: int) -> set[str] | None:
        if version == 0:
            return set()
        for snapshot in self._line():
            if snapshot.sequence_number == version:
                with suppress(FileNotFoundError):
                    found = {relative(self.path, entry.data_file.file_path) for entry in self._manifests.live(snapshot, self._table.io)}
                    return {path for path in found if path is not None}
        return None

    def add_columns(self, columns: StructType, note: Mapping[str, Any]) -> None:
        """Add columns, and fields to columns that are structs. The note is not kept, because no snapshot is made."""
        while True:
            try:
                with asked(self.address), self._table.update_schema() as update:
                    update.union_by_name(iceberg_schema(columns))
            except CommitFailedException:
                self.refresh()
            else:
                return

    def refresh(self) -> None:
        self._table = _loaded(self.address, self._table.catalog, self._table.name())
        self._listing = self._listed()

    def _listed(self) -> Listing:
        """List the files of the snapshot, or of a newer one if another job has deleted this one's manifests meanwhile."""
        for _ in range(_ATTEMPTS):
            try:
                return listing(self._table, self._manifests, self.path)
            except FileNotFoundError as error:
                missing = str(error)
                self._table = _loaded(self.address, self._table.catalog, self._table.name())
        raise SparkFailed(f"The metadata of the table {self.address} cannot be read: a file is missing ({missing}). Restore it from a backup.")

    def last_batch(self, query: str) -> int:
        return int(self._table.properties.get(f"{_BATCH}{query}", -1))

    def commit(self, add: Iterable[NewFile] = (), remove: Iterable[DataFile] = (), *, batches: Mapping[str, int] | None = None,
               note: Mapping[str, Any], same_rows: bool = False) -> bool:  # fmt: skip
        add, remove = list(add), list(remove)
        self._check_written(add)
        if not self.are_live(remove):  # they are files of another snapshot
            return False
        before = self._table.metadata
        update = _Unchanged(self._table).update_snapshot(snapshot_properties={NOTE: json.dumps(dict(note))})
        change = update.overwrite() if remove else update.merge_append()
        for new in add:
            change.append_data_file(described(new, self._table))
        for old in remove:
            change.delete_data_file(self._listing.own[old.path])
        try:
            with asked(self.address):
                updates, requirements = change._commit()  # writes the manifests; the commit itself is below
                if batches:
                    updates += (SetPropertiesUpdate(updates={f"{_BATCH}{query}": str(number) for query, number in batches.items()}),)
                done = self._table.catalog.commit_table(self._table, (AssertTableUUID(uuid=before.table_uuid), *requirements), updates)
        except CommitFailedException:
            return False
        except (SparkFailed, FileNotFoundError):
            self.refresh()
            if self._is_committed(change.snapshot_id, add):  # only the answer was lost
                return True
            if self._table.metadata.current_snapshot_id != before.current_snapshot_id:  # another job has committed, and deleted what was read
                return False
            raise
        self._table.metadata, self._table.metadata_location = done.metadata, done.metadata_location
        self._listing = self._listed()
        expiry.delete(self._table, {each.metadata_file for each in before.metadata_log} - {each.metadata_file for each in done.metadata.metadata_log})
        return True

    def _is_committed(self, snapshot: int, files: Iterable[NewFile]) -> bool:
        return self._table.snapshot_by_id(snapshot) is not None or any(file.path in self._listing.own for file in files)

    def _line(self) -> list[Snapshot]:
        """Return the snapshots of the branch main, the newest first."""
        newest = self._table.current_snapshot()
        return [] if newest is None else list(ancestors_of(newest, self._table.metadata))

    def notes(self, since: int) -> list[dict[str, Any]]:
        texts = [
            each.summary[NOTE]
            for each in self._line()
            if (each.sequence_number or 0) > since and each.summary and NOTE in each.summary.additional_properties
        ]
        return [json.loads(text) for text in reversed(texts)]

    def replaced(self) -> list[str]:
        found = set()
        for snapshot in self._table.snapshots():
            if snapshot.summary is None or snapshot.summary.operation != Operation.APPEND:
                for manifest in snapshot.manifests(self._table.io):
                    if manifest.added_snapshot_id == snapshot.snapshot_id:
                        entries = self._manifests.entries(manifest, self._table.io)
                        found |= {entry.data_file.file_path for entry in entries if entry.status == ManifestEntryStatus.DELETED}
        paths = {relative(self.path, location) for location in found}
        return sorted(path for path in paths if path is not None and path not in self._listing.own)

    def vacuum(self, *, at_once: bool = False) -> list[str]:
        deleted: list[str] = []
        while True:
            self.refresh()
            try:
                plan = expiry.plan(self._table, self._manifests, at_once=at_once)
                if not plan.snapshots:
                    break
                here = {relative(self.path, location) for location in plan.data}
                deleted += sorted(path for path in here if path is not None and self.folder.exists(path))
                expiry.delete(self._table, plan.data)
                with asked(self.address):
                    plan.commit(self._table)
            except (CommitFailedException, FileNotFoundError):  # another process has committed: look again
                continue
            expiry.delete(self._table, plan.metadata)
        if at_once:
            expiry.delete(self._table, [each.metadata_file for each in self._table.metadata.metadata_log])
            self._check_heads()
        self.folder.delete(expiry.orphans(self._table, self._manifests, self.folder))
        return deleted

    def _check_heads(self) -> None:
        """Raise SparkFailed if a branch or tag keeps files that were replaced."""
        current = self._table.metadata.current_snapshot_id
        kept = [name for name, ref in self._table.metadata.refs.items() if ref.snapshot_id != current]
        if kept:
            raise SparkFailed(
                f"Files that were replaced in {self.address} are kept by {', '.join(sorted(kept))}. Drop this branch or tag, and run the command again."
            )

    @property
    def needs_jar(self) -> str | None:
        mapping = self._table.name_mapping()
        return "renamed columns" if mapping is not None and is_renamed(mapping.root) else self._listing.obstacle

    def read_natively(self, spark: SparkSession) -> DataFrame:
        raise SparkFailed(
            f"Cannot read {self.address}: the table has {self.needs_jar}, which only Iceberg's own readers understand. "
            "Rewrite its files with Iceberg's rewrite_data_files, or read it with those."
        )

    def check_plain_log(self) -> None:
        snapshot = self._table.current_snapshot()
        known = [] if snapshot is None else snapshot.manifests(self._table.io)
        entries = (entry for manifest in known for entry in self._manifests.entries(manifest, self._table.io))
        if has_other_statistics(entries, self._table.schema()):
            raise SparkFailed(
                f"Cannot erase in {self.address}: another program has written files with statistics of other columns than times, sizes and row versions. "
                "Set write.metadata.metrics.default to none, and rewrite these files with that program."
            )

    def check_writable(self) -> None:
        if self.needs_jar:
            raise SparkFailed(
                f"Cannot change {self.address}: the table has {self.needs_jar}, which rowpost does not write. Rewrite its files with Iceberg's rewrite_data_files."
            )
        if self._table.format_version != _FORMAT_VERSION:
            raise SparkFailed(
                f"Cannot change {self.address}: the table has version {self._table.format_version} of the format, and rowpost writes version {_FORMAT_VERSION}."
            )
        if self._table.name_mapping() is None:
            raise SparkFailed(
                f"Cannot change {self.address}: the table has no property {_NAME_MAPPING}, by which readers find the columns of rowpost's files. Let rowpost create the table."
            )

    def _check_partitions(self) -> None:
        for spec in self._table.specs().values():
            columns = [f"{each.name} ({each.transform})" for each in spec.fields]
            if sorted(columns) != sorted(f"{name} (identity)" for name in PARTITIONS):
                raise SparkFailed(
                    f"The Iceberg table {self.address} is not an archive: it is partitioned by {', '.join(columns) or 'nothing'}, not by queue and day."
                )


class _Unchanged(Transaction):
    """A transaction without changes. pyiceberg's own one copies the whole metadata each time that it is asked for it, 13 times for a commit."""

    @property
    def table_metadata(self) -> TableMetadata:
        return self._table.metadata


def _loaded(address: str, catalog: Catalog, name: tuple[str, ...]) -> Table:
    """Load a table. Its metadata may be replaced and deleted between the catalogue's answer and the reading."""
    for _ in range(_ATTEMPTS):
        try:
            with asked(address):
                return catalog.load_table(name)
        except FileNotFoundError as error:
            missing = str(error)
    raise SparkFailed(f"The metadata of the table {address} cannot be read: a file is missing ({missing}). Restore it from a backup.")
