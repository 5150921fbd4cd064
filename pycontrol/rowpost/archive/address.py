"""How users name an archive: a folder or a URI. This module imports no package.

A path or URI is read as it is written: `%20` is three characters. pyarrow and deltalake take URIs, whose escapes they
decode, and Spark's readers take patterns. `located` and `delta_uri` give each of them what it reads as the path that
was written. A name that one of them can only read as another one is refused before anything is written.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from rowpost.errors import SettingsError

__all__ = ["check_checkpoint", "delta_uri", "local_path", "located", "scheme_of"]

_LOCAL_URI = re.compile(r"file:(?://(?=/))?(?=/)")
_PATTERN = re.compile(r"[*?\[\]{}\\]")
_DECODED = re.compile(r"%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f]")
_CHANGED_KEY = re.compile(r"(?:^|/)(?:\.\.?)?(?=/)|(?:^|/)\.\.?$")


def scheme_of(address: str) -> str:
    """Return the scheme of a URI; an empty text for a path.

    >>> scheme_of("s3a://lake/archive"), scheme_of("archive")
    ('s3a', '')
    """
    return address.partition("://")[0] if "://" in address else ""


def local_path(address: str) -> str | None:
    """Return the absolute path of a folder, with links followed as deltalake does. None for the URI of a store."""
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
            f"{place!r} cannot hold a table: Delta's libraries and Spark read {found[0]!r} in a path as something else "
            "than these characters, so that they would write and read different folders. Rename the folder: a name "
            "with blanks and letters of any language works."
        )
    if scheme and _CHANGED_KEY.search(key):
        raise SettingsError(
            f"{place!r} cannot hold a table: a part of its path is empty, '.' or '..', which a store has no folder "
            "for. Name another path."
        )
    return f"{scheme or 'file'}://{store}/{quote(key)}"


def check_checkpoint(address: str) -> str:
    """Return the address of a checkpoint.

    Raises SettingsError for one that Spark reads as a pattern of several folders.
    """
    if found := _PATTERN.search(address):
        raise SettingsError(
            f"{address!r} cannot be a checkpoint: Spark reads {found[0]!r} in its path as part of a pattern. Name "
            "another folder."
        )
    return address
