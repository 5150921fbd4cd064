"""Define rounds, lines and targets, and compute figures from rounds.

Contenders alternate round by round, because the speed of a machine changes over time. A line's figure is the median of its
rounds. Two lines are compared round by round, and their ratio is the median of the rounds' ratios.

>>> ours, theirs = Line("send", "rowpost", (90.0, 200.0, 100.0)), Line("send", "peer", (30.0, 100.0, 50.0))
>>> ours.figure, ratio(ours, theirs)
(100.0, 2.0)
"""

from __future__ import annotations

import math
import statistics
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

__all__ = [
    "OURS",
    "Comparison",
    "Contender",
    "Line",
    "Lines",
    "Paced",
    "Round",
    "Scale",
    "Target",
    "median_interval",
    "percentile",
    "ratio",
    "take_turns",
]

OURS = "rowpost"
TWICE = 2.0  # from this ratio on, a miss is shown as a multiple and not in percent
LEAST_RATIO = 0.97  # a smaller median ratio of two commits is "slower", unless its interval reaches 1
MORE_IS_BETTER = {"s": False, "messages/s": True, "ms": False}


@dataclass(frozen=True)
class Scale:
    """How much is measured. `seconds` is the approximate duration of one round; `size` multiplies large numbers of rows."""

    rounds: int = 5
    seconds: float = 0.6
    size: float = 1.0

    def rows(self, number: int, least: int = 100) -> int:
        return max(least, int(number * self.size))


@dataclass(frozen=True)
class Round:
    """The figure of one round, and further values by name."""

    figure: float
    more: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """The result of one contender in one case.

    Attributes:
        does: the guarantees behind the figure.
        more: medians of further values.
        error: why there is no figure.
    """

    case: str
    name: str
    rounds: tuple[float, ...] = ()
    unit: str = "messages/s"
    does: str = ""
    more: dict[str, float] = field(default_factory=dict)
    error: str = ""

    @property
    def figure(self) -> float | None:
        return statistics.median(self.rounds) if self.rounds else None


@dataclass(frozen=True)
class Target:
    """A figure of "What it must show". If `at_most` is true, the figure must be at most `wanted`, else at least.

    >>> Target("ratio to pgmq", 1.2, 1.5).verdict, Target("times the CPU", 1.2, 1.5, at_most=True).verdict
    ('short by 20 %', 'PASS')
    """

    claim: str
    figure: float | None
    wanted: float
    at_most: bool = False
    unit: str = "times"

    @property
    def reached(self) -> bool:
        if self.figure is None:
            return False
        return self.figure <= self.wanted if self.at_most else self.figure >= self.wanted

    @property
    def verdict(self) -> str:
        if self.figure is None:
            return "not measured"
        if self.reached:
            return "PASS"
        share = self.figure / self.wanted
        if share >= TWICE:
            return f"{share:.1f} times too much"
        return f"short by {abs(share - 1) * 100:.0f} %"


