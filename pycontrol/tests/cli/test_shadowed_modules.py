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


def call(program: Program, *arguments: str, module: bool = False) -> subprocess.CompletedProcess:
    """Call the program in a process of its own: the tests' fork server has imported modules already."""
    command = [sys.executable, "-m", "rowpost"] if module else [str(Path(sys.executable).with_name("rowpost"))]
    path = os.pathsep.join(filter(None, sys.path))
    variables = {**program.variables, "PYTHONPATH": path} if module else program.variables
    return subprocess.run([*command, *arguments], cwd=program.folder, env=variables, capture_output=True, text=True, check=False, timeout=60)


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
    call(program, "apply")

    ran = call(program, "run", "--until-idle")

    assert ran.returncode == 6, ran.stderr
    assert f"'{name}' is " in ran.stderr
    assert f"in place of {tmp_path / name}.py. Rename the file" in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr
