"""Endpoints: messages handled a second, on a backlog.

`no-op` is a handler that does nothing. `insert` executes one business INSERT and sends one outgoing message (peers: one
follow-up job) for each message. There are one and two worker processes. After each round, the rows are counted: there must
be as many business rows and follow-ups as messages, and the queue must be empty. Each peer is configured in the fastest way
that was found, which its program in peers/ describes. CPU is the processor time of the whole server and of the workers for
each message. Other programs on the machine affect it little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Paced, Round, Scale, Target, take_turns
from benchmarks.suite.peers import PEERS, PYTHON_PEERS, Conversation, Peer, PeerFailed
from benchmarks.suite.server import HEADERS, Place, Server, cpu_of, tree
from benchmarks.suite.workers import worker_pool
from rowpost.wire.message import encode_headers

ALONE = "rowpost, one by one"
EXACTLY = "exactly once: removal, INSERT and outgoing message in one transaction"
WITH_PEERS = True
WORKS, WORKERS = ("no-op", "insert"), (1, 2)
FILL = (
    "INSERT INTO \"Bench\" (id, headers, body) SELECT gen_random_uuid(), %s, convert_to(format('{\"Number\":%%s}', n), 'UTF8')"
    " FROM generate_series(1, %s) AS n"
)
SHARED = EXACTLY + ", which up to 500 messages share while a backlog waits"
# Messages of the warm-up round: about a quarter of a second.
GUESS = {
    "no-op": {OURS: 6000, ALONE: 400, "pgqueuer": 2000, "procrastinate": 100, "pg-boss": 3000, "graphile-worker": 6000},
    "insert": {OURS: 1500, ALONE: 200, "pgqueuer": 200, "procrastinate": 50, "pg-boss": 200, "graphile-worker": 400},
}


def case_name(work: str, workers: int) -> str:
    return f"{work}, {workers} worker{'s' if workers > 1 else ''}"


def measure(server: Server, scale: Scale) -> list[Line]:
    lines = []
    with server.place("endpoint", "Bench", "Follow") as place:
        place.sql("CREATE TABLE business (number integer NOT NULL)")
        peers = []
        for peer in PEERS:
            try:
                peer.run(place, "install")
                peers.append(peer)
            except (PeerFailed, OSError) as error:
                lines += [Line(case_name(work, n), peer.name, error=str(error)) for work in WORKS for n in WORKERS]
        for work in WORKS:
            for workers in WORKERS:
                case = Case(server, place, work, workers)
                with ExitStack() as stack:
                    contenders = [
                        _ours(stack, case, scale, OURS, "adaptive", SHARED),
                        _ours(stack, case, scale, ALONE, "off", f"{EXACTLY} of each message"),
                        *(_theirs(stack, case, scale, peer) for peer in peers),
                    ]
                    lines += take_turns(case.name, contenders, scale.rounds)
    return lines


def _paced(work: str, name: str, scale: Scale) -> Paced:
    """Rounds are longer than in other workloads: a worker starts with one message a transaction and increases the batch."""
    return Paced(scale.rows(GUESS[work][name], least=40), 2 * scale.seconds, 40, scale.rows(200_000, least=1000))


@dataclass(frozen=True)
class Case:
    """A handler and a number of workers."""

    server: Server
    place: Place
    work: str
    workers: int

    @property
    def name(self) -> str:
        return case_name(self.work, self.workers)

    def round(
        self,
        paced: Paced,
        fill: Callable[[int], None],
        drain: Callable[[], float],
        pids: Iterable[int],
        left: str,
        followed: str,
    ) -> Round:
        """Measure one round, and check the number of rows."""
        count = paced.count
        fill(count)
        self.place.sql("CHECKPOINT")
        pids = [*pids]
        before = self.server.cpu() + sum(map(cpu_of, pids))
        seconds = drain()
        cpu = self.server.cpu() + sum(map(cpu_of, pids)) - before
        rows = (self.place.value("SELECT COUNT(*) FROM business"), self.place.value(followed))
        wanted = (count, count) if self.work == "insert" else (0, 0)
        if rows != wanted or self.place.value(left):
            raise RuntimeError(f"{rows} rows instead of {wanted}, {self.place.value(left)} left")
        return Round(paced.note(count / seconds), {"CPU µs": cpu / count * 1e6})


def _ours(stack: ExitStack, case: Case, scale: Scale, name: str, batch: str, does: str) -> Contender:
    handler = "insert" if case.work == "insert" else "nothing"
    pool = stack.enter_context(worker_pool(case.place, handler, case.workers, batch=batch))
    paced = _paced(case.work, name, scale)

    def fill(count: int) -> None:
        case.place.sql('TRUNCATE business, "Bench", "Follow"')
        case.place.sql(FILL, [encode_headers(HEADERS), count])
        case.place.sql('VACUUM ANALYZE "Bench", "Follow"')

    left, followed = 'SELECT COUNT(*) FROM "Bench"', 'SELECT COUNT(*) FROM "Follow"'
    return Contender(name, lambda: case.round(paced, fill, pool.drain, pool.pids, left, followed), does)


def _theirs(stack: ExitStack, case: Case, scale: Scale, peer: Peer) -> Contender:
    paced = _paced(case.work, peer.name, scale)
    started: list[Conversation] = []

    def fill(count: int) -> None:
        case.place.sql(f"TRUNCATE business, {peer.tables}")
        peer.run(case.place, "fill", case.work, str(count))
        case.place.sql(f"VACUUM ANALYZE {peer.table}")

    def once() -> Round:
        while len(started) < case.workers:
            started.append(stack.enter_context(peer.talk(case.place, "work")))
        pids = (pid for each in started for pid in tree(each.pid))
        return case.round(
            paced,
            fill,
            lambda: _seconds_to_last(started, partial(_start, started, case.work)),
            pids,
            peer.left,
            peer.followed,
        )

    return Contender(peer.name, once, peer.does)


def _start(started: list[Conversation], work: str) -> None:
    for each in started:
        each.say(work)


def _seconds_to_last(started: list[Conversation], start: Callable[[], None]) -> float:
    """Return the seconds from the command to the end of the last handler."""
    begun = time.monotonic()
    start()
    return max(float(each.hear()) for each in started) - begun


def targets(lines: Lines) -> list[Target]:
    one, two, insert = case_name("no-op", 1), case_name("no-op", 2), case_name("insert", 1)
    return [
        Target(f"{one}: to pgqueuer", lines.ratio(one, "pgqueuer"), 2.0),
        Target(f"{one}: to pg-boss", lines.ratio(one, "pg-boss"), 1.0),
        Target(f"{two}: to graphile-worker, which is not exactly once", lines.ratio(two, "graphile-worker"), 1.0),
        Target(f"{insert}: to the best Python peer", lines.ratio_to_best(insert, PYTHON_PEERS), 3.0),
        Target(
            f"{case_name('insert', 2)}: to the best Python peer",
            lines.ratio_to_best(case_name("insert", 2), PYTHON_PEERS),
            3.0,
        ),
    ]
