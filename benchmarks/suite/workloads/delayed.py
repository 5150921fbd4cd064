"""Delayed: how late messages are, and what happens when a million come due at once.

`late`: the time from when a message is due to the start of its handler, under `rowpost run` with two bounds. Another
process stores the messages, each due at a random time, so that the mover finds them only in the table. `due`: one mover
moves due messages to their queue, up to 500 in a transaction, as the supervisor does. `few due` is the same with ten
thousand messages.
"""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Round, Scale, Target, percentile, ratio, take_turns
from benchmarks.suite.server import Place, Server
from benchmarks.suite.workers import HANDLERS, NOTES, Notes, running
from rowpost.transport.delayed import move_due

MANY, FEW = 1_000_000, 10_000
BESIDE = "rowpost, few due"
FILL = (
    "INSERT INTO \"{}.Delayed\" (headers, body, due) SELECT '{{}}', %s, clock_timestamp() FROM generate_series(1, %s)"
)
BOUNDS = (1.0, 0.2)  # seconds, the setting delayed_lateness
LATE = "exactly once; moved by the one elected mover"
DOES = "out of one table and into the other in one transaction for each 500"


def measure(server: Server, scale: Scale) -> list[Line]:
    return [*_lateness(server, scale), *_backlog(server, scale)]


def _lateness(server: Server, scale: Scale) -> list[Line]:
    lines = []
    for bound in BOUNDS:
        with TemporaryDirectory() as folder, server.place("late", "Late") as place:
            notes = Path(folder) / "notes"
            notes.mkdir()
            worker, noted = {"handler": f"{HANDLERS}:late", "limit": 2, "peek_delay": 0.1}, Notes(notes)
            with running(place, Path(folder), {"Late": worker}, {NOTES: str(notes)}, {"delayed_lateness": bound}):
                once = partial(_late, place, noted, scale.rows(60, least=10), 4 * scale.seconds)
                lines += take_turns(f"late, bound {bound:g} s", [Contender(OURS, once, LATE, "ms")], scale.rounds)
    return lines


def _late(place: Place, noted: Notes, number: int, seconds: float) -> Round:
    """Delay messages to random times within `seconds`, and measure how late they are handled."""
    for _ in range(number):
        delay = random.uniform(0.1, seconds)
        place.database.call(
            "delay_message", "Late", headers="", body=b"%r" % (time.time() + delay), delay_ms=int(delay * 1000)
        )
    waits = noted.take(number)
    return Round(percentile(waits, 0.5) * 1000, {"p99": percentile(waits, 0.99) * 1000, "worst": max(waits) * 1000})


def _backlog(server: Server, scale: Scale) -> list[Line]:
    many = scale.rows(MANY)
    with server.place("delayed", "Many", "Few") as place:
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
    """Move due messages for the duration of a round. Return messages per second."""
    moved, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < scale.seconds:
        found = move_due(place.database, queue).moved
        if not found:
            break
        moved += found
    return moved / seconds


def targets(lines: Lines) -> list[Target]:
    case = next((line.case for line in lines if line.name == BESIDE), "")
    few = ratio(lines.get(case), lines.get(case, BESIDE))
    late = [
        Target(
            f"delayed messages, bound {bound:g} s: p99 late",
            lines.more(f"late, bound {bound:g} s", "p99"),
            bound * 1000,
            True,
            "ms",
        )
        for bound in BOUNDS
    ]
    return [*late, Target("a million delayed messages due: share of the mover's rate with few", few, 0.8)]
