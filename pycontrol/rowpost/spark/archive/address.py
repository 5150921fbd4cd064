"""How users name an archive: a folder, a URI, or iceberg:CATALOG.NAMESPACE.TABLE. This module imports no package.

A path or URI is read as it is written: `%20` is three characters. pyarrow and deltalake take URIs, whose escapes they decode (deltalake
those of the folders too that it lists), and Spark's readers take patterns. `located` and `delta_uri` give each of them what it reads as
the path that was written. A name that one of them can only read as another one is refused before anything is written.

>>> is_iceberg("iceberg:lake.messages.archive"), is_iceberg("s3a://lake/archive")
(True, False)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from rowpost.errors import SettingsError

__all__ = [
    "IcebergAddress", "check_checkpoint", "check_folder", "delta_uri", "iceberg_address", "is_iceberg", "local_path", "located", "scheme_of",
]  # fmt: skip

_PREFIX = "iceberg:"
_FORM = f"{_PREFIX}CATALOG.NAMESPACE.TABLE"
_MIN_PARTS = 3
_LOCAL_URI = re.compile(r"file:(?://(?=/))?(?=/)")
_PATTERN = re.compile(r"[*?\[\]{}\\]")
_DECODED = re.compile(r"%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f]")
_CHANGED_KEY = re.compile(r"(?:^|/)(?:\.\.?)?(?=/)|(?:^|/)\.\.?$")


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


def scheme_of(address: str) -> str:
    """Return the scheme of a URI; an empty text for a path.

    >>> scheme_of("s3a://lake/archive"), scheme_of("archive")
    ('s3a', '')
    """
    return address.partition("://")[0] if "://" in address else ""


def local_path(address: str) -> str | None:
    """Return the absolute path of a folder that a path or a URI with file: names. None for the URI of a store.

    Links are followed, because deltalake does it.
    """
    if found := _LOCAL_URI.match(address):
        address = address[found.end() :]
    return None if scheme_of(address) else str(Path(address).resolve())


def located(address: str) -> str:
    """Return how Spark and messages name a folder: an absolute path, or the URI of a store.

    >>> located("s3a://lake/my archive/")
    's3a://lake/my archive'
    """
    return local_path(address) or address.rstrip("/")


def delta_uri(address: str) -> str:
    """Return the URI that deltalake reads as the path or URI of an archive. Raises SettingsError if there is none.

    >>> delta_uri("/srv/my archive"), delta_uri("s3a://lake/ä")
    ('file:///srv/my%20archive', 's3a://lake/%C3%A4')
    """
    place = located(address)
    scheme = scheme_of(place)
    store, _, key = place.removeprefix(f"{scheme}://").partition("/")
    if found := _DECODED.search(key) or _PATTERN.search(key):
        raise SettingsError(
            f"{place!r} cannot hold a table: Delta's libraries and Spark read {found[0]!r} in a path as something else than these characters, "
            "so that they would write and read different folders. Rename the folder: a name with blanks and letters of any language works."
        )
    if scheme and _CHANGED_KEY.search(key):
        raise SettingsError(
            f"{place!r} cannot hold a table: a part of its path is empty, '.' or '..', which a store has no folder for. Name another path."
        )
    return f"{scheme or 'file'}://{store}/{quote(key)}"


def check_checkpoint(address: str) -> str:
    """Return the address of a checkpoint. Raises SettingsError for one that Spark reads as a pattern of several folders."""
    if found := _PATTERN.search(address):
        raise SettingsError(f"{address!r} cannot be a checkpoint: Spark reads {found[0]!r} in its path as part of a pattern. Name another folder.")
    return address
