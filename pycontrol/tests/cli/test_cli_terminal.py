"""On a terminal: a live table, questions before what cannot be undone, Ctrl-C to the whole group of processes."""

import re
import subprocess
import sys
import threading

import pytest

from tests.support.program import ROWPOST, TIMEOUT, Program, environment_file, program
from tests.support.workers import eventually

__all__ = ["program"]

# Gives the program a terminal of its own; bytes that are written to this process are typed there.
TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CTRL_C = b"\x03"


class Terminal:
    """A call of the program on a terminal."""

    def __init__(self, program: Program, *arguments: str, columns: int = 100) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", TERMINAL, ROWPOST, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**program.variables, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "30"},
            cwd=program.folder,
        )
        self._shown = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while piece := self._process.stdout.read1():
            self._shown += piece

    @property
    def shown(self) -> str:
        """Everything that was shown so far, without what moves the cursor."""
        return CONTROL.sub("", self.raw)

    @property
    def raw(self) -> str:
        """Everything that was shown so far."""
        return self._shown.decode(errors="replace")

    def type(self, keys: bytes) -> None:
        self._process.stdin.write(keys)
        self._process.stdin.flush()

    def until(self, text: str) -> None:
        eventually(lambda: text in self.shown, f"{text!r} is shown")

    def ended(self) -> int:
        code = self._process.wait(TIMEOUT)
        self._reader.join(TIMEOUT)
        return code


@pytest.fixture
def sales(program: Program) -> Program:
    """The program, with the queue Sales empty."""
    assert program("queue", "purge", "Sales", "--yes").code == 0
    return program


@pytest.mark.parametrize(("answer", "code", "left"), [(b"y\n", 0, "0\n"), (b"n\n", 7, "1\n"), (CTRL_C, 130, "1\n")])
def test_purge_asks_and_does_what_it_is_told(sales: Program, answer: bytes, code: int, left: str):
    sales("send", "Sales", "--body", "x")

    terminal = Terminal(sales, "queue", "purge", "Sales")
    terminal.until("Delete 1 message from Sales")
    terminal.type(answer)

    assert terminal.ended() == code
    assert sales("queue", "peek", "Sales").out == left


def test_run_shows_a_live_table_and_ctrl_c_ends_it_with_all_its_workers(sales: Program, tmp_path):
    (sales.folder / "shop.py").write_text("def place_order(message, connection): pass\n")
    queues = 'queues: {Sales: {worker: {handler: "shop:place_order", peek_delay: 0.1}}, error: {}}\n'
    worked = sales.with_environment(environment_file(tmp_path, rest=queues))
    sales("send", "Sales", "--lines", stdin="x\n" * 50)

    terminal = Terminal(worked, "run")
    terminal.until("per second")
    eventually(lambda: re.search(r"Sales +0 .* 50 ", terminal.shown), "all 50 are counted in the table")
    terminal.type(CTRL_C)

    assert terminal.ended() == 130
    assert "Sales: 50 handled" in terminal.shown
    assert "stopped by Ctrl-C" in terminal.shown
    assert "Traceback" not in terminal.shown


@pytest.fixture
def worked(sales: Program, tmp_path) -> Program:
    """The program with a worker for Sales, and 50 messages in it."""
    (sales.folder / "shop.py").write_text("def place_order(message, connection): pass\n")
    queues = 'queues: {Sales: {worker: {handler: "shop:place_order", peek_delay: 0.1}}, error: {}}\n'
    sales("send", "Sales", "--lines", stdin="x\n" * 50)
    return sales.with_environment(environment_file(tmp_path, rest=queues))


def test_run_fits_a_terminal_of_80_columns(worked: Program):
    terminal = Terminal(worked, "run", columns=80)
    eventually(lambda: re.search(r"Sales +0 .* 50 ", terminal.shown), "all 50 are counted in the table")
    terminal.type(CTRL_C)

    assert terminal.ended() == 130
    table = [line for line in terminal.shown.splitlines() if line.startswith(("queue ", "Sales "))]
    assert table
    assert not [line for line in table if "…" in line or len(line.rstrip()) > 80]
    assert "discarded" in terminal.shown


def test_run_plain_writes_lines_and_never_draws_again(worked: Program):
    terminal = Terminal(worked, "run", "--plain")
    terminal.until("worker")
    eventually(lambda: worked("queue", "peek", "Sales").out == "0\n", "all are handled")
    terminal.type(CTRL_C)

    assert terminal.ended() == 130
    assert not CONTROL.search(terminal.raw), "no colour, and nothing that moves the cursor"
    assert "per second" not in terminal.raw
    assert re.search(r"^\d\d:\d\d:\d\d Sales: worker \d+ started", terminal.raw, re.MULTILINE)
    assert "Sales: 50 handled" in terminal.raw


def test_the_demo_draws_a_picture(sales: Program):
    terminal = Terminal(sales, "demo", "--orders", "300")
    terminal.until("Deploy rowpost and the demo's queues into")
    terminal.type(b"y\n")

    assert terminal.ended() == 0
    assert "orders sent" in terminal.shown
    assert "workers over time" in terminal.shown
    assert "Nothing lost, nothing doubled." in terminal.shown
