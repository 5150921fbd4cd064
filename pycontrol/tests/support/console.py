"""The console blocks of a page, typed line by line into a shell, as a reader does it in the repository's folder."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from tests.support.documents import ROOT, Block

__all__ = ["Console", "console", "programs"]

DEADLINE = 60.0  # seconds
#: lines that are not typed
NOT_TYPED = ("pip install",)
#: what pip makes of an entry point; the paths in the installed ones may lead elsewhere
_PROGRAM = """#!{python}
import sys
from importlib.metadata import entry_points
(found,) = entry_points(group="console_scripts", name="{name}")
sys.exit(found.load()())
"""
_PORT = re.compile(r"(?<=[: ])80\d\d\b")


def programs(folder: Path, *names: str) -> Path:
    """Make the programs of installed packages in a folder, and `python`, for this interpreter. Return the folder."""
    folder.mkdir()
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for name in names:
        (folder / name).write_text(_PROGRAM.format(python=sys.executable, name=name))
    for path in folder.iterdir():
        path.chmod(0o755)
    return folder


class Console:
    """A shell in the repository's folder. A line that ends with `&` runs until the console is closed.

    Args:
        variables: the shell's environment.
        folder: for what programs print that run until the end.
    """

    def __init__(self, variables: dict[str, str], folder: Path) -> None:
        self.variables, self._folder = variables, folder
        self._ports: dict[str, str] = {}
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def type(self, block: Block) -> int:
        """Type the lines of a block, and return how many lines of output it promises.

        A command is repeated until it exits with 0 and prints what the page promises, because a reader waits until the
        programs before it have started.
        """
        promised = 0
        for typed, lines in _commands(block):
            if typed.startswith(NOT_TYPED):
                continue
            promised += len(lines)
            if typed.endswith(" &"):
                self._start(typed.removesuffix(" &"))
            else:
                self.run(typed, lines)
        return promised

    def run(self, line: str, promised: Sequence[str] = ()) -> str:
        """Run a line until it exits with 0 and prints these lines, and return what it has printed to stdout."""
        end = time.monotonic() + DEADLINE
        while True:
            done = subprocess.run(
                ["bash", "-c", self._with_free_ports(line)],
                cwd=ROOT, env=self.variables, capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            said = done.stdout + done.stderr
            missing = [each for each in promised if each not in said]
            if done.returncode == 0 and not missing:
                return done.stdout
            assert time.monotonic() < end, f"$ {line}\n{said}\n{done.returncode}, without {missing}\n{self._said()}"
            time.sleep(0.2)

    def close(self) -> None:
        """End what still runs. Each program must not have ended before."""
        ended = {line: process.poll() for line, process in self._running}
        for _, process in reversed(self._running):
            process.terminate()
            process.wait(DEADLINE)
        assert set(ended.values()) <= {None}, f"{ended}\n{self._said()}"

    def _start(self, line: str) -> None:
        with (self._folder / f"{len(self._running)}.log").open("w") as log:
            command = ["bash", "-c", f"exec {self._with_free_ports(line)}"]
            started = subprocess.Popen(command, cwd=ROOT, env=self.variables, stdout=log, stderr=subprocess.STDOUT)
        self._running.append((line, started))

    def _said(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("*.log")))

    def _with_free_ports(self, line: str) -> str:
        """Return a line with free ports in the place of those of the page."""
        return _PORT.sub(lambda found: self._ports.setdefault(found[0], _free_port()), line)


def _commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield each typed line without the prompt and its comment, with the lines of output below it."""
    for text in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        typed, *lines = text.splitlines()
        yield re.sub(r"\s+# .*", "", typed), lines


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


@pytest.fixture
def console(embedded_url: str, data_folder: Path, tmp_path: Path) -> Iterator[Console]:
    """A console whose embedded server is that of the tests, with an empty database."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROWPOST_")}
    made = programs(tmp_path / "bin", "rowpost", "alembic", "uvicorn")
    variables = {**inherited, "PATH": f"{made}:{inherited['PATH']}", "ROWPOST_DATA": str(data_folder)}
    with psycopg.connect(embedded_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS rowpost CASCADE")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    opened = Console(variables, tmp_path)
    yield opened
    opened.close()
