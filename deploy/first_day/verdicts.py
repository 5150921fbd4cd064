"""What a step says at its end: passed, failed, proved nothing, or not possible here, with the reason and what was seen.

A step is a function of the `Place`. It returns the lines of what it saw, or raises `Failed`, `ProvedNothing` or `NotPossible`. Any other error
means that it failed. No error of a step ends the run.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from deploy.first_day.ended import Failed, NotPossible, ProvedNothing
from deploy.first_day.scratch import Place

__all__ = ["FAILED", "NOT_POSSIBLE", "PASSED", "PROVED_NOTHING", "Step", "Verdict", "exit_code", "judge"]

PASSED, FAILED, PROVED_NOTHING, NOT_POSSIBLE = "passed", "failed", "proved nothing", "not possible here"


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        babelfish: what Babelfish, the test engine, does not have, if the step cannot pass there.
        both: whether it runs with READ_COMMITTED_SNAPSHOT off and on, because its result depends on that.
    """

    name: str
    title: str
    run: Callable[[Place], Sequence[str]]
    babelfish: str = ""
    both: bool = False


@dataclass(frozen=True)
class Verdict:
    """How a step ended. `seen` are lines for people; `seconds` is how long it took; `rcsi` is READ_COMMITTED_SNAPSHOT, if the run has set it."""

    name: str
    title: str
    state: str
    reason: str = ""
    seen: tuple[str, ...] = ()
    seconds: float = 0.0
    rcsi: str = ""

    @property
    def label(self) -> str:
        """The name of the step, with the setting under which it ran."""
        return f"{self.name}, RCSI {self.rcsi}" if self.rcsi else self.name


def judge(step: Step, place: Place, clock: Callable[[], float] = time.monotonic, rcsi: str = "") -> Verdict:
    """Run a step, with READ_COMMITTED_SNAPSHOT "on" or "off" if `rcsi` says so. Its errors, the unexpected ones included, become its verdict."""
    started = clock()
    state, reason, seen = PASSED, "", ()
    try:
        place.set_rcsi(rcsi)
        seen = tuple(step.run(place))
    except NotPossible as ended:
        state, reason, seen = NOT_POSSIBLE, ended.reason, ended.seen
    except ProvedNothing as ended:
        state, reason, seen = PROVED_NOTHING, ended.reason, ended.seen
    except Failed as ended:
        state, reason, seen = FAILED, ended.reason, ended.seen
        if place.babelfish and step.babelfish:
            state, reason, seen = NOT_POSSIBLE, f"Babelfish {step.babelfish}", (f"seen: {reason}", *seen)
    except Exception as error:  # noqa: BLE001 -- one step that fails does not end the run
        where = traceback.extract_tb(error.__traceback__)[-1]
        state, reason = (
            FAILED,
            f"{type(error).__name__}: {error} (at {where.name}, line {where.lineno} of {where.filename.rpartition('/')[2]})",
        )
    hide = place.secrets.hide
    seconds = round(clock() - started, 1)
    return Verdict(step.name, step.title, state, hide(reason), tuple(map(hide, seen)), seconds, rcsi)


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return 1 if a step failed, else 0: a step that is not possible or proved nothing is no failure."""
    return int(any(verdict.state == FAILED for verdict in verdicts))
