"""Endpoints: messages handled a second, on a backlog.

`no-op` is a handler that does nothing; `insert` one business INSERT and one outgoing message (for the peers: one
follow-up job) for each message. By one and by two worker processes. After each round rows are counted: as many business
rows and follow-ups as messages, and nothing left. The peers work in the way that was found fastest, which peers/ says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Paced, Scale, Target, take_turns
from benchmarks.suite.peers import PEERS, PYTHON_PEERS, Conversation, Peer, PeerFailed
from benchmarks.suite.server import HEADERS, Place, Server
from benchmarks.suite.workers import crew
from rowpost.message import encode_headers

ALONE = "rowpost, one by one"
EXACTLY = "exactly once: removal, INSERT and outgoing message in one transaction"
WITH_PEERS = True
WORKS, WORKERS = ("no-op", "insert"), (1, 2)
SHARED = EXACTLY + ", which up to 500 messages share while a backlog waits"
# Messages of the first round, which does not count, about a quarter of a second's.
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
                with ExitStack() as stack:
                    contenders = [
                        _ours(stack, place, work, workers, scale, OURS, "adaptive", SHARED),
                        _ours(stack, place, work, workers, scale, ALONE, "off", f"{EXACTLY} of each message"),
                        *(_theirs(stack, place, work, workers, scale, peer) for peer in peers),
                    ]
                    lines += take_turns(case_name(work, workers), contenders, scale.rounds)
    return lines


def _paced(work: str, name: str, scale: Scale) -> Paced:
    """Rounds are longer than elsewhere: a worker begins with one message a transaction, and has to get going."""
    return Paced(scale.rows(GUESS[work][name], least=40), 2 * scale.seconds, 40, scale.rows(200_000, least=1000))


def _ours(stack, place: Place, work: str, workers: int, scale: Scale, name: str, batch: str, does: str) -> Contender:
    handler = "insert" if work == "insert" else "nothing"
    hands = stack.enter_context(crew(place, handler, workers, batch=batch))
    paced = _paced(work, name, scale)

    def once() -> float:
        count = paced.count
        place.sql('TRUNCATE business, "Bench", "Follow"')
        place.sql(
            'INSERT INTO "Bench" (id, headers, body) SELECT gen_random_uuid(), %s, convert_to(format(\'{"Number":%%s}\', n), \'UTF8\')'
            " FROM generate_series(1, %s) AS n",
            [encode_headers(HEADERS), count],
        )
        place.tidy('"Bench"', '"Follow"')
        seconds = hands.drain()
        _account(place, work, count, 'SELECT COUNT(*) FROM "Bench"', 'SELECT COUNT(*) FROM "Follow"')
        return paced.note(count / seconds)

    return Contender(name, once, does)


def _theirs(stack, place: Place, work: str, workers: int, scale: Scale, peer: Peer) -> Contender:
    paced = _paced(work, peer.name, scale)
    started: list[Conversation] = []

    def once() -> float:
        count = paced.count
        while len(started) < workers:
            started.append(stack.enter_context(peer.talk(place, "work")))
        place.sql(f"TRUNCATE business, {peer.tables}")
        peer.run(place, "fill", work, str(count))
        place.tidy(peer.table)
        seconds = _last(started, partial(_tell, started, work))
        _account(place, work, count, peer.left, peer.followed)
        return paced.note(count / seconds)

    return Contender(peer.name, once, peer.does)


def _tell(started: list[Conversation], work: str) -> None:
    for each in started:
        each.say(work)


def _last(started: list[Conversation], tell: Callable[[], None]) -> float:
    """Seconds from the word to the end of the last handler."""
    begun = time.monotonic()
    tell()
    return max(float(each.hear()) for each in started) - begun


def _account(place: Place, work: str, count: int, left: str, followed: str) -> None:
    """Every row is accounted for."""
    rows = (place.value("SELECT COUNT(*) FROM business"), place.value(followed))
    wanted = (count, count) if work == "insert" else (0, 0)
    if rows != wanted or place.value(left):
        raise RuntimeError(f"{rows} rows instead of {wanted}, {place.value(left)} left")


def targets(lines: Lines) -> list[Target]:
    one, two, insert = case_name("no-op", 1), case_name("no-op", 2), case_name("insert", 1)
    return [
        Target(f"{one}: to pgqueuer", lines.ratio(one, "pgqueuer"), 2.0),
        Target(f"{one}: to pg-boss", lines.ratio(one, "pg-boss"), 1.0),
        Target(f"{two}: to graphile-worker, which is not exactly once", lines.ratio(two, "graphile-worker"), 1.0),
        Target(f"{insert}: to the best Python peer", lines.ratio_to_best(insert, PYTHON_PEERS), 3.0),
        Target(f"{case_name('insert', 2)}: to the best Python peer", lines.ratio_to_best(case_name("insert", 2), PYTHON_PEERS), 3.0),
    ]