class Lines:
    """The lines of one workload by case and name."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = {(line.case, line.name): line for line in lines}

    def __iter__(self):
        return iter(self._lines.values())

    def get(self, case: str, name: str = OURS) -> Line | None:
        line = self._lines.get((case, name))
        return line if line is not None and line.rounds else None

    def figure(self, case: str, name: str = OURS) -> float | None:
        line = self.get(case, name)
        return None if line is None else line.figure

    def more(self, case: str, what: str, name: str = OURS) -> float | None:
        line = self.get(case, name)
        return None if line is None else line.more.get(what)

    def ratio(self, case: str, other: str, name: str = OURS) -> float | None:
        """Return the ratio to another contender in the same case."""
        return ratio(self.get(case, name), self.get(case, other))

    def ratio_to_best(self, case: str, others: Iterable[str], name: str = OURS) -> float | None:
        """Return the ratio to the fastest of the others in each round."""
        rivals = [line.rounds for line in (self.get(case, other) for other in others) if line is not None]
        ours = self.get(case, name)
        if ours is None or not rivals:
            return None
        rounds = min(len(ours.rounds), *(len(rival) for rival in rivals))
        return statistics.median(ours.rounds[n] / max(rival[n] for rival in rivals) for n in range(rounds))


def ratio(one: Line | None, other: Line | None) -> float | None:
    """Return the median of the rounds' ratios; None if a line has no figure."""
    if one is None or other is None or not one.rounds or not other.rounds:
        return None
    return statistics.median(a / b for a, b in zip(one.rounds, other.rounds, strict=False))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5), percentile(range(1, 101), 0.99)
    (2.0, 99)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median_interval(values: Iterable[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return a confidence interval of the median, or None if there are too few values (below 6 for 95 %).

    The ends are two of the values themselves: the k-th smallest and the k-th largest. The number of values below the
    true median is binomially distributed with p = 1/2, and k is the greatest rank at which both tails together have at
    most the probability `1 - confidence`. This assumes independent values, but no shape of their distribution.

    >>> median_interval(range(1, 16)), median_interval(range(5))
    ((4, 12), None)
    """
    ordered = sorted(values)
    count, rank, tail = len(ordered), 0, 0.0
    while (tail := tail + math.comb(count, rank) / 2**count) <= (1 - confidence) / 2:
        rank += 1
    return (ordered[rank - 1], ordered[-rank]) if rank else None


@dataclass(frozen=True)
class Comparison:
    """One figure of two commits, measured in pairs of rounds.

    Attributes:
        ratios: One for each pair, above 1 if the new commit is better: new/old for rates, old/new for durations.
        verdict: "slower" if the median ratio is below 0.97 and its 95 % interval ends below 1, else "ok". Without an
            interval it is "too few pairs". If a round failed, it is "not measured".
        error: Why a round failed.

    >>> Comparison("send", "rowpost", "ms", (1.0,) * 6, (2.0,) * 6).ratio
    0.5
    """

    case: str
    name: str
    unit: str
    old: tuple[float, ...] = ()
    new: tuple[float, ...] = ()
    error: str = ""

    @property
    def ratios(self) -> tuple[float, ...]:
        better, worse = (self.new, self.old) if MORE_IS_BETTER[self.unit] else (self.old, self.new)
        return tuple(a / b for a, b in zip(better, worse, strict=True))

    @property
    def ratio(self) -> float | None:
        return None if self.error else statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.error else median_interval(self.ratios)

    @property
    def verdict(self) -> str:
        if self.error:
            return "not measured"
        if self.interval is None:
            return "too few pairs"
        return "ok" if self.ratio >= LEAST_RATIO or self.interval[1] >= 1 else "slower"

    @property
    def passed(self) -> bool:
        return self.verdict in ("ok", "too few pairs")


@dataclass
class Paced:
    """Compute the number of messages for a round of `seconds` from the rate of the previous round.

    The first `count` is a guess. It stays between `least` and `most`.

    >>> paced = Paced(1000, 0.5, least=10)
    >>> paced.count, paced.note(300.0), paced.count
    (1000, 300.0, 150)
    """

    count: int
    seconds: float
    least: int = 1
    most: int = 10**9

    def note(self, rate: float) -> float:
        """Store the rate of a round, and return it."""
        self.count = max(self.least, min(self.most, int(rate * self.seconds)))
        return rate


@dataclass
class Contender:
    """A participant of a case. `measure` runs one round. If `warm` is true, a warm-up round comes first."""

    name: str
    measure: Callable[[], float | Round]
    does: str = ""
    unit: str = "messages/s"
    warm: bool = True


def take_turns(case: str, contenders: Sequence[Contender], rounds: int) -> list[Line]:
    """Measure alternating rounds, and return a line for each contender.

    If a contender fails, its line has the error, and the others continue. The order rotates from round to round, so that no
    contender always follows the same one.
    """
    found: dict[str, list[Round]] = {each.name: [] for each in contenders}
    errors: dict[str, str] = {}

    def measure(each: Contender) -> Round | None:
        if each.name in errors:
            return None
        try:
            result = each.measure()
        except Exception as error:  # noqa: BLE001 the other contenders are still measured
            traceback.print_exc()
            errors[each.name] = f"{type(error).__name__}: {error}"
            return None
        return result if isinstance(result, Round) else Round(float(result))

    for each in contenders:
        if each.warm:
            measure(each)
    for number in range(rounds):
        shift = number % len(contenders)
        for each in (*contenders[shift:], *contenders[:shift]):
            result = measure(each)
            if result is not None:
                found[each.name].append(result)
    lines = [_line(case, each, found[each.name], errors.get(each.name, "")) for each in contenders]
    for line in lines:
        said = f"{line.figure:,.5g} {line.unit}" if line.rounds else line.error
        print(f"          {line.case} | {line.name}: {said}", file=sys.stderr, flush=True)
    return lines


def _line(case: str, contender: Contender, rounds: list[Round], error: str) -> Line:
    if error:
        return Line(case, contender.name, (), contender.unit, contender.does, error=error)
    names = rounds[0].more if rounds else {}
    more = {name: statistics.median(each.more[name] for each in rounds) for name in names}
    return Line(case, contender.name, tuple(each.figure for each in rounds), contender.unit, contender.does, more)
