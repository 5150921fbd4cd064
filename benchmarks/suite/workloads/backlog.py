"""Delayed: a million delayed messages come due at once.

One mover takes them into their queue, a hundred a transaction, as the supervisor's does; `few due`: the same with ten
thousand. How late single messages are is measured by benchmarks/delayed.py.
"""

from __future__ import annotations

import time

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Scale, Target, ratio, take_turns
from benchmarks.suite.server import Place, Server
from rowpost.delayed import move_due

MANY, FEW = 1_000_000, 10_000
BESIDE = "rowpost, few due"
FILL = (
    'INSERT INTO "{}.Delayed" (headers, body, due) SELECT \'{{}}\', %s, clock_timestamp() FROM generate_series(1, %s)'
)
DOES = "out of one table and into the other in one transaction for each 100"


def measure(server: Server, scale: Scale) -> list[Line]:
    many = scale.rows(MANY)
    with server.place("backlog", "Many", "Few") as place:
        place.sql(FILL.format("Many"), [b"x" * 512, many])
        place.tidy('"Many.Delayed"')

        def some() -> float:
            return _move(place, "Many", scale)

        def few() -> float:
            place.sql('TRUNCATE "Few.Delayed"')
            place.sql(FILL.format("Few"), [b"x" * 512, FEW])
            place.sql('VACUUM ANALYZE "Few.Delayed"')
            return _move(place, "Few", scale)

        return take_turns(f"{many:,} due", [Contender(OURS, some, DOES), Contender(BESIDE, few, DOES)], scale.rounds)


def _move(place: Place, queue: str, scale: Scale) -> float:
    """Messages a second, for as long as a round takes."""
    moved, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < scale.seconds:
        found = move_due(place.database, queue).moved
        if not found:
            break
        moved += found
    return moved / seconds


def targets(lines: Lines) -> list[Target]:
    line = next(iter(lines), None)
    case = line.case if line else ""
    return [Target("a million delayed messages due: share of the mover's rate with few", ratio(lines.get(case), lines.get(case, BESIDE)), 0.8)]
