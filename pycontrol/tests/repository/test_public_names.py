"""What `import rowpost` offers: every public name, loaded at its first use, and known to type checkers."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rowpost

PACKAGE = Path(rowpost.__file__).parent
PROGRAM = Path(__file__).parents[1] / "support" / "user_program.py"
#: packages of applications, which use them or not: rowpost joins their transactions, and never imports them by itself
OF_APPLICATIONS = ("sqlalchemy", "greenlet", "django", "asyncpg")
#: modules that take long to import, or that not every program needs
EXPENSIVE = (
    "psycopg", "pyodbc", "pyspark", "rich", "typer", "yaml", "asyncio", "concurrent", "rowpost.endpoint", "rowpost.database",
    *OF_APPLICATIONS,
)  # fmt: skip


def python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(code: str) -> list[str]:
    return python(f"{code}\nimport sys; print('\\n'.join(sys.modules))").split()


# pytest imports the plugin in every project of an environment with rowpost
@pytest.mark.parametrize(("module", "before"), [("rowpost", "pass"), ("rowpost.pytest_plugin", "import pytest")])
def test_importing_rowpost_loads_no_driver_no_endpoint_and_no_event_loop(module, before):
    loaded = set(loaded_by(f"import {module}")) - set(loaded_by(before))

    assert module in loaded
    assert [name for name in loaded if name.startswith(EXPENSIVE)] == []


def test_no_public_name_loads_a_package_of_applications():
    loaded = loaded_by("from rowpost import *")

    assert {"rowpost.endpoint.endpoint", "rowpost.database.wrapped"} <= set(loaded)
    assert [name for name in loaded if name.startswith(OF_APPLICATIONS)] == []


def test_every_public_name_is_the_one_of_its_module():
    for name, module in rowpost._MODULES.items():
        assert getattr(rowpost, name) is getattr(importlib.import_module(module), name)
        assert name in importlib.import_module(module).__all__


def test_type_checkers_see_the_names_that_are_loaded_at_their_first_use():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))

    seen = {alias.asname: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}

    assert seen == rowpost._MODULES
    assert list(seen) == rowpost.__all__


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Endpont'"):
        rowpost.Endpont  # noqa: B018
    assert set(rowpost.__all__) <= set(dir(rowpost))


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").is_file()


def check(command: list[str]) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, "MYPYPATH": str(PACKAGE.parent)},
        cwd=PACKAGE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.lint
def test_a_user_s_program_passes_mypy_strict(tmp_path):
    check(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--follow-imports=silent",
            "--cache-dir",
            str(tmp_path),
            str(PROGRAM),
        ]
    )


@pytest.mark.lint
def test_a_user_s_program_and_the_examples_pass_pyright():
    check([sys.executable, "-m", "pyright", "--pythonpath", sys.executable])
