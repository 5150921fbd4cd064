"""Stale: a burst of 100,000 messages after ANALYZE saw an empty table.

`stale`: the queue is emptied and analyzed, and a connection receives from it twice while it is empty, so that its plan is
made for an empty table. Then the messages are stored, and that connection receives them. `normal`: the messages are stored
and analyzed before a new connection receives. Autovacuum is off for the table, so that it cannot update the statistics.
"""

from __future__ import annotations

import time

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Round, Scale, Target, percentile, take_turns
from benchmarks.suite.server import Place, Server
from rowpost.database.connection import connect_url
from rowpost.transport.queue import Queue

NORMAL = "rowpost, normal"
BATCHES = {1: "one by one", 100: "100 a call"}
DOES = "removal in one transaction a call"


def measure(server: Server, scale: Scale) -> list[Line]:
    lines = []
    with server.place("stale", "Bench") as place:
        place.sql('ALTER TABLE "Bench" SET (autovacuum_enabled = off)')
        for batch, case in BATCHES.items():
            contenders = [
                Contender(OURS, lambda batch=batch: _round(place, batch, scale, stale=True), DOES, "ms"),
                Contender(NORMAL, lambda batch=batch: _round(place, batch, scale, stale=False), DOES, "ms"),
            ]
            lines += take_turns(case, contenders, scale.rounds)
    return lines


def _round(place: Place, batch: int, scale: Scale, *, stale: bool) -> Round:
    rows, calls = scale.rows(100_000, least=2000), 200 if batch == 1 else 20
    place.sql('TRUNCATE "Bench"')
    place.sql('ANALYZE "Bench"')
    with connect_url("postgresql", place.url, "rowpost benchmark") as database:
        queue = Queue("Bench", database)
        if stale:
            for _ in range(2):
                queue.receive(batch)
        place.fill("Bench", rows)
        if not stale:
            place.sql('VACUUM ANALYZE "Bench"')
        place.sql("CHECKPOINT")
        times = []
        for _ in range(calls):
            started = time.perf_counter()
            queue.receive(batch)
            times.append(time.perf_counter() - started)
    return Round(percentile(times, 0.5) * 1000, {"p99": percentile(times, 0.99) * 1000, "worst": max(times) * 1000})


def targets(lines: Lines) -> list[Target]:
    found = []
    for case in BATCHES.values():
        medians = lines.figure(case), lines.figure(case, NORMAL)
        tails = lines.more(case, "p99"), lines.more(case, "p99", NORMAL)
        for name, (one, other) in {"median": medians, "p99": tails}.items():
            times = one / other if one and other else None
            found.append(Target(f"{case}: times as long after a stale ANALYZE, {name}", times, 2.0, at_most=True))
    return found
