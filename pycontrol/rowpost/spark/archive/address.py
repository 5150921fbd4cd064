"""How users name an archive: a folder, a URI, or iceberg:CATALOG.NAMESPACE.TABLE. This module imports no package.

>>> is_iceberg("iceberg:lake.messages.archive"), is_iceberg("s3a://lake/archive")
(True, False)
"""

from __future__ import annotations

from dataclasses import dataclass

from rowpost.errors import SettingsError

__all__ = ["IcebergAddress", "check_folder", "iceberg_address", "is_iceberg"]

_PREFIX = "iceberg:"
_FORM = f"{_PREFIX}CATALOG.NAMESPACE.TABLE"
_MIN_PARTS = 3


@dataclass(frozen=True)
class IcebergAddress:
    """An Iceberg table. `name` has the parts of its namespace, and its own name at the end."""

    catalog: str
    name: tuple[str, ...]


def is_iceberg(address: str) -> bool:
    """Tell whether an address names an Iceberg table. A folder whose name begins so can be written as ./iceberg:…"""
    return address.startswith(_PREFIX)


def iceberg_address(address: str) -> IcebergAddress:
    """Parse the address of an Iceberg table. Raises SettingsError.

    >>> iceberg_address("iceberg:lake.messages.archive")
    IcebergAddress(catalog='lake', name=('messages', 'archive'))
    """
    parts = address.removeprefix(_PREFIX).split(".")
    if len(parts) < _MIN_PARTS or not all(parts):
        raise SettingsError(f"{address} does not name an Iceberg table. Write {_FORM}, such as {_PREFIX}lake.messages.archive.")
    return IcebergAddress(parts[0], tuple(parts[1:]))


def check_folder(address: str, what: str) -> None:
    """Raise SettingsError if an address names an Iceberg table where only a folder is possible.

    Args:
        address: what the user has written.
        what: what is written there, such as "the results of --out".
    """
    if is_iceberg(address):
        raise SettingsError(f"{address} is an Iceberg table, but {what} must be in a folder. Name a folder or a URI.")
