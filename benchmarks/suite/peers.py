"""Install the peers into benchmarks/.peers, and run each through a small program in peers/.

    program URL install             creates its tables
    program URL fill WORK COUNT     stores jobs of that kind, not measured
    program URL send COUNT BATCH    prints the seconds; so does `fetch`, if the peer has such a call
    program URL work                prints "ready"; for each line it drains the queue and prints when the last handler ended
    program URL serve               prints "ready" and waits for jobs as in production; for "COUNT GAP" it sends jobs to
                                    itself and prints the seconds until each handler as JSON

All times are those of the machine's monotonic clock. pgmq has no workers; calls.py calls its SQL functions directly.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import venv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from select import select

from rich.console import Console

from benchmarks.suite.server import Place

__all__ = ["PEERS", "PYTHON_PEERS", "Conversation", "Peer", "PeerFailed", "install", "pgmq_script", "versions"]

PROGRAMS = Path(__file__).parents[1] / "peers"
HOME = Path(__file__).parents[1] / ".peers"
BIN = HOME / "bin"
PGMQ = "ROWPOST_BENCH_PGMQ"
ANSWER_TIMEOUT_S = 120.0
SPLIT = "at least once: INSERT and follow-up in one transaction, the job's end in another"


class PeerFailed(Exception):
    """A peer cannot be installed, or its program failed."""


@dataclass(frozen=True)
class Peer:
    """A system that rowpost is compared with.

    Attributes:
        tables: truncated before each round.
        left: a query that counts the remaining jobs.
        followed: a query that counts the follow-up jobs.
        does: its guarantees in the workload endpoint.
        serves: its notification and guarantees in the workload latency.
    """

    name: str
    program: str
    tables: str
    left: str
    followed: str
    does: str
    serves: str

    def run(self, place: Place, *arguments: str) -> str:
        """Run one step, and return its output. Raises PeerFailed."""
        command = [*self._command(), place.url, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ANSWER_TIMEOUT_S, env=_environment()
        )
        if done.returncode:
            raise PeerFailed(f"{self.name} {' '.join(arguments)}: {_reason(done.stderr)}")
        return done.stdout

    @property
    def table(self) -> str:
        """The table of its jobs."""
        return self.tables.partition(",")[0].partition(" ")[0]

    @contextmanager
    def talk(self, place: Place, verb: str) -> Iterator[Conversation]:
        """Start its program, and wait until it is ready for commands. Raises PeerFailed."""
        process = subprocess.Popen(
            [*self._command(), place.url, verb], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, bufsize=1, env=_environment(),
        )  # fmt: skip
        try:
            conversation = Conversation(self.name, process)
            if conversation.hear() != "ready":
                raise PeerFailed(f"{self.name} {verb} did not start")
            yield conversation
        finally:
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(3.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()

    def _command(self) -> list[str | Path]:
        runtime = BIN / ("node" if self.program.endswith(".mjs") else "python")
        return [runtime, PROGRAMS / self.program]


class Conversation:
    """Exchange lines with the program of a peer."""

    def __init__(self, name: str, process: subprocess.Popen) -> None:
        self._name, self._process = name, process

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, line: str) -> None:
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        ready, _, _ = select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise PeerFailed(
                f"{self._name} did not answer within {ANSWER_TIMEOUT_S:.0f} s"
                if not ready
                else f"{self._name} has exited"
            )
        return line.strip()

    def ask(self, line: str):
        """Send a line, and return the answer parsed as JSON."""
        self.say(line)
        return json.loads(self.hear())


PEERS = (
    Peer(
        "pgqueuer", "pgqueuer_jobs.py", "pgqueuer, pgqueuer_log, pgqueuer_statistics",
        "SELECT COUNT(*) FROM pgqueuer WHERE entrypoint NOT IN ('follow', 'send')",
        "SELECT COUNT(*) FROM pgqueuer WHERE entrypoint = 'follow'",
        SPLIT, "LISTEN/NOTIFY by a trigger, at least once",
    ),
    Peer(
        "procrastinate", "procrastinate_jobs.py", "procrastinate_jobs CASCADE",
        "SELECT COUNT(*) FROM procrastinate_jobs WHERE queue_name = 'work'",
        "SELECT COUNT(*) FROM procrastinate_jobs WHERE queue_name = 'follow'",
        SPLIT, "LISTEN/NOTIFY by a trigger, at least once",
    ),
    Peer(
        "pg-boss", "pgboss_jobs.mjs", "pgboss.job",
        "SELECT COUNT(*) FROM pgboss.job WHERE name IN ('insert', 'no-op', 'timed') AND state < 'completed'",
        "SELECT COUNT(*) FROM pgboss.job WHERE name = 'follow'",
        SPLIT + ", for 100 jobs", "LISTEN/NOTIFY (its option `notify`), at least once",
    ),
    Peer(
        "graphile-worker", "graphile_jobs.mjs", "graphile_worker._private_jobs",
        "SELECT COUNT(*) FROM graphile_worker.jobs WHERE task_identifier NOT IN ('follow', 'send')",
        "SELECT COUNT(*) FROM graphile_worker.jobs WHERE task_identifier = 'follow'",
        SPLIT + ", gathered; up to 500 jobs wait in memory, after a crash for four hours",
        "LISTEN/NOTIFY by a trigger, at least once",
    ),
)  # fmt: skip
PYTHON_PEERS = ("pgqueuer", "procrastinate")


def _environment() -> dict[str, str]:
    """Return the environment for a peer: without PYTHONPATH, and with the peers' programs on the PATH."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "ROWPOST_BENCH_PEERS": str(HOME), "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}


