"""Handlers in files that are named like modules of Python or of installed packages. Real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import Program, environment_file

NAMES = ("queue", "email", "secrets", "logging", "celery", "psycopg")
HANDLER = "def handle(message, connection):\n    connection.execute('SELECT 1')\n"


def shop(folder: Path, url: str, handler: str) -> Program:
    """Return a program whose current folder has a file for each of the names, and whose queue has that handler."""
    for name in (*NAMES, "shop"):
        (folder / f"{name}.py").write_text(HANDLER)
    rest = f"queues: {{Sales: {{worker: {{handler: '{handler}', limit: 1}}}}, error: {{}}}}\n"
    return Program(environment_file(folder, rest=rest), folder, SHOP_URL=url)


def call(
    program: Program, *arguments: str, module: bool = False, first: str | None = None
) -> subprocess.CompletedProcess:
    """Call the program in a process of its own: the tests' fork server has imported modules already. `first` is put before PYTHONPATH."""
    command = [sys.executable, "-m", "rowpost"] if module else [str(Path(sys.executable).with_name("rowpost"))]
    path = os.pathsep.join(filter(None, sys.path))
    variables = {**program.variables, "PYTHONPATH": path} if module else dict(program.variables)
    if first is not None:
        variables["PYTHONPATH"] = os.pathsep.join((first, path))
    return subprocess.run(
        [*command, *arguments],
        cwd=program.folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_files_named_like_modules_of_python_harm_neither_the_program_nor_its_workers(new_database, tmp_path):
    program = shop(tmp_path, new_database("embedded"), "shop:handle")

    applied = call(program, "apply")
    sent = call(program, "send", "Sales", "--body", "x")
    ran = call(program, "run", "--until-idle")
    listed = call(program, "queue", "list", module=True)

    for done in (applied, sent, ran, listed):
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "1 handled" in ran.stdout
    assert "Sales" in listed.stdout


@pytest.mark.parametrize("name", ["queue", "psycopg"])
def test_a_handler_in_a_file_named_like_another_module_is_refused_with_a_sentence(new_database, tmp_path, name):
    program = shop(tmp_path, new_database("embedded"), f"{name}:handle")
    program("apply")

    ran = call(program, "run", "--until-idle")

    assert ran.returncode == 6, ran.stderr
    assert f"'{name}' is " in ran.stderr
    assert f"in place of {tmp_path / name}.py. Rename the file" in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("entry", ["", "."])
def test_a_current_folder_in_pythonpath_comes_after_pythons_modules_in_the_program_and_its_workers(
    new_database, tmp_path, entry
):
    program = shop(tmp_path, new_database("embedded"), "shop:handle")
    for name in ("celery", "psycopg"):  # an installed one is replaced, as who names a folder expects
        (tmp_path / f"{name}.py").unlink()
    for name in ("json", "random", "socket", "pickle"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not the module of Python')")

    applied = call(program, "apply", first=entry)
    sent = call(program, "send", "Sales", "--body", "x", first=entry)
    ran = call(program, "run", "--until-idle", first=entry)

    for done in (applied, sent, ran):
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "1 handled" in ran.stdout


def test_a_module_of_the_current_folder_in_pythonpath_still_comes_before_an_installed_one(new_database, tmp_path):
    program = shop(tmp_path, new_database("embedded"), "celery:handle")
    (tmp_path / "psycopg.py").unlink()
    program("apply")
    program("send", "Sales", "--body", "x")

    ran = call(program, "run", "--until-idle", first="")

    assert "1 handled" in ran.stdout, ran.stderr


@pytest.mark.parametrize("command", ["rowpost", "python -m rowpost"])
def test_a_current_folder_that_was_removed_is_told(new_database, tmp_path, command):
    program = shop(tmp_path, new_database("embedded"), "shop:handle")
    gone = tmp_path / "gone"
    gone.mkdir()
    place = Path(sys.executable).parent

    ran = subprocess.run(
        ["sh", "-c", f"rmdir {gone} && exec {place}/{command} run --until-idle"],
        cwd=gone, env=program.variables, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert ran.returncode == 7, ran.stderr
    assert "the current folder, and it has been removed" in " ".join(ran.stderr.split())
    assert "None" not in ran.stderr and "Traceback" not in ran.stderr
