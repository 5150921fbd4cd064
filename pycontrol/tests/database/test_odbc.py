"""SQL Server without its driver: what needs none works, and a connection says which part is missing and how to install it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rowpost.database.dialects.sqlserver.odbc import how_to_install, missing_library
from rowpost.version import install_command

NO_LIBRARY = "libodbc.so.2: cannot open shared object file: No such file or directory"
ENVIRONMENT = 'environment: shop\nengine: sqlserver\nurl: "Server=127.0.0.1,1;Database=shop;UID=shop;PWD=shop;Encrypt=no"\nqueues: {Sales: {}, error: {}}\n'


def rowpost(
    folder: Path, pyodbc: str, *arguments: str, environment: str = ENVIRONMENT
) -> subprocess.CompletedProcess[str]:
    """Call the program where importing pyodbc executes the given text."""
    (folder / "pyodbc.py").write_text(pyodbc, encoding="utf-8")
    (folder / "shop.yml").write_text(environment, encoding="utf-8")
    command = [
        sys.executable,
        "-c",
        "from rowpost.cli import main; main()",
        "--env",
        str(folder / "shop.yml"),
        *arguments,
    ]
    paths = [str(folder), str(Path(__file__).parents[2])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "ROWPOST_DATA": str(folder / "data")}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=variables, timeout=120)


def test_a_plan_for_sql_server_needs_no_driver(tmp_path):
    done = rowpost(tmp_path, "raise AssertionError('a plan imports no driver')", "plan", "--sql")

    assert done.returncode == 0, done.stderr
    assert "rowpost.[receive_messages:Sales]" in done.stdout


def test_a_release_archive_for_sql_server_needs_no_driver(tmp_path):
    done = rowpost(
        tmp_path,
        "raise AssertionError('an archive needs no driver')",
        "plan",
        "--release-archive",
        str(tmp_path / "release.zip"),
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "release.zip").stat().st_size > 0


def test_a_plan_needs_no_password(tmp_path):
    """It connects to nothing. What does connect names the variable."""
    environment = ENVIRONMENT.replace("PWD=shop", "PWD=${SHOP_PASSWORD_THAT_NOBODY_SET}")
    planned = rowpost(tmp_path, "", "plan", "--sql", environment=environment)
    listed = rowpost(tmp_path, "", "queue", "list", environment=environment)

    assert planned.returncode == 0, planned.stderr
    assert "SHOP_PASSWORD_THAT_NOBODY_SET" not in planned.stdout
    assert (listed.returncode, "SHOP_PASSWORD_THAT_NOBODY_SET is not set" in listed.stderr) == (3, True)


def test_a_connection_without_pyodbc_names_the_package(tmp_path):
    done = rowpost(tmp_path, "raise ModuleNotFoundError(\"No module named 'pyodbc'\", name='pyodbc')", "queue", "list")

    assert done.returncode == 3
    assert "Python has no package 'pyodbc'" in done.stderr
    assert install_command("sqlserver") in done.stderr
    assert "Traceback" not in done.stderr


def test_a_connection_without_the_driver_manager_names_it_and_no_python_package(tmp_path):
    done = rowpost(tmp_path, f"raise ImportError({NO_LIBRARY!r})", "queue", "list")

    assert done.returncode == 3
    assert "the ODBC driver manager is missing (libodbc.so.2)" in done.stderr
    assert "pip install" not in done.stderr


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (NO_LIBRARY, "the ODBC driver manager"),
        ("libltdl.so.7: cannot open shared object file", "the library libltdl"),
        ("libgssapi_krb5.so.2: cannot open shared object file", "Kerberos"),
        (
            "dlopen(/x/pyodbc.so): Library not loaded: /opt/homebrew/opt/unixodbc/lib/libodbc.2.dylib",
            "the ODBC driver manager",
        ),
    ],
)
def test_a_missing_library_is_named_by_the_part_that_it_belongs_to(said, part):
    assert missing_library(said).startswith(f"{part} is missing (lib")


def test_what_the_loader_says_of_another_library_is_passed_on():
    assert missing_library("libother.so.1: version `X' not found") == "libother.so.1: version `X' not found."


@pytest.mark.parametrize(
    ("system", "release", "command"),
    [
        ("Linux", {"ID": "debian"}, "apt-get install --yes unixodbc"),
        ("Linux", {"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "apt-get install --yes unixodbc"),
        ("Linux", {"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "dnf install --assumeyes unixODBC"),
        ("Linux", {"ID": "alpine"}, "apk add unixodbc"),
        ("Darwin", {}, "brew install unixodbc"),
    ],
)
def test_the_command_is_that_of_the_system(system, release, command):
    assert how_to_install("libodbc", system, release) == f"Install it: {command}"


def test_on_an_unknown_system_the_packages_are_named():
    assert "unixodbc or unixODBC" in how_to_install("libodbc", "Linux", {"ID": "plan9"})
