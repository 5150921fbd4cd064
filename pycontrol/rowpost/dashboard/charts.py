"""Small line charts as paths of SVG: plain geometry, so that pages need no inline style and no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rowpost.dashboard.monitor import Point, rates_between

__all__ = ["Chart", "ages", "chart", "depths", "rates", "workers"]

MOST_POINTS = 90


@dataclass(frozen=True, slots=True)
class Chart:
    """The paths of a chart in a box of `width` x `height`, and its scale."""

    line: str
    area: str
    width: int
    height: int
    highest: float
    last: float


def chart(values: Sequence[float | None], width: int = 120, height: int = 28) -> Chart | None:
    """Return the chart of values over time; None if there are fewer than two.

    >>> chart([0, 2], 10, 10).line
    'M0.0 9.0L10.0 1.0'
    """
    known = [(number, value) for number, value in enumerate(values) if value is not None]
    if len(known) < 2:  # noqa: PLR2004 -- a line has two ends
        return None
    step = -(-len(known) // MOST_POINTS)
    shown = [*known[:-1:step], known[-1]]
    highest = max(value for _, value in known)
    scale = (height - 2) / (highest or 1)
    first, span = shown[0][0], shown[-1][0] - shown[0][0]
    places = [((number - first) / span * width, height - 1 - value * scale) for number, value in shown]
    line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    return Chart(line, f"{line}L{width} {height}L0 {height}Z", width, height, highest, shown[-1][1])


def depths(points: Sequence[Point]) -> list[float | None]:
    """Return how many messages waited at each measurement."""
    return [point.metrics.depth for point in points]


def ages(points: Sequence[Point]) -> list[float | None]:
    """Return the age of the oldest message at each measurement, in seconds; 0 if none waited."""
    return [(point.metrics.oldest_age_ms or 0) / 1000 for point in points]


def workers(points: Sequence[Point]) -> list[float | None]:
    """Return how many workers all hosts had at each measurement."""
    return [point.workers for point in points]


def rates(points: Sequence[Point]) -> tuple[list[float | None], list[float | None]]:
    """Return the messages in and out per second between measurements.

    Each is taken over three of them, as counters come late.
    """
    found = [rates_between(points[max(0, number - 3)], point) for number, point in enumerate(points) if number]
    return [each for each, _ in found], [each for _, each in found]
