"""Draw a chart of one number over time with block characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["draw_chart", "resample"]

EIGHTHS = " ▁▂▃▄▅▆▇█"


def resample(values: Sequence[float], width: int) -> list[float]:
    """Reduce values to at most `width`. Each result is the maximum of an equal span.

    >>> resample([1, 2, 3, 4, 4, 1], 3)
    [2, 4, 4]
    """
    if len(values) <= width:
        return list(values)
    edges = [len(values) * column // width for column in range(width + 1)]
    return [max(values[start:end]) for start, end in pairwise(edges)]


def draw_chart(values: Sequence[float], width: int, height: int, top: float) -> list[str]:
    """Draw a chart and return its lines from top to bottom. `top` is the value at the upper edge.

    >>> for line in draw_chart([0, 1, 2, 2], width=4, height=2, top=2):
    ...     print(line)
      ██
     ███
    """
    columns = [round(value / top * height * 8) if top else 0 for value in resample(values, width)]
    return ["".join(EIGHTHS[max(0, min(8, level - 8 * row))] for level in columns) for row in reversed(range(height))]
