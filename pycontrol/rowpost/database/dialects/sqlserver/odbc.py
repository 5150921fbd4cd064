"""What a connection to SQL Server needs on this machine: pyodbc, the ODBC driver manager, and Microsoft's driver.

pyodbc is imported when the first connection is opened, and nowhere else, so that settings, plans and release archives
need no driver. If something is missing, the error names the part and the command that installs it on this system.
"""

from __future__ import annotations

import ctypes
import platform
import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowpost.errors import SettingsError
from rowpost.settings.password import read_password
from rowpost.version import install_command

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["connection_string", "find_driver", "how_to_install", "load_pyodbc", "missing_library"]

_MARS = re.compile(
    r"(?:^|;)\s*(?:mars[_ ]connection|multipleactiveresultsets)\s*=\s*\{?\s*(?:yes|true|1)\s*\}?\s*(?:;|$)",
    re.IGNORECASE,
)
_KERBEROS = ("Kerberos", ": Microsoft's ODBC driver loads it even if nobody uses it")
#: what a missing library belongs to, and who loads it
_PARTS = {
    "libodbc": ("the ODBC driver manager", ""),
    "libltdl": ("the library libltdl", ": the ODBC driver manager loads it"),
    "libgssapi": _KERBEROS,
    "libkrb5": _KERBEROS,
}
#: the packages of these parts: Debian and Ubuntu, Red Hat and Fedora, Alpine, macOS
_PACKAGES = {
    "libodbc": ("unixodbc", "unixODBC", "unixodbc", "unixodbc"),
    "libltdl": ("libltdl7", "libtool-ltdl", "libltdl", "libtool"),
    "libgssapi": ("libgssapi-krb5-2", "krb5-libs", "krb5-libs", "krb5"),
    "libkrb5": ("libkrb5-3", "krb5-libs", "krb5-libs", "krb5"),
}
_COMMANDS = ("apt-get install --yes {}", "dnf install --assumeyes {}", "apk add {}", "brew install {}")
_FAMILIES = ({"debian", "ubuntu"}, {"rhel", "fedora", "centos", "rocky", "almalinux", "amzn"}, {"alpine"})
_LIBRARY = re.compile(r"\b(lib[\w+-]+?)(?:[.-][\d.]*)?\.(?:so|dylib)[\w.]*")
_PYTHON_PARTS = "Python has no package {0!r}, which connections to SQL Server need. Install it: {1}"


def connection_string(url: str, application_name: str) -> str:
    """Return the ODBC connection string of an environment's url, with a driver and the name of the application.

    Raises:
        SettingsError: the url asks for MARS, or there is no driver.
        PasswordUnavailable: the source of its password cannot be read.
    """
    if _MARS.search(url):
        raise SettingsError(
            "The url says MARS_Connection=yes, with which rowpost cannot work: SQL Server then rolls back a "
            "transaction that was begun in T-SQL at the end of its batch (error 3997). Remove MARS_Connection from "
            "the url. Nothing was connected."
        )
    text = url if re.search(r"(^|;)\s*driver\s*=", url, re.IGNORECASE) else f"Driver={{{find_driver()}}};{url}"
    password = read_password(url)
    if password is not None:
        text = f"{text.rstrip(';')};PWD={{{password.replace('}', '}}')}}}"
    if re.search(r"(^|;)\s*app\s*=", text, re.IGNORECASE):
        return text
    return f"{text.rstrip(';')};APP={{{application_name.replace('}', '}}')}}}"


@cache
def load_pyodbc() -> Any:
    """Import pyodbc and configure it: uuids as UUID, and no pool, because a pool passes on isolation levels and
    settings.

    Raises:
        SettingsError: pyodbc or a library that it needs is missing. The text says which, and how to install it here.
    """
    try:
        pyodbc: Any = import_module("pyodbc")
    except ModuleNotFoundError as error:
        raise SettingsError(_PYTHON_PARTS.format("pyodbc", install_command("sqlserver"))) from error
    except ImportError as error:
        raise SettingsError(
            f"pyodbc cannot be loaded, and without it no connection to SQL Server: {missing_library(str(error))}"
        ) from error
    pyodbc.native_uuid, pyodbc.pooling = True, False
    return pyodbc


