"""The installed program `rowpost` as a process with its own database, for tests of the command line."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.fork_server import FORK_SERVER

__all__ = ["Ended", "Program", "Started", "environment_file", "program", "rowpost"]

ROWPOST = Path(sys.executable).with_name("rowpost")
TIMEOUT = 120  # seconds
# by the label of the test's target
ENGINES = {"embedded": "postgresql", "postgresql": "postgresql", "babelfish": "sqlserver", "sqlserver": "sqlserver"}
FEATURES = "features: [maintenance, outbox, sagas, schedules, spark, transactions]\n"
QUEUES = "queues: {Sales: {}, Billing: {}, error: {}, audit: {}}\n"


@dataclass(frozen=True)
class Ended:
    """The result of a call: exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> object:
        return json.loads(self.out)

    @property
    def lines(self) -> list[object]:
        """Parse stdout as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Program:
    """Calls of rowpost that share an environment file and variables. They have no terminal.

    `installed` is the program of another environment, which has its own rowpost.
    """

    def __init__(
        self,
        environment: Path | None,
        folder: Path,
        *,
        babelfish: bool = False,
        installed: Path | None = None,
        **variables: str,
    ) -> None:
        self.environment, self.folder, self.babelfish, self.installed = environment, folder, babelfish, installed
        self._command = [sys.executable, "-m", "tests.support.babelfish"] if babelfish else [installed or ROWPOST]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROWPOST_")}
        self.variables = {
            **inherited,
            # a test that starts an embedded server by mistake must not use the server of the user
            "ROWPOST_DATA": str(folder / "data"),
            "PYTHONUNBUFFERED": "1",
            **({"ROWPOST_ENV": str(environment)} if environment else {}),
            **({"PYTHONPATH": str(Path(__file__).resolve().parents[1])} if babelfish else {}),
            **({"PYTHONPATH": ""} if installed else {}),
            **variables,
        }

    @property
    def engine(self) -> str:
        """Return the engine of the environment file: postgresql or sqlserver."""
        return "sqlserver" if "engine: sqlserver" in self.environment.read_text() else "postgresql"

    def with_environment(self, path: Path) -> "Program":
        """Return the same program with another environment file."""
        changed = Program(path, self.folder, babelfish=self.babelfish, installed=self.installed)
        changed.variables = {**self.variables, "ROWPOST_ENV": str(path)}
        return changed

    def __call__(self, *arguments: object, stdin: bytes | str = b"") -> Ended:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        options = {"env": self.variables, "cwd": self.folder, "timeout": TIMEOUT}
        if not self._is_forked:
            done = subprocess.run(
                [*self._command, *map(str, arguments)], input=given, capture_output=True, check=False, **options
            )
            return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())
        code, out, err = FORK_SERVER.call([ROWPOST, *arguments], stdin=given, **options)
        return Ended(code, out.decode(), err.decode())

    @property
    def _is_forked(self) -> bool:
        """Whether calls are forked. Another rowpost, and one whose modules come from somewhere else, is started as usual."""
        return not (
            self.babelfish or self.installed or self.variables.get("PYTHONPATH") != os.environ.get("PYTHONPATH")
        )

    @contextmanager
    def started_alone(self, command: list[object]) -> Iterator["Started"]:
        """Start a command in a process group of its own, which a signal may be sent to; kill it at the end of the block."""
        process = subprocess.Popen(
            [*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=self.variables, cwd=self.folder, start_new_session=True,
        )  # fmt: skip
        try:
            yield Started(process)
        finally:
            process.kill()
            process.communicate()

    @contextmanager
    def started(self, *arguments: object, **options: object) -> Iterator["Started"]:
        """Start a call, and kill it at the end of the block if it still runs."""
        start = FORK_SERVER.start if self._is_forked else subprocess.Popen
        process = start(
            [*self._command, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=options.get("stdout", subprocess.PIPE),
            stderr=options.get("stderr", subprocess.PIPE),
            env=self.variables,
            cwd=self.folder,
        )
        try:
            yield Started(process)
        finally:
            process.kill()
            process.communicate()


class Started:
    """A running call."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process

    def interrupt(self) -> None:
        """Send the signal of Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def ended(self) -> Ended:
        """Wait until the call has ended."""
        out, err = self.process.communicate(timeout=TIMEOUT)
        return Ended(self.process.returncode, (out or b"").decode(), err.decode())


def environment_file(folder: Path, engine: str = "postgresql", rest: str = QUEUES, name: str = "shop") -> Path:
    """Write an environment file that takes its URL from the variable SHOP_URL, and return its path."""
    path = folder / f"{name}.yml"
    features = "" if "features:" in rest else FEATURES
    path.write_text(f'environment: {name}\nengine: {engine}\nurl: "${{SHOP_URL}}"\n{features}{rest}', encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def program(deployed_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Return the program on a database of the embedded server, with its four queues deployed."""
    folder = tmp_path_factory.mktemp("program")
    return _deployed(Program(environment_file(folder), folder), "embedded", deployed_database)


@pytest.fixture(scope="module")
def rowpost(target, deployed_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Return the same for each engine."""
    engine = ENGINES[target.label]
    folder = tmp_path_factory.mktemp("program")
    label = "sqlserver" if engine == "sqlserver" else target.label
    return _deployed(
        Program(environment_file(folder, engine), folder, babelfish=target.babelfish), label, deployed_database
    )


def _deployed(program: Program, label: str, deployed_database: Callable[..., str]) -> Program:
    def deploy(url: str) -> None:
        program.variables["SHOP_URL"] = url
        assert program("apply").code == 0

    program.variables["SHOP_URL"] = deployed_database(label, "program", deploy)
    return program
