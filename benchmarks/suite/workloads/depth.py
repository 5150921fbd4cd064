"""Depth: a receive from a queue of a thousand messages, and from one of ten million.

One connection makes calls with a durable commit each and without a receive cursor: every call scans from the head of the
queue. Both queues contain small bodies. Rounds alternate between the deep queue and a second queue of a thousand messages.
"""

from __future__ import annotations

import time
from functools import partial

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Scale, Target, ratio, take_turns
from benchmarks.suite.server import Place, Server

DEPTHS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
BATCHES = {1: 200, 100: 8}  # calls a round, by messages a call
SHALLOW = "beside it: 1,000"
DOES = "removal in one transaction a call"


def case_name(depth: int, batch: int) -> str:
    return f"{depth:,} messages, {batch} a call"


def measure(server: Server, scale: Scale) -> list[Line]:
    lines, filled = [], 0
    with server.place("depth", "Deep", "Shallow") as place:
        for depth in dict.fromkeys(scale.rows(each, least=DEPTHS[0]) for each in DEPTHS):
            place.fill("Deep", depth - filled, b"x", "{}")
            filled = depth
            place.tidy('"Deep"')
            for batch in BATCHES:
                deep = Contender(OURS, partial(_receive, place, "Deep", batch, depth), DOES)
                shallow = Contender(SHALLOW, partial(_receive, place, "Shallow", batch, DEPTHS[0]), DOES)
                lines += take_turns(case_name(depth, batch), [deep, shallow], scale.rounds)
    return lines


def _receive(place: Place, name: str, batch: int, depth: int) -> float:
    """Return messages per second. The shallow queue is filled again before each round."""
    queue = place.queue(name)
    if depth == DEPTHS[0]:
        place.sql(f'TRUNCATE "{name}"')
        place.fill(name, depth, b"x", "{}")
        place.sql(f'VACUUM ANALYZE "{name}"')
    calls = BATCHES[batch]
    started = time.perf_counter()
    for _ in range(calls):
        if len(queue.receive(batch)) != batch:
            raise RuntimeError(f"{name} is empty: the benchmark is wrong")
    return calls * batch / (time.perf_counter() - started)


def targets(lines: Lines) -> list[Target]:
    found = []
    for batch in BATCHES:
        case = case_name(DEPTHS[-1], batch)
        times = ratio(lines.get(case, SHALLOW), lines.get(case))
        found.append(Target(f"{case}: times as long as at a depth of 1,000", times, 1.2, at_most=True))
    return found
