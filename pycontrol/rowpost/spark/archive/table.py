"""What the jobs know of an archive's table: a snapshot of its files, and commits that succeed only on the newest snapshot.

`ArchiveTable` is the interface, a snapshot that `opening.py` opens by its address. `DeltaArchive` (delta.py) is Delta's log over
Parquet files: executors write the files (parts.py), and the driver commits them.
`commit` adds and removes files in one change, unless another writer has committed since the snapshot was read. It then changes
nothing and returns False: refresh the snapshot, look again and decide again. This makes each change atomic, and two writers can
never replace the same file. It holds between processes and machines, and for writers other than rowpost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from rowpost.errors import SparkFailed
from rowpost.spark.archive.folder import ArchiveFolder
from rowpost.spark.archive.identity import Recorded
from rowpost.spark.archive.parts import PARTITIONS, NewFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["KEPT_HOURS", "NOTE", "ArchiveTable", "DataFile"]

#: The key of what rowpost notes in an entry of the log.
NOTE = "rowpost"
#: How long a file stays that was removed from the table, so that readers of an earlier snapshot can finish.
KEPT_HOURS = 24


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
    def is_in_own_folder(self) -> bool:
        """Whether its folder is named by its partition, such as queue=audit/day=2026-11-20. Other programs use other folders too."""
        values = [(name, unquote(value)) for name, _, value in (part.partition("=") for part in self.path.split("/")[:-1])]
        return values == [("queue", self.queue), ("day", self.day)]


class ArchiveTable(ABC):
    """A snapshot of a table that is partitioned by queue and day.

    Attributes:
        address: how users name the table.
        path: the table's folder, a path or a URI as Spark spells it. It also has the folder `_rowpost`.
    """

    def __init__(self, address: str, path: str) -> None:
        self.address, self.path = address, path.rstrip("/")

    @cached_property
    def folder(self) -> ArchiveFolder:
        return ArchiveFolder(self.path)

    @property
    @abstractmethod
    def version(self) -> int:
        """A number that grows with each commit of files."""

    @property
    @abstractmethod
    def schema(self) -> StructType:
        """The columns of the table. Other programs may have added some."""

    def file_schema(self) -> StructType:
        """The columns of the table's files: all but the partition's."""
        from pyspark.sql.types import StructField, StructType

        return StructType([StructField(c.name, c.dataType) for c in self.schema if c.name not in PARTITIONS])

    def check_columns(self, needed: Iterable[str]) -> None:
        """Raise SparkFailed if the table lacks columns, because another program has made it for something else."""
        missing = set(needed) - set(PARTITIONS) - set(self.schema.fieldNames())
        if missing:
            raise SparkFailed(f"The table {self.address} is not an archive: it has no column {' and no column '.join(sorted(missing))}.")

    @abstractmethod
    def files(self) -> list[DataFile]:
        """Return the files of the snapshot, ordered by queue, day and path."""

    def are_live(self, files: Iterable[DataFile]) -> bool:
        """Whether the snapshot has all of these files."""
        return {file.path for file in files} <= {file.path for file in self.files()}

    @abstractmethod
    def paths_at(self, version: int) -> set[str] | None:
        """Return the paths of the files of an earlier version. None if the log does not have it any more."""

    @abstractmethod
    def add_columns(self, columns: StructType, note: Mapping[str, Any]) -> None:
        """Add columns, and fields to columns that are structs. They are null in the files that are there."""

    @abstractmethod
    def refresh(self) -> None:
        """Read the newest snapshot."""

    @abstractmethod
    def last_batch(self, query: str) -> int:
        """Return the number of the last batch that a query has committed, or -1."""

    @abstractmethod
    def recorded(self) -> Mapping[str, Recorded]:
        """Return what the snapshot confirms of each queue, by epoch. Nothing if its last commit is of an earlier version."""

    @abstractmethod
    def commit(self, add: Iterable[NewFile] = (), remove: Iterable[DataFile] = (), *, batches: Mapping[str, int] | None = None,
               recorded: Mapping[str, Recorded] | None = None, note: Mapping[str, Any], same_rows: bool = False) -> bool:  # fmt: skip
        """Add and remove files in one change. Returns False, and changes nothing, if the snapshot is not the newest.

        Args:
            add: files that are written. Raises SparkFailed if one does not exist.
            remove: files of this snapshot.
            batches: the batch of a query that these files complete, by the query's id.
            recorded: what the table confirms of each queue from then on. By default, what this snapshot confirms.
            note: what the log says about the change: no data of messages.
            same_rows: the files added have the rows of those removed. A stream of a Delta table skips such a change.

        Raises SparkFailed if the table refuses the change.
        """

    @abstractmethod
    def notes(self, since: int) -> list[dict[str, Any]]:
        """Return the notes of rowpost's commits after a version, the oldest first."""

    @property
    @abstractmethod
    def is_of_folder(self) -> bool:
        """Whether the log that was read is the log of this folder, and not that of another one whose files it lists."""

    @abstractmethod
    def replaced(self) -> list[str]:
        """Return the files that were removed from the table. Some may be deleted already."""

    @abstractmethod
    def vacuum(self, *, at_once: bool = False) -> list[str]:
        """Delete the files that were removed from the table a day ago, or all removed files. Time travel ends there.

        Files that are not in the log are kept: another process may be about to commit them.
        """

    @property
    @abstractmethod
    def needs_jar(self) -> str | None:
        """What of this table only its format's own readers understand; None if its files can be read as they are."""

    @abstractmethod
    def read_natively(self, spark: SparkSession) -> DataFrame:
        """Read a snapshot that has what `needs_jar` names. Raises SparkFailed if the session cannot."""

    @abstractmethod
    def query(self, sql: str) -> pa.Table:
        """Run a query of deltalake's engine on the snapshot, which is its table `archive`. Raises SparkFailed if it cannot read the files, or only Delta's jar can."""

    @abstractmethod
    def check_plain_log(self) -> None:
        """Raise SparkFailed if the log has statistics of columns that can name people, because `erase` does not change them."""

    @abstractmethod
    def check_writable(self) -> None:
        """Raise SparkFailed for a table that rowpost must not change."""

    def _check_written(self, files: Iterable[NewFile]) -> None:
        if gone := [file.path for file in files if not self.folder.exists(file.path)]:
            raise SparkFailed(f"Cannot add {gone[0]} to {self.address}: the file was deleted before it was committed. Run the command again.")
