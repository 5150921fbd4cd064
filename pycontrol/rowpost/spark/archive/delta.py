"""An archive's table as a Delta table, in a folder.

A commit is the exclusive creation of the log's next entry. deltalake's own checks of conflicts are not used: some of its
versions accept a second compaction of one snapshot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from rowpost.errors import ArchiveNotFound, SparkFailed, SparkUnavailable
from rowpost.spark.archive.address import delta_uri, located
from rowpost.spark.archive.folder import LOG_FOLDER, ArchiveFolder
from rowpost.spark.archive.identity import Recorded, from_log, in_log
from rowpost.spark.archive.parts import PARTITIONS, STATISTICS, NewFile
from rowpost.spark.archive.table import KEPT_HOURS, NOTE, ArchiveTable, DataFile
from rowpost.version import install_command

try:
    from deltalake import CommitProperties, DeltaTable, QueryBuilder, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction
except ImportError as error:
    raise SparkUnavailable(f"Archives need the package deltalake, 1.6.6 or newer ({error}). Run: {install_command('spark')}") from error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["DeltaArchive"]

_CONSTRAINT = "delta.constraints."
_STATISTICS_OF = "delta.dataSkippingStatsColumns"
_CHANGE_DATA = "_change_data"
_RECORDED = f"{NOTE}.recorded"
_PROPERTIES = {
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}


class DeltaArchive(ArchiveTable):
    """A snapshot of a Delta table."""

    def __init__(self, path: str, table: DeltaTable) -> None:
        super().__init__(path, located(path))
        self._table = table
        self._listed: tuple[int, list[DataFile]] | None = None
        self._recorded: tuple[int, Mapping[str, Recorded]] | None = None
        self._batches: dict[str, int] = {}  # of this snapshot, because deltalake reads the whole log to find one
        self._check_partitions()

    @classmethod
    def open(cls, path: str) -> DeltaArchive:
        """Read the newest snapshot. Raises ArchiveNotFound, SettingsError, SparkFailed."""
        uri = delta_uri(path)
        _check_no_plain_files(path)
        try:
            return cls(path, DeltaTable(uri))
        except TableNotFoundError as error:
            raise ArchiveNotFound(f"There is no archive in {path}. `rowpost spark archive QUEUE {path}` creates one.") from error
        except BaseException as error:
            # deltalake's Rust code fails on an entry of the log that is not JSON, with an exception that is no Exception
            if type(error).__name__ != "PanicException" and not isinstance(error, DeltaError):
                raise
            raise SparkFailed(
                f"The log of the table in {path} cannot be read: an entry in {LOG_FOLDER} is damaged ({str(error).splitlines()[0][:200]}). Restore it from a backup."
            ) from error

    @classmethod
    def create(cls, path: str, schema: StructType) -> DeltaArchive:
        """Read the newest snapshot. Creates the table if there is none. Raises SettingsError, SparkFailed."""
        uri = delta_uri(path)
        _check_no_plain_files(path)
        try:
            if not DeltaTable.is_deltatable(uri):
                DeltaTable.create(uri, Schema.from_json(schema.json()), partition_by=list(PARTITIONS), configuration=_properties(schema))
        except (DeltaError, TableNotFoundError) as error:
            if not DeltaTable.is_deltatable(uri):  # otherwise another process has just created it
                raise SparkFailed(f"Cannot create an archive in {path}: {str(error).splitlines()[0]}. Name a folder that can be written.") from error
        return cls.open(path)

    @property
    def version(self) -> int:
        return self._table.version()

    @property
    def schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self._table.schema().to_json()))

    def files(self) -> list[DataFile]:
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

    def paths_at(self, version: int) -> set[str] | None:
        try:
            actions = DeltaTable(delta_uri(self.path), version=version).get_add_actions()
        except DeltaError:
            return None
        return {unquote(path) for path in pa.table(actions).column("path").to_pylist()}

    def add_columns(self, columns: StructType, note: Mapping[str, Any]) -> None:
        fields = Schema.from_json(columns.json()).fields
        self._table.alter.add_columns(fields, commit_properties=CommitProperties(custom_metadata=self._metadata(note)))

    def refresh(self) -> None:
        before = self.version
        self._table.update_incremental()
        if self.version != before:
            self._batches.clear()

    def last_batch(self, query: str) -> int:
        if query not in self._batches:
            number = self._table.transaction_version(query)
            self._batches[query] = -1 if number is None else number
        return self._batches[query]

    def recorded(self) -> Mapping[str, Recorded]:
        """Read the newest entry of rowpost in the log: each one repeats what those before it have stored."""
        if self._recorded is None or self._recorded[0] != self.version:
            self._recorded = self.version, from_log(self._last_entry().get(_RECORDED, {}))
        return self._recorded[1]

    def _last_entry(self) -> dict[str, Any]:
        for version in range(self.version, -1, -1):
            try:
                lines = self.folder.text(f"{LOG_FOLDER}/{version:020}.json").splitlines()
            except FileNotFoundError:  # the log loses entries that are a week old
                return {}
            found: dict[str, Any] = next((info for line in lines if '"commitInfo"' in line and (info := json.loads(line).get("commitInfo"))), {})
            if NOTE in found:
                return found
        return {}

    def _metadata(self, note: Mapping[str, Any], recorded: Mapping[str, Recorded] | None = None) -> dict[str, Any]:
        return {NOTE: dict(note), _RECORDED: in_log(self.recorded() if recorded is None else recorded)}

    def commit(self, add: Iterable[NewFile] = (), remove: Iterable[DataFile] = (), *, batches: Mapping[str, int] | None = None,
               recorded: Mapping[str, Recorded] | None = None, note: Mapping[str, Any], same_rows: bool = False) -> bool:  # fmt: skip
        add, now = list(add), time.time_ns() // 1_000_000
        self._check_written(add)
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(file.path, not same_rows, now, file.bytes, {"queue": file.queue, "day": file.day}) for file in remove
        ]
        actions += _added(add, same_rows=same_rows)
        done = [Transaction(query, number) for query, number in (batches or {}).items()]
        properties = CommitProperties(custom_metadata=self._metadata(note, recorded), max_commit_retries=0, app_transactions=done)
        try:
            self._table.create_write_transaction(actions, "append", self._table.schema(), list(PARTITIONS), commit_properties=properties)
        except CommitFailedError as error:
            if DeltaTable(delta_uri(self.path)).version() == self.version:  # no other writer is the reason: the table itself refuses the change
                raise SparkFailed(
                    f"Cannot change {self.path}: {str(error).splitlines()[0]} Nothing was changed. Change the table's properties with Delta's own tools."
                ) from error
            return False
        before = self.version
        self._table.update_incremental()
        if self.version == before + 1:
            self._batches.update(batches or {})
            self._recorded = None if recorded is None else (self.version, recorded)
        else:  # other writers have committed too
            self._batches.clear()
        return True

    def notes(self, since: int) -> list[dict[str, Any]]:
        entries = self._table.history(max(self.version - since, 0)) if self.version > since else []
        return [entry[NOTE] for entry in reversed(entries) if isinstance(entry.get(NOTE), dict)]

    @property
    def is_of_folder(self) -> bool:
        files = self.files()
        return self.folder.exists(f"{LOG_FOLDER}/{self.version:020}.json") and (not files or any(self.folder.exists(file.path) for file in files))

    def replaced(self) -> list[str]:
        return sorted(self._table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True))

    def vacuum(self, *, at_once: bool = False) -> list[str]:
        hours = 0 if at_once else KEPT_HOURS
        deleted = self._table.vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=False)
        changes = self._change_data(at_once=at_once)
        self.folder.delete(changes)
        return [*deleted, *changes]

    def _change_data(self, *, at_once: bool) -> list[str]:
        """Return the files of Delta's change data feed that are a day old, or all that the log names.

        Delta's own DELETE and UPDATE write whole rows to them if the table has delta.enableChangeDataFeed.
        """
        found = [(path, info) for path, info in self.folder.contents(_CHANGE_DATA) if info.is_file]
        named = self._named_changes() if found and at_once else set()
        limit = datetime.now(UTC) - timedelta(hours=KEPT_HOURS)
        return [path for path, info in found if path in named or info.mtime < limit]

    def _named_changes(self) -> set[str]:
        entries = [path for path, _ in self.folder.contents(LOG_FOLDER, recursive=False) if path.endswith(".json")]
        actions = (json.loads(line) for path in entries for line in self.folder.text(path).splitlines() if '"cdc"' in line)
        return {unquote(action["cdc"]["path"]) for action in actions if "cdc" in action}

    @property
    def needs_jar(self) -> str | None:
        if self._table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            return "column mapping"
        features = set(self._table.protocol().reader_features or ())
        return (
            "deletion vectors"
            if "deletionVectors" in features and any(len(pa.record_batch(batch)) for batch in self._table.deletion_vectors())
            else None
        )

    def read_natively(self, spark: SparkSession) -> DataFrame:
        """Read it with Delta's jar."""
        try:
            return spark.read.format("delta").option("versionAsOf", self.version).load(self.path)
        except Exception as error:  # an AnalysisException or, from the JVM, a Py4JJavaError
            if "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            raise SparkFailed(
                f"Cannot read {self.path}: the table has {self.needs_jar}, which needs Delta's jar. Start Spark with the jar "
                "(--conf spark.jars.packages=…), or run REORG TABLE … APPLY (PURGE) and disable the feature."
            ) from error

    def query(self, sql: str) -> pa.Table:
        if self.needs_jar:
            raise SparkFailed(
                f"Cannot search {self.path}: the table has {self.needs_jar}. Use Spark with Delta's jar, and filter what `read_archive` returns."
            )
        try:
            return pa.table(QueryBuilder().register("archive", self._table).execute(sql).read_all())
        except Exception as error:  # the engine has no class of its own for errors of files
            raise SparkFailed(
                f"Cannot search {self.path}: {str(error).splitlines()[0]}. `rowpost spark verify` lists files that are missing or incomplete."
            ) from error

    @property
    def has_plain_log(self) -> bool:
        """Whether the table's log was always without statistics of columns that can name people."""
        columns = self._table.metadata().configuration.get(_STATISTICS_OF)
        return columns is not None and {name.strip() for name in columns.split(",")} <= set(STATISTICS)

    def check_plain_log(self) -> None:
        if not self.has_plain_log:
            raise SparkFailed(
                f"Cannot erase in {self.path}: its property {_STATISTICS_OF} allows statistics of ids and headers in the log, which stay there. "
                f"Copy the rows to a new table with {_STATISTICS_OF} = '{','.join(STATISTICS)}', erase there, and delete this one."
            )

    def check_writable(self) -> None:
        constraints = [name.removeprefix(_CONSTRAINT) for name in self._table.metadata().configuration if name.startswith(_CONSTRAINT)]
        if constraints:
            raise SparkFailed(
                f"Cannot change {self.path}: the table has the constraint {', '.join(sorted(constraints))}, which rowpost does not check. Drop it with ALTER TABLE … DROP CONSTRAINT."
            )
        if self.needs_jar:
            raise SparkFailed(
                f"Cannot change {self.path}: the table has {self.needs_jar}, which rowpost does not write. Run REORG TABLE … APPLY (PURGE) "
                "and disable the feature with Delta's own tools."
            )

    def _check_partitions(self) -> None:
        columns = tuple(self._table.metadata().partition_columns)
        if columns != PARTITIONS:
            raise SparkFailed(
                f"The Delta table in {self.path} is not an archive: it is partitioned by {', '.join(columns) or 'nothing'}, not by queue and day."
            )


def _properties(schema: StructType) -> dict[str, str]:
    """Return the properties of a new table. Delta's own writers refuse one whose statistics are of columns that it does not have."""
    return _PROPERTIES | {_STATISTICS_OF: ",".join(name for name in STATISTICS if name in schema.fieldNames())}


def _added(files: Iterable[NewFile], *, same_rows: bool = False) -> list[AddAction]:
    now = time.time_ns() // 1_000_000
    return [AddAction(file.path, file.bytes, {"queue": file.queue, "day": file.day}, now, not same_rows, file.statistics) for file in files]


def _check_no_plain_files(path: str) -> None:
    """Raise SparkFailed for Parquet files without a table, so that a new table does not hide the messages in them."""
    folder = ArchiveFolder(path)
    if not folder.is_delta and any(name.startswith("queue=") and not info.is_file for name, info in folder.contents(recursive=False)):
        raise SparkFailed(
            f"{path} has Parquet files of queues, but no log of a Delta table, so it is not an archive. Name another folder. "
            "If the log was lost, restore it from a backup; spark.read.parquet reads the files without it."
        )