@cache
def find_driver() -> str:
    """Return the name of a driver that is installed on the system, else the path of the one in the wheel
    mssql-python-odbc.

    Raises:
        SettingsError: there is none, or the one in the wheel cannot be loaded.
    """
    installed = set(load_pyodbc().drivers())
    for name in ("ODBC Driver 18 for SQL Server", "ODBC Driver 17 for SQL Server"):
        if name in installed:
            return name
    spec = find_spec("mssql_python_odbc")
    if spec and spec.submodule_search_locations:
        folder = Path(next(iter(spec.submodule_search_locations))) / "libs"
        candidates = sorted(folder.rglob("libmsodbcsql-*.so*")) + sorted(folder.rglob("libmsodbcsql.*.dylib"))
        for candidate in _of_this_machine(candidates):
            _check_loads(candidate)
            return str(candidate)
    if "FreeTDS" in installed:
        return "FreeTDS"
    if platform.system() == "Windows":
        raise SettingsError(
            "Windows has no ODBC driver for SQL Server. Install Microsoft's: winget install Microsoft.msodbcsql.18"
        )
    raise SettingsError(_PYTHON_PARTS.format("mssql_python_odbc", install_command("sqlserver")))


def _check_loads(driver: Path) -> None:
    """Load a driver, because the driver manager reports whatever it lacks as 'file not found'. Raises SettingsError."""
    try:
        ctypes.CDLL(str(driver))
    except OSError as error:
        raise SettingsError(f"Microsoft's ODBC driver cannot be loaded: {missing_library(str(error))}") from error


def missing_library(said: str) -> str:
    """Say which part a loader's error means, and how to install it on this system.

    Args:
        said: what the loader said, such as "libodbc.so.2: cannot open shared object file: No such file or directory".
    """
    for match in _LIBRARY.finditer(said):
        part = next((part for part in _PARTS if match[1].startswith(part)), None)
        if part is not None:
            name, loaded_by = _PARTS[part]
            return f"{name} is missing ({match[0]}){loaded_by}. {how_to_install(part)}"
    return f"{said.strip().rstrip('.')}."


def how_to_install(part: str, system: str | None = None, release: Mapping[str, str] | None = None) -> str:
    """Return the sentence with the command that installs a part.

    Args:
        part: a key of the parts that this module knows, such as "libodbc".
        system: as `platform.system()` names it; None for this machine's.
        release: as `platform.freedesktop_os_release()` gives it; None for this machine's.
    """
    if (system or platform.system()) == "Darwin":
        return f"Install it: {_COMMANDS[3].format(_PACKAGES[part][3])}"
    words = set(_words(_os_release() if release is None else release))
    for place, family in enumerate(_FAMILIES):
        if family & words:
            return f"Install it: {_COMMANDS[place].format(_PACKAGES[part][place])}"
    names = " or ".join(dict.fromkeys(_PACKAGES[part][:3]))
    return f"Install it with this system's package manager: the package is called {names}."


def _os_release() -> Mapping[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _words(release: Mapping[str, str]) -> list[str]:
    return f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".split()


def _of_this_machine(candidates: list[Path]) -> list[Path]:
    """Return the drivers for this processor. Those of this Linux family come first."""
    machine = platform.machine().lower()
    machines = {"x86_64": ("x86_64", "amd64"), "amd64": ("x86_64", "amd64"), "aarch64": ("arm64", "aarch64")}
    fitting = [c for c in candidates if any(m in c.parts for m in machines.get(machine, (machine,)))]
    words = _words(_os_release())
    return sorted(fitting, key=lambda c: not any(any(word in part for part in c.parts) for word in words))
