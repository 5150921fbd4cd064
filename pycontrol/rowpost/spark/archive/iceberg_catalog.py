"""The catalogue of an Iceberg table, as pyiceberg's own configuration describes it: .pyiceberg.yaml or PYICEBERG_CATALOG__… variables.

`load` returns the catalogue of an address, and `asked` raises what a catalogue answers as rowpost's errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, NotInstalledError
from pyiceberg.utils.config import Config

from rowpost.errors import ArchiveNotFound, RowpostError, SettingsError, SparkFailed, SparkUnavailable
from rowpost.spark.archive.address import iceberg_address

__all__ = ["asked", "load"]

_MAX_TEXT = 300


def load(address: str) -> tuple[Catalog, tuple[str, ...]]:
    """Return the catalogue of an address, and the name of the table in it.

    Raises:
        SettingsError: the address is not complete, or pyiceberg's configuration has no such catalogue.
        SparkFailed: the catalogue cannot be reached.
        SparkUnavailable: a package for this kind of catalogue is missing.
    """
    named = iceberg_address(address)
    properties = Config().get_catalog_config(named.catalog)  # load_catalog itself knows the variables of the time when it was imported
    if properties is None:
        raise SettingsError(
            f"{address}: pyiceberg's configuration has no catalogue {named.catalog}. Add it to .pyiceberg.yaml in the home or working directory, "
            f"or set PYICEBERG_CATALOG__{named.catalog.upper()}__URI and its other properties."
        )
    with asked(address):
        return load_catalog(named.catalog, **properties), named.name  # type: ignore[arg-type]


@contextmanager
def asked(address: str) -> Iterator[None]:
    """Raise the errors of a catalogue within the block as rowpost's errors. Conflicts of commits and missing files pass unchanged."""
    try:
        yield
    except (RowpostError, CommitFailedException, FileNotFoundError):
        raise
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise ArchiveNotFound(f"There is no archive {address}. `rowpost spark archive QUEUE {address}` creates one.") from error
    except (NotInstalledError, ModuleNotFoundError) as error:
        raise SparkUnavailable(f"The catalogue of {address} needs a package that is not installed ({_text(error)}). Install it.") from error
    except Exception as error:
        raise SparkFailed(
            f"{address} cannot be read or changed: {_text(error)}. Check the catalogue in pyiceberg's configuration and the store of the table, and run the command again."
        ) from error


def _text(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_MAX_TEXT].rstrip(".")
