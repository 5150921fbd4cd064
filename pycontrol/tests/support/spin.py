"""Check the protocols in `models/` with SPIN: translate a model to C, compile it, and search all of its states.

    python -m tests.support.spin        # prints the table of models/README.md

Needs the programs spin and gcc.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.documents import ROOT

__all__ = ["CHECKS", "MODELS", "REFUTED", "Check", "Result", "missing_program", "row", "search"]

MODELS = ROOT / "models"
#: the deepest search is a tenth of this
MAX_DEPTH = 100_000
TIMEOUT_S = 120
_SAFETY = ("-DSAFETY", "-DNOCLAIM")
_UNREACHED = re.compile(r"^\t\S*?(\w+\.pml):(\d+), state \d+, \"(.*)\"$", re.MULTILINE)


@dataclass(frozen=True)
class Check:
    """One search of a model.

    Attributes:
        model: the file's name without its suffix.
        defines: what is defined for the preprocessor, for example a broken variant.
        live: check the model's formula under weak fairness; else assertions, deadlocks and where runs end.
    """

    model: str
    defines: tuple[str, ...] = ()
    live: bool = False

    @property
    def name(self) -> str:
        """The model, what is defined, and what is checked."""
        return " ".join((self.model, *self.defines, "liveness" if self.live else "safety"))


@dataclass(frozen=True)
class Result:
    """What a search found.

    Attributes:
        errors: 1 if SPIN found a violation, else 0.
        states: distinct states.
        depth: steps of the longest path.
        complete: whether the search ended by itself, without reaching a limit.
        unreached: statements of processes that no path reached, as "file:line statement"; ends of processes do not count.
        output: all that SPIN printed.
    """

    errors: int
    states: int
    depth: int
    complete: bool
    unreached: tuple[str, ...]
    output: str


def _both(model: str, *defines: str, faults: int | None = None) -> tuple[Check, Check]:
    """Return the check of safety with the model's number of faults, and that of liveness with `faults`."""
    return Check(model, defines), Check(model, defines + (() if faults is None else (f"FAULTS={faults}",)), live=True)


#: what must hold
CHECKS = (
    *_both("receive", faults=1),
    Check("cursor", ("FAULTS=1",)),
    Check("cursor", ("FAULTS=1",), live=True),
    *_both("spool"),
    *_both("saga"),
    *_both("saga", "PESSIMISTIC"),
    *_both("mover"),
    Check("mover", ("COUNT=1",)),
    *_both("two_phase"),
    Check("two_phase", ("RECOVERIES=2",)),
    *_both("outbox"),
    *_both("outbox", "PESSIMISTIC"),
    Check("lease", ("FAULTS=4",)),
    Check("lease", ("FAULTS=4",), live=True),
    *_both("slots"),
    *_both("schedule"),
)

