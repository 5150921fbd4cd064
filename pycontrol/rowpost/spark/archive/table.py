"""An archive's Delta table: snapshots of its files, and commits that succeed only on the newest snapshot.

`ArchiveTable` is a snapshot. `commit` adds and removes files in one entry of the log, unless another writer has committed
since the snapshot was read. It then changes nothing and returns False: refresh the snapshot, look again and decide again.
This makes each change atomic, and two writers can never replace the same file. The check is the exclusive creation of the
log's next entry, so it holds between processes and machines, and for writers other than rowpost.

deltalake's own checks of conflicts are not used: some of its versions accept a second compaction of one snapshot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from rowpost.errors import ArchiveNotFound, SparkFailed, SparkUnavailable
from rowpost.spark.archive.folder import LOG_FOLDER, ArchiveFolder
from rowpost.spark.archive.parts import PARTITIONS, STATISTICS, NewFile
from rowpost.version import install_command

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
except ImportError as error:
    raise SparkUnavailable(f"Archives need the package deltalake, 1.6.6 or newer ({error}). Run: {install_command('spark')}") from error

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["ArchiveTable", "DataFile"]

#: The key of what rowpost notes in an entry of the log.
NOTE = "rowpost"
_STATISTICS_OF = "delta.dataSkippingStatsColumns"
_PROPERTIES = {
    _STATISTICS_OF: ",".join(STATISTICS),
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}
_KEPT_HOURS = 24


@dataclass(frozen=True)
class DataFile:
    """A file of a snapshot. `path` is relative to the table's folder, `modified` is in milliseconds since 1970."""

    path: str
    queue: str
    day: str
    bytes: int
    rows: int
    modified: int = 0

    @property
    def shape(self) -> tuple[str, ...] | None:
        """The names in folders such as queue=audit/day=2026-11-20. None if they do not start with the partition's columns and values."""
        pairs = [part.partition("=") for part in self.path.split("/")[:-1]]
        values = [(name, unquote(value)) for name, _, value in pairs]
        if values[:2] != [("queue", self.queue), ("day", self.day)] or not all(equals for _, equals, _ in pairs):
            return None
        return tuple(name for name, _ in values)


