"""An archive's table: a Delta table in a folder, as a snapshot of its files, and commits that succeed only on the
newest.

A commit adds and removes files in one change, unless another writer has committed since the snapshot was read. It then
changes nothing and returns False: refresh the snapshot, look again and decide again. This makes each change atomic, and
two writers can never replace the same file, on several machines, and also if one is not rowpost. A commit is the
exclusive creation of the log's next entry. deltalake's own checks of conflicts are not used: some of its versions
accept a second compaction of one snapshot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from rowpost.archive.address import delta_uri, located
from rowpost.archive.columns import ARCHIVE, PARTITIONS
from rowpost.archive.folder import LOG_FOLDER, ArchiveFolder
from rowpost.archive.identity import Recorded
from rowpost.archive.parts import STATISTICS, DataFile, NewFile
from rowpost.errors import ArchiveNotFound, SparkFailed, SparkUnavailable
from rowpost.version import install_command

try:
    from deltalake import CommitProperties, DeltaTable, QueryBuilder, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction
except ImportError as error:
    raise SparkUnavailable(
        f"Archives need the package deltalake, 1.6.6 or newer ({error}). Run: {install_command('archive')}"
    ) from error

__all__ = ["ArchiveTable", "DataFile", "create_table", "open_table"]

#: The key of what rowpost notes in an entry of the log.
NOTE = "rowpost"
#: How long a file stays that was removed from the table, so that readers of an earlier snapshot can finish.
KEPT_HOURS = 24
#: The property of a table that names the columns of which the log has statistics.
STATISTICS_OF = "delta.dataSkippingStatsColumns"
_PROPERTIES = {"delta.logRetentionDuration": "interval 7 days", "delta.deletedFileRetentionDuration": "interval 1 days"}
_CONSTRAINT = "delta.constraints."
_CHANGE_DATA = "_change_data"
_RECORDED = f"{NOTE}.recorded"
Result = TypeVar("Result")


class ArchiveTable:
    """A snapshot of a table partitioned by queue and day. `address` is how users name it, and `path` how Spark does."""

    def __init__(self, address: str, table: DeltaTable) -> None:
        self.address, self.path = address, located(address).rstrip("/")
        self._table = table
        self._forget()
        columns = tuple(table.metadata().partition_columns)
        if columns != PARTITIONS:
            raise SparkFailed(
                f"The Delta table in {self.path} is not an archive: it is partitioned by "
                f"{', '.join(columns) or 'nothing'}, not by queue and day."
            )

    def _forget(self) -> None:
        """Forget what was read of a snapshot."""
        self._listed: list[DataFile] | None = None
        self._recorded: Mapping[str, Recorded] | None = None
        self._batches: dict[str, int] = {}  # deltalake reads the whole log to find one

    @cached_property
    def folder(self) -> ArchiveFolder:
        return ArchiveFolder(self.path)

    @property
    def version(self) -> int:
        """A number that grows with each commit of files."""
        return self._table.version()

    @property
    def id(self) -> str:
        """The table's UUID. A table that is created again has another one."""
        return str(self._table.metadata().id)

    @property
    def schema_json(self) -> str:
        """The columns of the table in the form of Delta's log. Other programs may have added some."""
        return self._table.schema().to_json()

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the table's files: all but the partition's."""
        found = pa.schema(self._table.schema().to_arrow())
        return pa.schema([pa.field(each.name, each.type) for each in found if each.name not in PARTITIONS])

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [field.name for field in self._table.schema().fields]

    def check_columns(self, needed: Iterable[str]) -> None:
        """Raise SparkFailed if the table lacks columns, because another program has made it for something else."""
        missing = set(needed) - set(PARTITIONS) - set(self.names)
        if missing:
            raise SparkFailed(
                f"The table {self.address} is not an archive: it has no column "
                f"{' and no column '.join(sorted(missing))}."
            )

    def files(self) -> list[DataFile]:
        """Return the files of the snapshot, ordered by queue, day and path."""
        if self._listed is None:
            found = [
                DataFile(
                    unquote(row["path"]),
                    row["partition"]["queue"],
                    str(row["partition"]["day"]),
                    row["size_bytes"],
                    self._rows(row),
                    row["modification_time"],
                )
                for row in pa.table(self._table.get_add_actions()).to_pylist()
            ]
            self._listed = sorted(found, key=lambda file: (file.queue, file.day, file.path))
        return self._listed

    def are_live(self, files: Iterable[DataFile]) -> bool:
        """Whether the snapshot has all of these files."""
        return {file.path for file in files} <= {file.path for file in self.files()}

    def attempt(self, files: Iterable[DataFile], act: Callable[[], Result]) -> Result | None:
        """Read files of the snapshot. Returns None if that failed because another job has replaced one of them."""
        try:
            return act()
        except Exception:
            self.refresh()
            if self.are_live(files):
                raise
            return None

    def _rows(self, action: Mapping[str, Any]) -> int:
        """Return the rows of a file, from its footer if its writer has not stored them in the log."""
        if action["num_records"] is not None:
            return int(action["num_records"])
        footer = self.folder.footer(unquote(action["path"]))
        return 0 if footer is None else footer.num_rows

    def paths_at(self, version: int) -> set[str] | None:
        """Return the paths of the files of an earlier version. None if the log does not have it any more."""
        try:
            actions = DeltaTable(delta_uri(self.path), version=version).get_add_actions()
        except DeltaError:
            return None
        return {unquote(path) for path in pa.table(actions).column("path").to_pylist()}

    def add_columns(self, columns: str, note: Mapping[str, Any]) -> None:
        """Add columns, and fields to columns that are structs, as `schema_json` has them.

        They are null in the files that are there.
        """
        fields = Schema.from_json(columns).fields
        metadata = self._metadata(note, self.recorded())
        self._table.alter.add_columns(fields, commit_properties=CommitProperties(custom_metadata=metadata))
        self._forget()

    def refresh(self) -> None:
        """Read the newest snapshot."""
        before = self.version
        self._table.update_incremental()
        if self.version != before:
            self._forget()

    def last_batch(self, query: str) -> int:
        """Return the number of the last batch that a query has committed, or -1."""
        if query not in self._batches:
            number = self._table.transaction_version(query)
            self._batches[query] = -1 if number is None else number
        return self._batches[query]

    def recorded(self) -> Mapping[str, Recorded]:
        """Return what the snapshot confirms of each queue, by epoch.

        Nothing if its last commit is of an earlier version.
        """
        if self._recorded is None:
            # what a later version of rowpost has added is left out
            self._recorded = msgspec.convert(self._last_entry().get(_RECORDED, {}), dict[str, Recorded])
        return self._recorded

    def _last_entry(self) -> dict[str, Any]:
        for version in range(self.version, -1, -1):
            try:
                lines = self.folder.text(f"{LOG_FOLDER}/{version:020}.json").splitlines()
            except FileNotFoundError:  # the log loses entries that are a week old
                return {}
            found: dict[str, Any] = next(
                (info for line in lines if '"commitInfo"' in line and (info := json.loads(line).get("commitInfo"))), {}
            )
            if NOTE in found:
                return found
        return {}

    def _metadata(self, note: Mapping[str, Any], recorded: Mapping[str, Recorded]) -> dict[str, Any]:
        return {NOTE: dict(note), _RECORDED: msgspec.to_builtins(recorded)}

    def commit(
        self,
        add: Iterable[NewFile] = (),
        remove: Iterable[DataFile] = (),
        *,
        batches: Mapping[str, int] | None = None,
        recorded: Mapping[str, Recorded] | None = None,
        note: Mapping[str, Any],
        same_rows: bool = False,
    ) -> bool:
        """Add and remove files in one change. Returns False, and changes nothing, if the snapshot is not the newest.

        `batches` are those of queries that these files complete, and `recorded` is what the table confirms from then
        on, by default what this snapshot does. `note` is for the log: no data of messages. With `same_rows`, the files
        added have the rows of those removed: a stream of a Delta table skips such a change. Raises SparkFailed if a
        file to add does not exist, or the table refuses the change.
        """
        add, now = list(add), time.time_ns() // 1_000_000
        before, recorded = self.version, self.recorded() if recorded is None else recorded
        if gone := [file.path for file in add if not self.folder.exists(file.path)]:
            raise SparkFailed(
                f"Cannot add {gone[0]} to {self.address}: the file was deleted before it was committed. Run the "
                "command again."
            )
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(each.path, not same_rows, now, each.bytes, each.partition) for each in remove
        ]
        actions += [
            AddAction(each.path, each.bytes, each.partition, now, not same_rows, each.statistics) for each in add
        ]
        done = [Transaction(query, number) for query, number in (batches or {}).items()]
        properties = CommitProperties(
            custom_metadata=self._metadata(note, recorded), max_commit_retries=0, app_transactions=done
        )
        try:
            self._table.create_write_transaction(
                actions, "append", self._table.schema(), list(PARTITIONS), commit_properties=properties
            )
        except CommitFailedError as error:
            # if no other writer is the reason, the table itself refuses the change
            if DeltaTable(delta_uri(self.path)).version() == before:
                raise SparkFailed(
                    f"Cannot change {self.path}: {str(error).splitlines()[0]} Nothing was changed. Change the table's "
                    "properties with Delta's own tools."
                ) from error
            return False
        known = {**self._batches, **(batches or {})}
        self._table.update_incremental()
        self._forget()
        if self.version == before + 1:  # otherwise other writers have committed too
            self._batches, self._recorded = known, recorded
        return True

    def notes(self, since: int) -> list[dict[str, Any]]:
        """Return the notes of rowpost's commits after a version, the oldest first."""
        entries = self._table.history(max(self.version - since, 0)) if self.version > since else []
        return [entry[NOTE] for entry in reversed(entries) if isinstance(entry.get(NOTE), dict)]

    @property
    def is_of_folder(self) -> bool:
        """Whether the log that was read is the log of this folder, and not that of another one whose files it lists."""
        files = self.files()
        return self.folder.exists(f"{LOG_FOLDER}/{self.version:020}.json") and (
            not files or any(self.folder.exists(file.path) for file in files)
        )

    def replaced(self) -> list[str]:
        """Return the files that were removed from the table. Some may be deleted already."""
        return sorted(self._table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True))

    def vacuum(self, *, at_once: bool = False) -> list[str]:
        """Delete the files that were removed a day ago, or all of them: time travel ends there.

        Files that are not in the log stay.
        """
        deleted = self._table.vacuum(
            retention_hours=0 if at_once else KEPT_HOURS, enforce_retention_duration=False, dry_run=False
        )
        self._forget()  # it has committed, maybe after other writers
        changes = self._change_data(at_once=at_once)
        self.folder.delete(changes)
        return [*deleted, *changes]

    def _change_data(self, *, at_once: bool) -> list[str]:
        """Return the files of Delta's change data feed, which have whole rows: those a day old, or all in the log."""
        found = [(path, info) for path, info in self.folder.contents(_CHANGE_DATA) if info.is_file]
        named = self._named_changes() if found and at_once else set()
        limit = datetime.now(UTC) - timedelta(hours=KEPT_HOURS)
        return [path for path, info in found if path in named or info.mtime < limit]

    def _named_changes(self) -> set[str]:
        entries = [path for path, _ in self.folder.contents(LOG_FOLDER, recursive=False) if path.endswith(".json")]
        actions = (
            json.loads(line) for path in entries for line in self.folder.text(path).splitlines() if '"cdc"' in line
        )
        return {unquote(action["cdc"]["path"]) for action in actions if "cdc" in action}

    @property
    def needs_jar(self) -> str | None:
        """What of this table only its format's own readers understand; None if its files can be read as they are."""
        if self._table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            return "column mapping"
        if "deletionVectors" not in (self._table.protocol().reader_features or ()):
            return None
        return "deletion vectors" if any(map(len, map(pa.record_batch, self._table.deletion_vectors()))) else None

    def query(self, sql: str) -> pa.Table:
        """Run a query of deltalake's engine on the snapshot, which is its table `archive`.

        Raises SparkFailed if only Delta's jar can read it.
        """
        if self.needs_jar:
            raise SparkFailed(
                f"Cannot search {self.path}: the table has {self.needs_jar}. Use Spark with Delta's jar, and filter "
                "what `read_archive` returns."
            )
        try:
            return pa.table(QueryBuilder().register("archive", self._table).execute(sql).read_all())
        except Exception as error:  # the engine has no class of its own for errors of files
            raise SparkFailed(
                f"Cannot search {self.path}: {str(error).splitlines()[0]}. `rowpost spark verify` lists files that are "
                "missing or incomplete."
            ) from error

    def check_plain_log(self) -> None:
        """Raise SparkFailed if the log may have statistics of columns that can name people, because `erase` does not
        change them.
        """
        columns = self._table.metadata().configuration.get(STATISTICS_OF)
        if columns is None or not {name.strip() for name in columns.split(",")} <= set(STATISTICS):
            raise SparkFailed(
                f"Cannot erase in {self.path}: its property {STATISTICS_OF} allows statistics of ids and headers in "
                f"the log, which stay there. Copy the rows to a new table with {STATISTICS_OF} = "
                f"'{','.join(STATISTICS)}', erase there, and delete this one."
            )

    def check_writable(self) -> None:
        """Raise SparkFailed for a table that rowpost must not change."""
        properties = self._table.metadata().configuration
        constraints = [name.removeprefix(_CONSTRAINT) for name in properties if name.startswith(_CONSTRAINT)]
        if constraints:
            raise SparkFailed(
                f"Cannot change {self.path}: the table has the constraint {', '.join(sorted(constraints))}, which "
                "rowpost does not check. Drop it with ALTER TABLE … DROP CONSTRAINT."
            )
        if self.needs_jar:
            raise SparkFailed(
                f"Cannot change {self.path}: the table has {self.needs_jar}, which rowpost does not write. Run REORG "
                "TABLE … APPLY (PURGE) and disable the feature with Delta's own tools."
            )

    def discard(self, files: Iterable[NewFile]) -> None:
        """Delete files that were not committed.

        Those that the newest snapshot has stay: a commit can succeed although its answer was lost.
        """
        self.refresh()
        self.folder.delete({file.path for file in files} - {file.path for file in self.files()})


