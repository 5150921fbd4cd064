"""Where Microsoft's ODBC driver is: on the system, or in the wheel mssql-python-odbc."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pyodbc

from rowpost.errors import SettingsError

__all__ = ["find_driver"]


@cache
def find_driver() -> str:
    """A system driver's name, or the path of the one in the wheel.

    Raises:
        SettingsError: there is none.
    """
    installed = set(pyodbc.drivers())
    for name in ("ODBC Driver 18 for SQL Server", "ODBC Driver 17 for SQL Server"):
        if name in installed:
            return name
    spec = find_spec("mssql_python_odbc")
    if spec and spec.submodule_search_locations:
        folder = Path(next(iter(spec.submodule_search_locations))) / "libs"
        candidates = sorted(folder.rglob("libmsodbcsql-*.so*")) + sorted(folder.rglob("libmsodbcsql.*.dylib"))
        for candidate in _of_this_machine(candidates):
            return str(candidate)
    if "FreeTDS" in installed:
        return "FreeTDS"
    raise SettingsError("No ODBC driver for SQL Server was found. Install it with: pip install 'rowpost[sqlserver]'")


def _of_this_machine(candidates: list[Path]) -> list[Path]:
    """Drivers for this processor; those of this Linux family first."""
    import platform

    machine = platform.machine().lower()
    machines = {"x86_64": ("x86_64", "amd64"), "amd64": ("x86_64", "amd64"), "aarch64": ("arm64", "aarch64")}
    fitting = [c for c in candidates if any(m in c.parts for m in machines.get(machine, (machine,)))]
    try:
        family = platform.freedesktop_os_release()
    except OSError:
        family = {}
    words = f"{family.get('ID', '')} {family.get('ID_LIKE', '')}".split()
    return sorted(fitting, key=lambda c: not any(w and any(w in part for part in c.parts) for w in words))
