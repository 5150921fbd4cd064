"""Skip tests that need pyodbc if this machine has no ODBC driver manager.

pyodbc's extension module loads `libodbc.so.2`, which pip does not install. Without it every import of pyodbc fails, and
with it everything that creates the dialect of SQL Server. `needs_driver_manager` marks the tests that need the import.
A missing pyodbc, or any other error of the import, is not a reason to skip: the tests then fail.
"""

import pytest

__all__ = ["LIBRARY", "needs_driver_manager"]

LIBRARY = "libodbc.so.2"


def _is_missing() -> bool:
    try:
        import pyodbc  # noqa: F401 -- the import is the check
    except ModuleNotFoundError:
        return False
    except ImportError as error:
        return LIBRARY in str(error)
    return False


needs_driver_manager = pytest.mark.skipif(
    _is_missing(), reason=f"the ODBC driver manager ({LIBRARY}) is not installed: apt install unixodbc"
)