def open_table(address: str) -> ArchiveTable:
    """Read the newest snapshot of a table.

    Raises ArchiveNotFound, SettingsError if Delta's libraries would read the path as another one, and SparkFailed if
    the table cannot be read, or is not an archive.
    """
    uri = delta_uri(address)
    _check_no_plain_files(address)
    try:
        return ArchiveTable(address, DeltaTable(uri))
    except TableNotFoundError as error:
        raise ArchiveNotFound(
            f"There is no archive in {address}. `rowpost archive QUEUE {address}` creates one."
        ) from error
    except BaseException as error:
        # deltalake's Rust code fails on an entry of the log that is not JSON, with an exception that is no Exception
        if type(error).__name__ != "PanicException" and not isinstance(error, DeltaError):
            raise
        raise SparkFailed(
            f"The log of the table in {address} cannot be read: an entry in {LOG_FOLDER} is damaged "
            f"({str(error).splitlines()[0][:200]}). Restore it from a backup."
        ) from error


def create_table(address: str, columns: str | None = None) -> ArchiveTable:
    """Open a table as `open_table` does.

    If there is none, create it with the columns of an archive, or those of `schema_json`.
    """
    uri = delta_uri(address)
    _check_no_plain_files(address)
    try:
        if not DeltaTable.is_deltatable(uri):
            schema = Schema.from_arrow(ARCHIVE) if columns is None else Schema.from_json(columns)
            names = {field.name for field in schema.fields}
            # Delta's own writers refuse a table whose statistics are of columns that it does not have
            properties = _PROPERTIES | {STATISTICS_OF: ",".join(name for name in STATISTICS if name in names)}
            DeltaTable.create(uri, schema, partition_by=list(PARTITIONS), configuration=properties)
    except (DeltaError, TableNotFoundError) as error:
        if not DeltaTable.is_deltatable(uri):  # otherwise another process has just created it
            raise SparkFailed(
                f"Cannot create an archive in {address}: {str(error).splitlines()[0]}. Name a folder that can be "
                "written."
            ) from error
    return open_table(address)


def _check_no_plain_files(path: str) -> None:
    """Raise SparkFailed for Parquet files without a table, so that a new table does not hide the messages in them."""
    folder = ArchiveFolder(path)
    if not folder.is_delta and any(
        name.startswith("queue=") and not info.is_file for name, info in folder.contents(recursive=False)
    ):
        raise SparkFailed(
            f"{path} has Parquet files of queues, but no log of a Delta table, so it is not an archive. Name another "
            "folder. If the log was lost, restore it from a backup; spark.read.parquet reads the files without it."
        )