#: plausible bugs, which SPIN must find
REFUTED = (
    Check("receive", ("FAULTS=1", "COUNT_IN_RECEIVING_TRANSACTION"), live=True),
    Check("receive", ("FAULTS=1", "MOVE_WITHOUT_RECEIVING")),
    Check("receive", ("FAULTS=1", "REMOVE_BEFORE_HANDLING")),
    Check("cursor", ("FAULTS=1", "NO_PERIODIC_SCAN"), live=True),
    Check("cursor", ("FAULTS=1", "SCAN_ABOVE_MARK"), live=True),
    Check("spool", ("ROW_VERSIONS_AS_OFFSETS",)),
    Check("spool", ("DROP_WHEN_LOGGED",)),
    Check("spool", ("READ_WITHOUT_OWNER",)),
    Check("spool", ("MOVED_IN_TWO_TRANSACTIONS",)),
    Check("saga", ("BLIND_UPDATE",)),
    Check("saga", ("UPDATE_BY_CORRELATION_VALUE",)),
    Check("saga", ("NO_UNIQUE_INDEX",)),
    Check("saga", ("COMMIT_STATE_FIRST",)),
    Check("mover", ("NO_ELECTION",)),
    Check("mover", ("DELETED_IN_FIRST_TRANSACTION",), live=True),
    Check("mover", ("ELECTED_BY_ROW",)),
    Check("two_phase", ("FORGET_AFTER_FIRST_COMMIT",)),
    Check("two_phase", ("DECISIONS_READ_FIRST",)),
    Check("two_phase", ("FORGET_WHAT_WAS_READ_LAST",)),
    Check("two_phase", ("NO_LOCK",)),
    Check("outbox", ("STORED_IN_SECOND_TRANSACTION",)),
    Check("outbox", ("NO_DISPATCH_RECORD",)),
    Check("outbox", ("FORGET_AFTER_REPEAT",)),
    Check("lease", ("COMMIT_BEFORE_FENCE",)),
    Check("lease", ("FENCED_BY_ROW",)),
    Check("lease", ("COUNTED_AT_DEATH",)),
    Check("lease", ("EXPIRY_UNSEEN",)),
    Check("slots", ("FAULTS=0", "COUNTED_TOGETHER")),
    Check("slots", ("FAULTS=0", "NO_QUARANTINE"), live=True),
    Check("slots", ("FAULTS=0", "TRIED_TOGETHER"), live=True),
    Check("slots", ("FAULTS=0", "FORGOTTEN_WHEN_TAKEN"), live=True),
    Check("schedule", ("BLIND_ADVANCE",)),
    Check("schedule", ("SENT_AFTER_COMMIT",)),
    Check("schedule", ("CLOCK_DECIDES",)),
)


def missing_program() -> str | None:
    """Return the name of a program that the checks need and this machine does not have; None if there is none."""
    return next((name for name in ("spin", "gcc") if shutil.which(name) is None), None)


def search(each: Check, folder: Path, *, include: str | None = None) -> Result:
    """Search a model; with `include`, follow the recorded run in that file of the folder.

    Raises:
        AssertionError: a program failed or printed something unexpected.
    """
    # spin runs the preprocessor in a shell, which removes the outer quotes
    defines = [f"-D{name}" for name in each.defines] + (
        [] if include is None else [f"-DTRACE='\"{folder / include}\"'"]
    )
    _run(folder, ["spin", "-a", *defines, MODELS / f"{each.model}.pml"])
    _run(folder, ["gcc", "-w", "-o", "pan", *_flags(each, include), "pan.c"])
    output = _run(folder, ["./pan", f"-m{MAX_DEPTH}", *(["-a", "-f"] if each.live else [])])
    return _read(output)


def _flags(each: Check, include: str | None) -> Sequence[str]:
    if each.live:
        return ["-DNFAIR=4"]
    # the claim of a model that follows a record ends each path that differs from it
    return _SAFETY if include is None else _SAFETY[:1]


def _run(folder: Path, command: Sequence[str | Path]) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} failed: {done.stdout}{done.stderr}")
    return done.stdout


def _read(output: str) -> Result:
    found = re.search(r"depth reached (\d+), errors: (\d+)\s+(\d+) states, stored", output)
    if found is None:
        raise AssertionError(f"pan printed no result: {output}")
    depth, errors, states = map(int, found.groups())
    incomplete = ("Search not completed", "max search depth too small", "out of memory", "hash factor", "truncat")
    unreached = tuple(
        f"{file}:{line} {statement}" for file, line, statement in _UNREACHED.findall(output) if statement != "-end-"
    )
    return Result(errors, states, depth, not any(each in output for each in incomplete), unreached, output)


def row(each: Check, result: Result) -> str:
    """Return the row of a check for the table in models/README.md."""
    kind, found = ("liveness" if each.live else "safety"), ("holds" if result.errors == 0 else "refuted")
    defines = ", ".join(f"`{name}`" for name in each.defines)
    return f"| {each.model} | {defines} | {kind} | {found} | {result.states:,} | {result.depth:,} |"


def _rows() -> Iterator[str]:
    yield "| Model | Defined | Checked | Result | States | Depth |\n|---|---|---|---|---|---|"
    for each in (*CHECKS, *REFUTED):
        with tempfile.TemporaryDirectory() as folder:
            yield row(each, search(each, Path(folder)))


if __name__ == "__main__":
    for line in _rows():
        sys.stdout.write(f"{line}\n")