class ArchiveTable:
    """A snapshot of a table that is partitioned by queue and day."""

    def __init__(self, path: str, table: DeltaTable) -> None:
        self.path = path.rstrip("/")
        self._table = table
        self._listed: tuple[int, list[DataFile]] | None = None
        self._batches: dict[str, int] = {}  # of this snapshot, because deltalake reads the whole log to find one
        self._check_partitions()

    @classmethod
    def open(cls, path: str) -> ArchiveTable:
        """Read the newest snapshot. Raises ArchiveNotFound, SparkFailed."""
        _check_adopted(path)
        try:
            return cls(path, DeltaTable(path))
        except TableNotFoundError as error:
            raise ArchiveNotFound(f"There is no archive in {path}. `rowpost spark archive QUEUE {path}` creates one.") from error
        except BaseException as error:
            # deltalake's Rust code fails on an entry of the log that is not JSON, with an exception that is no Exception
            if type(error).__name__ != "PanicException" and not isinstance(error, DeltaError):
                raise
            raise SparkFailed(f"The log of the table in {path} cannot be read: an entry in {LOG_FOLDER} is damaged ({str(error).splitlines()[0][:200]}). Restore it from a backup.") from error

    @classmethod
    def create(cls, path: str, schema: StructType) -> ArchiveTable:
        """Read the newest snapshot. Creates the table if there is none. Raises SparkFailed."""
        _check_adopted(path)
        try:
            if not DeltaTable.is_deltatable(path):
                DeltaTable.create(path, Schema.from_json(schema.json()), partition_by=list(PARTITIONS), configuration=_PROPERTIES)
        except (DeltaError, TableNotFoundError) as error:
            if not DeltaTable.is_deltatable(path):  # otherwise another process has just created it
                raise SparkFailed(f"Cannot create an archive in {path}: {str(error).splitlines()[0]}. Name a folder that can be written.") from error
        return cls.open(path)

    @staticmethod
    def adopt(path: str, schema: StructType, files: Iterable[NewFile], batches: Mapping[str, int]) -> None:
        """Create the table of files that are there, in one entry of the log."""
        properties = CommitProperties(custom_metadata={NOTE: {"job": "adopt"}}, app_transactions=[Transaction(*each) for each in batches.items()])
        create_table_with_add_actions(path, Schema.from_json(schema.json()), _added(files), "error", list(PARTITIONS),
                                      configuration=_PROPERTIES, commit_properties=properties)  # fmt: skip

    def check_columns(self, needed: Iterable[str]) -> None:
        """Raise SparkFailed if the table lacks columns, because another program has made it for something else."""
        missing = set(needed) - set(PARTITIONS) - {field.name for field in self._table.schema().fields}
        if missing:
            raise SparkFailed(f"The Delta table in {self.path} is not an archive: it has no column {' and no column '.join(sorted(missing))}.")

    @property
    def version(self) -> int:
        return self._table.version()

    @property
    def schema(self) -> StructType:
        """The columns of the table. Other programs may have added some."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self._table.schema().to_json()))

    def file_schema(self) -> StructType:
        """The columns of the table's files: all but the partition's."""
        from pyspark.sql.types import StructField, StructType

        return StructType([StructField(c.name, c.dataType) for c in self.schema if c.name not in PARTITIONS])

    @cached_property
    def folder(self) -> ArchiveFolder:
        return ArchiveFolder(self.path)

    def files(self) -> list[DataFile]:
        """Return the files of the snapshot, ordered by queue, day and path."""
        if self._listed is None or self._listed[0] != self.version:
            found = [
                DataFile(unquote(row["path"]), row["partition"]["queue"], str(row["partition"]["day"]), row["size_bytes"], self._rows(row), row["modification_time"])
                for row in pa.table(self._table.get_add_actions()).to_pylist()
            ]  # fmt: skip
            self._listed = self.version, sorted(found, key=lambda file: (file.queue, file.day, file.path))
        return self._listed[1]

    def _rows(self, action: Mapping[str, Any]) -> int:
        """Return the rows of a file, from its footer if its writer has not stored them in the log."""
        if action["num_records"] is not None:
            return action["num_records"]
        footer = self.folder.footer(unquote(action["path"]))
        return 0 if footer is None else footer.num_rows

    def are_live(self, files: Iterable[DataFile]) -> bool:
        """Whether the snapshot has all of these files."""
        return {file.path for file in files} <= {file.path for file in self.files()}

    def paths_at(self, version: int) -> set[str] | None:
        """Return the paths of the files of an earlier version. None if the log does not have it any more."""
        try:
            actions = DeltaTable(self.path, version=version).get_add_actions()
        except DeltaError:
            return None
        return {unquote(path) for path in pa.table(actions).column("path").to_pylist()}

    def add_columns(self, columns: StructType, note: Mapping[str, Any]) -> None:
        """Add columns, and fields to columns that are structs. They are null in the files that are there."""
        fields = Schema.from_json(columns.json()).fields
        self._table.alter.add_columns(fields, commit_properties=CommitProperties(custom_metadata={NOTE: dict(note)}))

    def refresh(self) -> None:
        """Read the newest snapshot."""
        before = self.version
        self._table.update_incremental()
        if self.version != before:
            self._batches.clear()

    def last_batch(self, query: str) -> int:
        """Return the number of the last batch that a query has committed, or -1. A table that was adopted knows 8 characters of its id."""
        if query not in self._batches:
            found = [self._table.transaction_version(key) for key in (query, query[:8])]
            self._batches[query] = max(-1 if number is None else number for number in found)
        return self._batches[query]

    def commit(self, add: Iterable[NewFile] = (), remove: Iterable[DataFile] = (), *, batches: Mapping[str, int] | None = None,
               note: Mapping[str, Any]) -> bool:  # fmt: skip
        """Add and remove files in one entry of the log. Returns False, and changes nothing, if the snapshot is not the newest.

        Args:
            add: files that are written.
            remove: files of this snapshot.
            batches: the batch of a query that these files complete, by the query's id.
            note: what the log says about the change: no data of messages.
        """
        add, now = list(add), time.time_ns() // 1_000_000
        if gone := [file.path for file in add if not self.folder.exists(file.path)]:
            raise SparkFailed(f"Cannot add {gone[0]} to {self.path}: the file was deleted before it was committed. Run the command again.")
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(file.path, True, now, file.bytes, {"queue": file.queue, "day": file.day}) for file in remove
        ]
        actions += _added(add)
        done = [Transaction(query, number) for query, number in (batches or {}).items()]
        properties = CommitProperties(custom_metadata={NOTE: dict(note)}, max_commit_retries=0, app_transactions=done)
        try:
            self._table.create_write_transaction(actions, "append", self._table.schema(), list(PARTITIONS), commit_properties=properties)
        except CommitFailedError:
            return False
        before = self.version
        self._table.update_incremental()
        if self.version == before + 1:
            self._batches.update(batches or {})
        else:  # other writers have committed too
            self._batches.clear()
        return True

    def notes(self, since: int) -> list[dict[str, Any]]:
        """Return the notes of rowpost's commits after a version, the oldest first."""
        entries = self._table.history(max(self.version - since, 0)) if self.version > since else []
        return [entry[NOTE] for entry in reversed(entries) if isinstance(entry.get(NOTE), dict)]

    def replaced(self) -> list[str]:
        """Return the files that were removed from the table. Some may be deleted already."""
        return sorted(self._table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True))

    def vacuum(self, *, at_once: bool = False) -> list[str]:
        """Delete the files that were removed from the table a day ago, or all removed files. Time travel ends there.

        Files that are not in the log are kept: another process may be about to commit them.
        """
        hours = 0 if at_once else _KEPT_HOURS
        return self._table.vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=False)

    @property
    def needs_jar(self) -> str | None:
        """What of this table only Delta's own readers understand; None if its files can be read as they are."""
        if self._table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            return "column mapping"
        features = set(self._table.protocol().reader_features or ())
        return "deletion vectors" if "deletionVectors" in features and any(len(pa.record_batch(batch)) for batch in self._table.deletion_vectors()) else None

    @property
    def has_plain_log(self) -> bool:
        """Whether the table's log was always without statistics of columns that can name people."""
        return self._table.metadata().configuration.get(_STATISTICS_OF) == _PROPERTIES[_STATISTICS_OF]

    def check_writable(self) -> None:
        """Raise SparkFailed for a table that rowpost must not change."""
        if self.needs_jar:
            raise SparkFailed(
                f"Cannot change {self.path}: the table has {self.needs_jar}, which rowpost does not write. Run REORG TABLE … APPLY (PURGE) "
                "and disable the feature with Delta's own tools."
            )

    def _check_partitions(self) -> None:
        columns = tuple(self._table.metadata().partition_columns)
        if columns != PARTITIONS:
            raise SparkFailed(f"The Delta table in {self.path} is not an archive: it is partitioned by {', '.join(columns) or 'nothing'}, not by queue and day.")


def _added(files: Iterable[NewFile]) -> list[AddAction]:
    now = time.time_ns() // 1_000_000
    return [AddAction(file.path, file.bytes, {"queue": file.queue, "day": file.day}, now, True, file.statistics) for file in files]


def _check_adopted(path: str) -> None:
    """Raise SparkFailed for an archive of an earlier version."""
    folder = ArchiveFolder(path)
    if not folder.is_delta and any(name.startswith("queue=") and not info.is_file for name, info in folder.contents(recursive=False)):
        raise SparkFailed(f"The archive in {path} is of an earlier version, which stored plain Parquet files. Take it over with: rowpost spark adopt {path}")
