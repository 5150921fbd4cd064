"""Pinned: a transaction stays open in another session while a million messages pass.

That transaction has a snapshot and an id, and stays open while a million messages are received. The number of rows
matters, not the time. Vacuum cannot remove rows that the snapshot may see, so the received messages stay in table and
index as dead rows. The same work alternates with a second database where nothing is pinned. `backlog`: one worker with a
no-op handler. `one by one`: a message is sent and received repeatedly, with a receive cursor as a worker does. `from the
start`: a receive without a cursor, which a worker executes periodically to find messages that committed late.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Round, Scale, Target, ratio, take_turns
from benchmarks.suite.server import Place, Server
from benchmarks.suite.workers import WorkerPool, worker_pool
from rowpost.database.connection import connect_url
from rowpost.transport.queue import Queue

MESSAGES, CHUNK = 1_000_000, 50_000
FREE = "rowpost, nothing pinned"
PASSING, BACKLOG, PAIRS, START = "a million pass", "backlog", "one by one", "from the start"
DOES = "removal in one transaction a call"


def measure(server: Server, scale: Scale) -> list[Line]:
    with ExitStack() as stack:
        pinned = stack.enter_context(server.place("pinned", "Bench"))
        free = stack.enter_context(server.place("free", "Bench"))
        stack.enter_context(_old_snapshot(pinned))
        chunk = scale.rows(CHUNK, least=1000)
        rates = _pass(pinned, chunk)
        dead = float(chunk * len(rates))
        change = {"first": rates[0], "last": rates[-1], "dead rows": dead}
        lines = [Line(PASSING, OURS, rates, does=f"{DOES} of up to 500, one chunk after the other", more=change)]
        pools = {place: stack.enter_context(worker_pool(place, "nothing")) for place in (pinned, free)}

        def both(case: str, once, does: str, unit: str = "messages/s") -> None:
            contenders = [
                Contender(OURS, lambda: Round(once(pinned), {"dead rows": dead}), does, unit),
                Contender(FREE, lambda: once(free), does, unit),
            ]
            lines.extend(take_turns(case, contenders, scale.rounds))

        both(
            BACKLOG, lambda place: _drain(place, pools[place], scale), "exactly once, up to 500 messages a transaction"
        )
        both(PAIRS, lambda place: _pairs(place, scale), "a transaction to send, and one to receive")
        both(START, _empty_receive, "one call that finds nothing", "ms")
    return lines


@contextmanager
def _old_snapshot(place: Place) -> Iterator[None]:
    with psycopg.connect(place.url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT pg_current_xact_id()")
        yield
        connection.rollback()


def _pass(place: Place, number: int) -> tuple[float, ...]:
    """Fill and receive a million messages in chunks with a receive cursor. Return the messages per second of each chunk."""
    queue, last, rates = place.queue("Bench"), None, []
    for _ in range(MESSAGES // CHUNK):
        place.fill("Bench", number)
        started = time.perf_counter()
        while messages := queue.receive(500, last):
            last = messages[-1].row_version
        rates.append(number / (time.perf_counter() - started))
    return tuple(rates)


def _drain(place: Place, pool: WorkerPool, scale: Scale) -> float:
    count = max(200, int(25_000 * scale.seconds))
    place.fill("Bench", count, b'{"Number":1}')
    return count / pool.drain()


def _pairs(place: Place, scale: Scale) -> float:
    with connect_url("postgresql", place.url, "rowpost benchmark") as database:
        queue, count = Queue("Bench", database), max(20, int(400 * scale.seconds))
        queue.send(b"x")
        last = queue.receive()[-1].row_version
        started = time.perf_counter()
        for _ in range(count):
            queue.send(b"x")
            last = queue.receive(after_row_version=last)[-1].row_version
        return count / (time.perf_counter() - started)


def _empty_receive(place: Place) -> float:
    queue, times = place.queue("Bench"), []
    for _ in range(5):
        started = time.perf_counter()
        if queue.receive():
            raise RuntimeError("a message is left: the benchmark is wrong")
        times.append(time.perf_counter() - started)
    return min(times) * 1000


def targets(lines: Lines) -> list[Target]:
    claim = "a million dead rows pinned, {}: share of the rate without them"
    return [
        Target(claim.format("one worker's backlog"), ratio(lines.get(BACKLOG), lines.get(BACKLOG, FREE)), 0.8),
        Target(claim.format("one by one"), ratio(lines.get(PAIRS), lines.get(PAIRS, FREE)), 0.8),
    ]
