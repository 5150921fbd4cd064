"""Open the table of an archive by its address, a folder or a URI. deltalake is imported when a table is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowpost.archive.table import ArchiveTable

if TYPE_CHECKING:
    from rowpost.archive.columns import Schema

__all__ = ["create_table", "open_table"]


def open_table(address: str) -> ArchiveTable:
    """Read the newest snapshot of a table.

    Raises:
        ArchiveNotFound: there is no table.
        SettingsError: Delta's libraries would read the path as another one.
        SparkFailed: the table cannot be read, or is not an archive.
        SparkUnavailable: deltalake is not installed.
    """
    from rowpost.archive.delta import DeltaArchive

    return DeltaArchive.open(address)


def create_table(address: str, schema: Schema) -> ArchiveTable:
    """Read the newest snapshot of a table. Creates the table if there is none. Raises what `open_table` raises, but ArchiveNotFound."""
    from rowpost.archive.delta import DeltaArchive

    return DeltaArchive.create(address, schema)
