"""Ramp: the time until a burst has all workers, and until all but one have exited.

`rowpost run` has a limit of eight workers, a handler that waits 20 ms, and the default idle time of two seconds. Workers
are counted by their connections. Up: from the commit of the burst until the eighth worker is connected. Down: from the
removal of the last message until one worker is connected.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Round, Scale, Target, take_turns
from benchmarks.suite.server import Server, wait_until
from benchmarks.suite.workers import HANDLERS, backends, running

LIMIT = 8
IDLE_TIME = 2.0  # seconds, rowpost's default
LEAVING = 0.5  # seconds allowed to exit
UP, DOWN = "1 to 8 workers", "8 workers to 1"


def measure(server: Server, scale: Scale) -> list[Line]:
    downs: list[float] = []
    with TemporaryDirectory() as folder, server.place("ramp", "Bench") as place:
        worker = {"handler": f"{HANDLERS}:slow", "limit": LIMIT, "peek_delay": 1.0}
        with running(place, Path(folder), {"Bench": worker}):

            def once() -> Round:
                wait_until(lambda: len(backends(place)) == 1, "all but one worker exit")
                time.sleep(0.3)
                place.fill("Bench", 600, b'{"Number":1}')
                burst = time.monotonic()
                wait_until(lambda: len(backends(place)) == LIMIT, "all workers are connected", deadline=30.0)
                up = time.monotonic() - burst
                wait_until(lambda: not place.value('SELECT COUNT(*) FROM "Bench"'), "the queue is empty")
                empty = time.monotonic()
                wait_until(lambda: len(backends(place)) == 1, "all but one worker exit")
                downs.append(time.monotonic() - empty)
                return Round(up)

            lines = take_turns(
                UP, [Contender(OURS, once, "strategy peek, eight workers at most", "s", warm=False)], scale.rounds
            )
    return [*lines, Line(DOWN, OURS, tuple(downs), "s", f"idle time of {IDLE_TIME:.0f} s")]


def targets(lines: Lines) -> list[Target]:
    return [
        Target("a burst has all eight workers", lines.figure(UP), 2.0, at_most=True, unit="s"),
        Target(
            "all but one have left: the idle time, and half a second",
            lines.figure(DOWN),
            IDLE_TIME + LEAVING,
            at_most=True,
            unit="s",
        ),
    ]
