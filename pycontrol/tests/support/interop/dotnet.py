"""The endpoint in C#: whether it can be built here, its build, and connection strings as .NET writes them.

    python -m tests.support.interop.dotnet FOLDER [-p:NsbVersion=…]…       builds it into FOLDER; `make test/dotnet` does this

ROWPOST_TEST_NSERVICEBUS    the built nsb.dll. If it is set, the tests run with it or fail; without it they build one, or are skipped
                            where there is no .NET SDK.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

__all__ = ["SOURCE", "VARIABLE", "BuildFailed", "build", "connection_string", "main", "missing"]

SOURCE = Path(__file__).parents[2] / "interop" / "endpoint"
VARIABLE = "ROWPOST_TEST_NSERVICEBUS"
BUILD_S = 300
#: keywords of libpq by those of Npgsql
NPGSQL = {"host": "Host", "port": "Port", "user": "Username", "password": "Password", "dbname": "Database"}
#: keywords of ODBC by those of Microsoft.Data.SqlClient; None for what only ODBC needs
SQLCLIENT = {
    "server": "Server", "database": "Database", "uid": "User ID", "pwd": "Password", "encrypt": "Encrypt",
    "trustservercertificate": "TrustServerCertificate", "trusted_connection": "Integrated Security", "driver": None, "app": None,
}  # fmt: skip
_BOOLEANS = {"yes": "True", "no": "False"}
_ODBC = re.compile(r"\s*([^=;]+)=(\{(?:[^}]|\}\})*\}|[^;]*)(?:;|$)")


class BuildFailed(Exception):
    """`dotnet build` failed."""


def missing() -> str | None:
    """Say why the endpoint cannot be built or run here, and what to do; None if it can."""
    if shutil.which("dotnet") is not None:
        return None
    return (
        "a real NServiceBus needs the .NET SDK 10: install it (https://dotnet.microsoft.com/download/dotnet/10.0), so that `dotnet` is on "
        "PATH, and run `make test/dotnet`"
    )


def build(folder: Path, *options: str) -> Path:
    """Build the endpoint into a folder, and return its nsb.dll. Options such as "-p:NsbVersion=10.2.8" go to `dotnet build`.

    The sources are copied, so that a build leaves nothing in the checkout, and two builds do not meet.

    Raises:
        BuildFailed: with the output of `dotnet build`.
    """
    copied, made = folder / "source", folder / "bin"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(SOURCE, copied, ignore=shutil.ignore_patterns("bin", "obj"))
    command = [
        "dotnet",
        "build",
        str(copied / "interop.csproj"),
        "--configuration",
        "Release",
        "--output",
        str(made),
        "--nologo",
    ]
    command += options
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if done.returncode:
        raise BuildFailed(f"dotnet build ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return made / "nsb.dll"


def connection_string(engine: str, url: str) -> str:
    """Return rowpost's URL of a database as the .NET transports take it.

    Raises:
        ValueError: the URL has an option that has no counterpart here.
    """
    if engine == "sqlserver":
        given = {key.strip().lower(): _unbraced(value) for key, value in _ODBC.findall(url)}
        known: dict[str, str | None] = dict(SQLCLIENT)
    else:
        given = {key: str(value) for key, value in conninfo_to_dict(url).items() if value}
        known = dict(NPGSQL)
    if unknown := given.keys() - known.keys():
        raise ValueError(
            f"The options {', '.join(sorted(unknown))} of a {engine} URL are not translated for .NET: leave them out for these tests."
        )
    return ";".join(f"{known[key]}={_quoted(value)}" for key, value in given.items() if known[key])


def _unbraced(value: str) -> str:
    """Return a value of ODBC without its braces; yes and no in .NET's words."""
    value = value.strip()
    if value.startswith("{"):
        return value[1:-1].replace("}}", "}")
    return _BOOLEANS.get(value.lower(), value)


def _quoted(value: str) -> str:
    """Return a value as connection strings of .NET quote it, if it must be."""
    plain = re.fullmatch(r"[^;'\"=\s]+", value)
    return value if plain else '"' + value.replace('"', '""') + '"'


def main(arguments: list[str]) -> int:
    """Build the endpoint into the folder that the first argument names, with the options that follow. Return the exit code."""
    reason = missing()
    if reason is not None:
        print(f"The endpoint cannot be built: {reason}.", file=sys.stderr)
        return 1
    try:
        made = build(Path(arguments[0]).resolve(), *arguments[1:])
    except BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{VARIABLE}={os.fspath(made)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
