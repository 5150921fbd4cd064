"""Open the table of an archive by its address: a folder has a Delta table, iceberg:CATALOG.NAMESPACE.TABLE is an Iceberg table.

The packages of a format are imported when a table of that format is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowpost.errors import SparkUnavailable
from rowpost.spark.archive.address import is_iceberg, located
from rowpost.spark.archive.table import ArchiveTable
from rowpost.version import install_command

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rowpost.spark.archive.iceberg import IcebergArchive

__all__ = ["create_table", "open_table", "path_of"]


def open_table(address: str) -> ArchiveTable:
    """Read the newest snapshot of a table.

    Raises:
        ArchiveNotFound: there is no table.
        SettingsError: the address is not complete, or names a catalogue that is not configured.
        SparkFailed: the table cannot be read, or is not an archive.
        SparkUnavailable: the package of its format is not installed.
    """
    if is_iceberg(address):
        return _iceberg().open(address)
    from rowpost.spark.archive.delta import DeltaArchive

    return DeltaArchive.open(address)


def create_table(address: str, schema: StructType) -> ArchiveTable:
    """Read the newest snapshot of a table. Creates the table if there is none. Raises what `open_table` raises, but ArchiveNotFound."""
    if is_iceberg(address):
        return _iceberg().create(address, schema)
    from rowpost.spark.archive.delta import DeltaArchive

    return DeltaArchive.create(address, schema)


def _iceberg() -> type[IcebergArchive]:
    try:
        from rowpost.spark.archive.iceberg import IcebergArchive
    except ImportError as error:
        raise SparkUnavailable(f"Iceberg tables need the package pyiceberg, 0.12 or newer ({error}). Run: {install_command('iceberg')}") from error
    return IcebergArchive


def path_of(address: str) -> str:
    """Return the folder of an archive, which has checkpoints, replays and receipts. Raises what `open_table` raises."""
    return open_table(address).path if is_iceberg(address) else located(address)
