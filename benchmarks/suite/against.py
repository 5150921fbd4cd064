"""Compare this checkout with another commit of the project: `python -m benchmarks --against COMMIT`.

The commit is checked out into a temporary git worktree, which is removed at the end. Each side measures rowpost's own
lines of a workload in a process of its own, with its own code, its own `benchmarks` package and its own database
(`side.py`). Both sides use one embedded server, with the configuration of this checkout. A difference of the embedded
server's configuration is therefore not measured.

The sides take turns for each figure: old, new; new, old; and so on. Only one side runs at a time. After `PAIRS_A_START`
pairs, both processes and both databases are replaced, because some differences between two processes last as long as the
processes do (for example the layout of memory and of tables).

Each pair gives a ratio, above 1 if the new commit is better. A figure's ratio is the median of these ratios. Its 95 %
interval consists of order statistics by the binomial distribution (`figures.median_interval`): no resampling, no random
seed, and no assumption about the shape of the noise.

Figures are matched by workload, case and name. A figure that only the old commit has counts as "not measured", so that a
renamed figure cannot disappear from the comparison. A figure that only the new commit has is not compared.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.suite import report
from benchmarks.suite.figures import Comparison, Scale
from benchmarks.suite.peers import Conversation
from benchmarks.suite.server import Server

__all__ = [
    "COMPARED",
    "NEW",
    "OLD",
    "PAIRS",
    "CommitNotFound",
    "Commits",
    "Pairs",
    "find_commits",
    "measure_pairs",
    "run",
    "started_side",
]

ROOT = Path(__file__).parents[2]
SIDE = Path(__file__).with_name("side.py")
OLD, NEW = "old", "new"
COMPARED = ("calls", "endpoint", "latency", "ramp", "scaling")
PAIRS = 15
PAIRS_A_START = 5
STOP_SECONDS = 60.0  # `rowpost run` has up to 40 seconds to stop


class CommitNotFound(Exception):
    """The commit cannot be compared with. The message says why, and what to do."""


@dataclass(frozen=True)
class Commits:
    """The two sides. `old` is an abbreviated hash, `new` also says if files were changed since that commit."""

    old: str
    new: str


def find_commits(commit: str) -> Commits:
    """Find the commit in this checkout's repository.

    Raises:
        CommitNotFound: git is not installed, this is no git checkout, or it does not have the commit.
    """
    new = _git("describe", "--always", "--dirty", "--exclude=*")
    if new.returncode:
        raise CommitNotFound(
            f"cannot compare with {commit}: {ROOT} is not a git checkout ({_last_line(new)}); run this in a clone"
        )
    old = _git("rev-parse", "--short", "--verify", "--end-of-options", f"{commit}^{{commit}}")
    if old.returncode:
        raise CommitNotFound(
            f"cannot compare with {commit}: the repository has no such commit ({_last_line(old)}); "
            "check the name, or run `git fetch`, in a shallow clone `git fetch --unshallow`"
        )
    return Commits(old.stdout.strip(), new.stdout.strip())


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check the commit out into a temporary worktree, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="rowpost-against-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / commit
        try:
            added = _git("worktree", "add", "--detach", str(path), commit)
            if added.returncode:
                raise CommitNotFound(f"cannot check out {commit} into {path}: {_last_line(added)}")
            yield path
        finally:
            # twice: git locks a worktree while it is being made
            _git("worktree", "remove", "--force", "--force", str(path))


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    # in a session of its own: Ctrl-C must not stop git while it removes the worktree
    try:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, start_new_session=True
        )
    except FileNotFoundError as error:
        raise CommitNotFound("git is not installed, and a comparison needs it: apt install git") from error


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or ["git printed no reason"])[-1]


def run(
    commits: Commits, chosen: Sequence[str], pairs: int, scale: Scale, output: Path, tell: Console
) -> dict[str, Any]:
    """Compare the workloads one after the other, and save each section. Return the sections by the workload's name."""
    sections = {}
    with ExitStack() as stack:
        old = stack.enter_context(checked_out(commits.old))
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="rowpost-bench-", ignore_cleanup_errors=True))
        )
        server = Server(folder)
        stack.callback(server.stop)
        for name in chosen:
            tell.print(f"{time.strftime('%H:%M:%S')}  {name}")
            about = {**report.circumstances(server, pairs, {}), "old": commits.old, "new": commits.new}
            started, measured, error = time.monotonic(), Pairs(tell), ""
            try:
                roots = {OLD: old, NEW: ROOT}
                measure_pairs(lambda side, name=name: _started(side, roots[side], folder, name, scale), pairs, measured)  # noqa: B023
            except Exception as failure:  # noqa: BLE001 the other workloads are still compared
                error = f"{type(failure).__name__}: {failure}"
                tell.print(f"[red]{name} failed[/]: {error}")
            sections[name] = report.comparison(measured.comparisons(), about, time.monotonic() - started, error)
            found = {**report.load(output, report.against_file(commits.old)), **sections}
            report.save_comparison(output, commits.old, {each: found[each] for each in COMPARED if each in found})
    return sections


