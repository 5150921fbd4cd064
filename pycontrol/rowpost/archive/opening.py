"""Open the table of an archive by its address, a folder or a URI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowpost.archive.table import STATISTICS_OF, ArchiveTable  # isort: skip  # before deltalake: it says what to install if that is missing
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from rowpost.archive.address import delta_uri
from rowpost.archive.columns import ARCHIVE, PARTITIONS, in_log
from rowpost.archive.folder import LOG_FOLDER, ArchiveFolder
from rowpost.archive.parts import STATISTICS
from rowpost.errors import ArchiveNotFound, SparkFailed

if TYPE_CHECKING:
    from rowpost.archive.columns import Columns

__all__ = ["create_table", "open_table"]

_PROPERTIES = {"delta.logRetentionDuration": "interval 7 days", "delta.deletedFileRetentionDuration": "interval 1 days"}


def open_table(address: str) -> ArchiveTable:
    """Read the newest snapshot of a table.

    Raises:
        ArchiveNotFound: there is no table.
        SettingsError: Delta's libraries would read the path as another one.
        SparkFailed: the table cannot be read, or is not an archive.
        SparkUnavailable: deltalake is not installed.
    """
    uri = delta_uri(address)
    _check_no_plain_files(address)
    try:
        return ArchiveTable(address, DeltaTable(uri))
    except TableNotFoundError as error:
        raise ArchiveNotFound(f"There is no archive in {address}. `rowpost archive QUEUE {address}` creates one.") from error
    except BaseException as error:
        # deltalake's Rust code fails on an entry of the log that is not JSON, with an exception that is no Exception
        if type(error).__name__ != "PanicException" and not isinstance(error, DeltaError):
            raise
        raise SparkFailed(
            f"The log of the table in {address} cannot be read: an entry in {LOG_FOLDER} is damaged ({str(error).splitlines()[0][:200]}). Restore it from a backup."
        ) from error


def create_table(address: str, schema: Columns | None = None) -> ArchiveTable:
    """Read the newest snapshot of a table. Creates the table if there is none, by default with the columns of an archive.

    Raises what `open_table` raises, but ArchiveNotFound.
    """
    uri = delta_uri(address)
    _check_no_plain_files(address)
    try:
        if not DeltaTable.is_deltatable(uri):
            columns = Schema.from_json(in_log(ARCHIVE) if schema is None else schema.json())
            DeltaTable.create(uri, columns, partition_by=list(PARTITIONS), configuration=_properties(columns))
    except (DeltaError, TableNotFoundError) as error:
        if not DeltaTable.is_deltatable(uri):  # otherwise another process has just created it
            raise SparkFailed(f"Cannot create an archive in {address}: {str(error).splitlines()[0]}. Name a folder that can be written.") from error
    return open_table(address)


def _properties(schema: Schema) -> dict[str, str]:
    """Return the properties of a new table. Delta's own writers refuse one whose statistics are of columns that it does not have."""
    names = {field.name for field in schema.fields}
    return _PROPERTIES | {STATISTICS_OF: ",".join(name for name in STATISTICS if name in names)}


def _check_no_plain_files(path: str) -> None:
    """Raise SparkFailed for Parquet files without a table, so that a new table does not hide the messages in them."""
    folder = ArchiveFolder(path)
    if not folder.is_delta and any(name.startswith("queue=") and not info.is_file for name, info in folder.contents(recursive=False)):
        raise SparkFailed(
            f"{path} has Parquet files of queues, but no log of a Delta table, so it is not an archive. Name another folder. "
            "If the log was lost, restore it from a backup; spark.read.parquet reads the files without it."
        )
