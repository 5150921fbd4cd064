"""Expired: a queue whose head is a million messages that have expired.

`worker`: one worker removes the expired messages to reach the one behind them. `purge`: purge_expired removes them in
batches of 10,000. The waiting time of the live message is the time until its handler starts.
"""

from __future__ import annotations

import time

from benchmarks.suite.figures import Contender, Line, Lines, Round, Scale, Target, take_turns
from benchmarks.suite.server import Place, Server
from benchmarks.suite.workers import WorkerPool, worker_pool

ROWS = 1_000_000
FILL = (
    "INSERT INTO \"Bench\" (id, expires, headers, body) SELECT gen_random_uuid(), now() AT TIME ZONE 'UTC' - interval '1 hour',"
    " '{}', %s FROM generate_series(1, %s)"
)


def measure(server: Server, scale: Scale) -> list[Line]:
    rows = scale.rows(ROWS // 5)
    with server.place("expired", "Bench") as place, worker_pool(place, "timed") as pool:
        contenders = [
            Contender(
                "worker", lambda: _work(place, pool, rows), "expired messages are dropped, up to 500 a transaction"
            ),
            Contender("purge", lambda: _purge(place, rows), "one transaction for each 10,000"),
        ]
        lines = take_turns(f"{rows:,} expired", contenders, scale.rounds)
        if rows >= ROWS // 5:
            one = Contender("worker", lambda: _work(place, pool, ROWS), contenders[0].does, warm=False)
            lines += take_turns(f"{ROWS:,} expired", [one], 1)
    return lines


def _fill(place: Place, rows: int) -> None:
    place.sql('TRUNCATE "Bench"')
    place.sql(FILL, [b"x" * 100, rows])


def _work(place: Place, pool: WorkerPool, rows: int) -> Round:
    _fill(place, rows)
    place.tidy('"Bench"')
    place.queue("Bench").send(b"%r" % time.monotonic())
    seconds = pool.drain()
    (pause,) = pool.noted(1)
    return Round(rows / seconds, {"live message waits s": pause})


def _purge(place: Place, rows: int) -> Round:
    _fill(place, rows)
    place.tidy('"Bench"')
    started = time.perf_counter()
    if place.queue("Bench").purge_expired() != rows:
        raise RuntimeError("some expired messages were not removed: the benchmark is wrong")
    seconds = time.perf_counter() - started
    return Round(rows / seconds, {"live message waits s": seconds})


def targets(lines: Lines) -> list[Target]:
    return []
