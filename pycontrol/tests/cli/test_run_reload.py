"""rowpost run --reload: the command starts again when a file has changed, and running handlers finish first."""

import os
import signal
import sys

import pytest

from tests.support.program import Program, environment_file
from tests.support.workers import eventually

APP = """
from pathlib import Path

from rowpost import Endpoint

sales = Endpoint("Sales")


@sales.handles_everything
def handle(message, context):
    with Path("seen.txt").open("a") as file:
        file.write("{}\\n")
"""


@pytest.fixture
def program(new_database, tmp_path) -> Program:
    (tmp_path / "reloaded_shop.py").write_text(APP.format("before"))
    return Program(
        environment_file(tmp_path, rest="queues: {Sales: {}, error: {}}\n"), tmp_path, SHOP_URL=new_database("embedded")
    )


def test_a_changed_file_starts_the_workers_again(program: Program):
    seen = program.folder / "seen.txt"
    assert program("apply", "--yes").code == 0
    with program.started("run", "reloaded_shop:sales", "--reload") as running:
        program("send", "Sales", "--body", "1")
        eventually(lambda: seen.exists() and seen.read_text() == "before\n", "the first message")
        (program.folder / "notes.txt").write_text("no Python")
        (program.folder / "reloaded_shop.py").write_text(APP.format("after"))
        program("send", "Sales", "--body", "2")
        eventually(
            lambda: (seen.read_text().startswith("before\n") and "after\n" in seen.read_text()) or sent(program),
            "again",
        )
        running.interrupt()
        ended = running.ended()

    assert "reloaded_shop.py changed: starting again." in ended.err
    assert "notes.txt" not in ended.err


def test_ctrl_c_in_a_terminal_lets_a_running_handler_finish(program: Program):
    seen = program.folder / "seen.txt"
    slow = APP.replace(
        "    with Path", '    import time\n\n    Path("begun.txt").touch()\n    time.sleep(1)\n    with Path'
    )
    (program.folder / "reloaded_shop.py").write_text(slow.format("finished"))
    assert program("apply", "--yes").code == 0
    command = [sys.executable, "-m", "rowpost", "run", "reloaded_shop:sales", "--reload"]
    with program.started_alone(command) as running:
        program("send", "Sales", "--body", "1")
        eventually((program.folder / "begun.txt").exists, "the handler")
        os.killpg(running.process.pid, signal.SIGINT)  # as a terminal does
        running.ended()

    assert seen.read_text() == "finished\n"


def sent(program: Program) -> bool:
    """Send one more: the workers of before may have taken the last one."""
    program("send", "Sales", "--body", "3")
    return False


def test_reload_is_refused_in_production_and_without_its_package(program: Program, tmp_path):
    production = environment_file(tmp_path, rest="queues: {Sales: {}, error: {}}\n", name="production")
    refused = program.with_environment(production)("run", "reloaded_shop:sales", "--reload")
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "watchfiles.py").write_text("raise ImportError")
    lacking = Program(
        program.environment,
        tmp_path,
        SHOP_URL=program.variables["SHOP_URL"],
        PYTHONPATH=":".join([str(tmp_path / "shadow"), *sys.path]),
    )

    assert (refused.code, "for development" in refused.err) == (2, True)
    assert "needs the package watchfiles" in lacking("run", "reloaded_shop:sales", "--reload").err