def measure_pairs(start: Callable[[str], AbstractContextManager[Conversation]], pairs: int, measured: Pairs) -> None:
    """Measure one workload in pairs. `start` starts a side's process, and stops it when the block ends."""
    for first in range(0, pairs, PAIRS_A_START):
        with ExitStack() as stack:
            # one after the other: a side that starts would disturb one that already measures
            conversations, events = {}, {}
            for side in measured.order(first // PAIRS_A_START):
                conversations[side] = stack.enter_context(start(side))
                events[side] = json.loads(conversations[side].hear())
            measured.talk(conversations, events, range(first, min(pairs, first + PAIRS_A_START)))


def _started(side: str, root: Path, folder: Path, workload: str, scale: Scale) -> AbstractContextManager[Conversation]:
    return started_side(side, root, str(SIDE), str(root), str(folder), side, workload, json.dumps(asdict(scale)))


@contextmanager
def started_side(side: str, root: Path, *command: str) -> Iterator[Conversation]:
    """Start one side's process, with the code of the checkout `root`. `command` are the arguments of Python."""
    process = subprocess.Popen(
        # -P: the folder of side.py must not be on the path, its modules are those of the new checkout
        [sys.executable, "-P", *command],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "pycontrol"), str(root)))},
        start_new_session=True,  # Ctrl-C reaches the driver only, which closes the connection; the side then stops in order
    )  # fmt: skip
    try:
        yield Conversation(f"the {side} side", process)
    finally:
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()


@dataclass
class _Figure:
    unit: str
    rounds: dict[str, list[float]] = field(default_factory=lambda: {OLD: [], NEW: []})
    error: str = ""


class Pairs:
    """The paired rounds of one workload, collected from two conversations."""

    def __init__(self, tell: Console) -> None:
        self._tell = tell
        self._figures: dict[tuple[str, str], _Figure] = {}

    @staticmethod
    def order(number: int) -> tuple[str, str]:
        """Return which side comes first in the pair of this number, counted from 0."""
        return (NEW, OLD) if number % 2 else (OLD, NEW)

    def comparisons(self) -> list[Comparison]:
        """Return a comparison for each figure that the old side has."""
        return [
            Comparison(case, name, each.unit, tuple(each.rounds[OLD]), tuple(each.rounds[NEW]), each.error)
            if not each.error
            else Comparison(case, name, each.unit, error=each.error)
            for (case, name), each in self._figures.items()
        ]

    def talk(self, conversations: dict[str, Conversation], events: dict[str, dict[str, Any]], numbers: range) -> None:
        """Answer both sides' events until both are done. `numbers` are those of the pairs to measure.

        Raises:
            RuntimeError: A side failed, or the sides do not measure the same cases in the same order.
        """
        while True:
            for side, event in events.items():
                if event["event"] == "error":
                    raise RuntimeError(f"the {side} side failed: {event['error']}")
            told = {(event["event"], event.get("case")) for event in events.values()}
            if len(told) > 1:
                raise RuntimeError(f"the sides do not measure the same cases in the same order: {events}")
            ((kind, case),) = told
            answer: dict[str, Any] = {"next": True}
            if kind == "done":
                return
            if kind == "case":
                self._measure(conversations, case, {side: event["units"] for side, event in events.items()}, numbers)
            else:
                answer = {"gap": max(event["gap"] for event in events.values())}
            events = {side: conversations[side].ask(json.dumps(answer)) for side in conversations}

    def _measure(
        self, conversations: dict[str, Conversation], case: str, units: dict[str, dict[str, str]], numbers: range
    ) -> None:
        for name in units[NEW].keys() - units[OLD].keys():
            self._tell.print(f"          {case} | {name}: not compared, because only the new side has it")
        figures = {name: self._figures.setdefault((case, name), _Figure(unit)) for name, unit in units[OLD].items()}
        for name, figure in figures.items():
            if units[NEW].get(name) != figure.unit:
                figure.error = "the new side does not have this figure in this unit"
        for number in numbers:
            for name, figure in figures.items():
                for side in self.order(number):
                    if not figure.error:
                        answer = conversations[side].ask(json.dumps({"measure": name}))
                        figure.rounds[side] += [answer["figure"]] if "figure" in answer else []
                        figure.error = f"{side} side: {answer['error']}" if "error" in answer else ""