def install(tell: Console) -> dict[str, str]:
    """Install the peers if their versions changed. Return the reason for each one that could not be installed, by name."""
    missing = {}
    try:
        if _changed("requirements.txt"):
            tell.print(f"installing peers from PyPI into {HOME} ...")
            venv.create(HOME, with_pip=True, clear=True)
            pip = [BIN / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _done([*pip, "--requirement", PROGRAMS / "requirements.txt"])
            shutil.copy(PROGRAMS / "requirements.txt", HOME)
    except PeerFailed as error:
        return {peer.name: str(error) for peer in PEERS}
    try:
        if _changed("package.json"):
            tell.print(f"installing peers from npm into {HOME} ...")
            for name in ("package.json", "package-lock.json"):
                (HOME / name).unlink(missing_ok=True)
            packages = json.loads((PROGRAMS / "package.json").read_text())["dependencies"]
            wanted = [f"{name}@{versions}" for name, versions in packages.items()]
            _done([BIN / "npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", HOME, *wanted])
            shutil.copy(PROGRAMS / "package.json", HOME)
    except PeerFailed as error:
        missing |= {peer.name: str(error) for peer in PEERS if peer.program.endswith(".mjs")}
    return missing


def _changed(name: str) -> bool:
    mine, theirs = PROGRAMS / name, HOME / name
    return not theirs.exists() or mine.read_text() != theirs.read_text()


def _done(command: Iterable[str | Path]) -> None:
    done = subprocess.run([*command], capture_output=True, text=True, check=False, env=_environment(), cwd=HOME)
    if done.returncode:
        raise PeerFailed(_reason(done.stderr or done.stdout))


def _reason(said: str) -> str:
    """Return the line of an error output that most likely names the error."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [
        line for line in lines if re.search(r"error\b", line, re.IGNORECASE) and not line.startswith(("at ", "File "))
    ]
    return (telling or lines or ["no error output"])[0 if telling else -1][:300]


def versions() -> dict[str, str]:
    """Return the installed versions by name."""
    found = {}
    for name in ("pgmq", "pgqueuer", "procrastinate"):
        for folder in HOME.glob(f"lib/python*/site-packages/{name}-*.dist-info"):
            found[name] = folder.name.removesuffix(".dist-info").rpartition("-")[2]
    for name in ("pg-boss", "graphile-worker"):
        package = HOME / "node_modules" / name / "package.json"
        if package.exists():
            found[name] = json.loads(package.read_text())["version"]
    with suppress(PeerFailed):
        found["pgmq's SQL"] = _pgmq()[1]
    return found


def pgmq_script() -> str:
    """Return pgmq's SQL functions from the file in ROWPOST_BENCH_PGMQ, or from the PyPI package pgmq.

    Raises:
        PeerFailed: neither exists. The message says what to do.
    """
    return _pgmq()[0]


def _pgmq() -> tuple[str, str]:
    named = os.environ.get(PGMQ)
    found = [Path(named)] if named else [*HOME.glob("lib/python*/site-packages/pgmq/sql/pgmq.sql")]
    help_ = f"set {PGMQ} to the path of pgmq.sql, from https://github.com/pgmq/pgmq"
    if not found:
        raise PeerFailed(f"the package pgmq of PyPI is not installed: {help_}")
    try:
        script = found[0].read_text(encoding="utf-8")
    except OSError as error:
        raise PeerFailed(f"pgmq's SQL cannot be read, {error}: {help_}") from error
    pinned = found[0].with_name("VERSION")
    version = pinned.read_text().strip() if pinned.exists() else re.sub(r".*/", "", str(found[0]))
    return script, version
