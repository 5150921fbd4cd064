"""Idle: what queues cost while nothing happens.

`rowpost run` runs as in production, with a peek delay of one second and one worker for each queue. Each queue has a
delayed table; the one statement of a peek also returns when the next delayed message is due, and what operators have set. The
supervisor reports itself every ten seconds, in the round trip of a peek. The peers wait for jobs of
one queue. Statements are counted in the server's log, with BEGIN and COMMIT separately; those of rowpost by what they do. "Others" are
calls of the delayed mover, which waits for a peek that is more than 100 ms late no longer: a machine without load has none. Processor time is that of the
database's backends and of the waiting programs, measured by the kernel, in thousandths of one processor.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Round, Scale, Target, take_turns
from benchmarks.suite.peers import PEERS
from benchmarks.suite.server import Place, Server, cpu_of, tree
from benchmarks.suite.workers import HANDLERS, running
from rowpost.database.connection import connect_url

WITH_PEERS = True
QUEUES = (1, 10, 100)
SETTLING_S = 3.0
UNIT = "statements/s"
#: seconds of a window in Scale.seconds: 3 s, and 10 s for rowpost, so that it holds a report of the supervisor
WINDOW, OUR_WINDOW = 5, 50 / 3
LOGGED = re.compile(rb"LOG:  (?:statement|execute [^:]*): *((\w+)[^\n]*)")
CONTROL = {b"BEGIN", b"COMMIT", b"ROLLBACK"}
PEEKS, REPORTS, OTHERS, CONTROLS = "peeks", "reports", "others", "BEGIN, COMMIT"
KINDS = ((b"watch_queue:", PEEKS), (b"report_supervisor", REPORTS))
#: other statements for each queue a second that late peeks may cause
MOST_OTHERS = 0.01


def case_name(queues: int) -> str:
    return f"{queues} idle queue{'s' if queues > 1 else ''}"


def measure(server: Server, scale: Scale) -> list[Line]:
    lines = []
    for number in QUEUES if scale.size == 1 else QUEUES[:1]:
        names = [f"Idle{n}" for n in range(number)]
        with TemporaryDirectory() as folder, server.place("idle", *names) as place:
            _log_statements(place)
            workers = {name: {"handler": f"{HANDLERS}:nothing", "limit": 1, "peek_delay": 1.0} for name in names}
            with running(place, Path(folder), workers) as service:
                lines += _watch(server, place, service.processes, case_name(number), OURS, "a peek delay of 1 s", scale)
    with server.place("idle") as place:
        _log_statements(place)
        for peer in PEERS:
            try:
                peer.run(place, "install")
                with peer.talk(place, "serve") as talk:
                    lines += _watch(
                        server, place, lambda talk=talk: tree(talk.pid), case_name(1), peer.name, peer.serves, scale
                    )
            except Exception as error:  # noqa: BLE001 the other peers are still measured
                lines.append(Line(case_name(1), peer.name, unit=UNIT, error=f"{type(error).__name__}: {error}"))
    return lines


def _log_statements(place: Place) -> None:
    """Log the statements of sessions that start after this call."""
    place.sql(f"ALTER DATABASE {place.value('SELECT current_database()')} SET log_statement = 'all'")


def counted(log: bytes) -> dict[str, int]:
    """Count the statements in a part of the server's log by what they do.

    >>> counted(b'LOG:  execute <unnamed>: SELECT * FROM rowpost."watch_queue:Sales"($1)')["peeks"]
    1
    """
    found = dict.fromkeys((PEEKS, REPORTS, OTHERS, CONTROLS), 0)
    for text, word in LOGGED.findall(log):
        kind = next((name for mark, name in KINDS if mark in text), OTHERS)
        found[CONTROLS if word.upper() in CONTROL else kind] += 1
    return found


def _watch(server: Server, place: Place, processes, case: str, name: str, does: str, scale: Scale) -> list[Line]:
    """Measure consecutive time windows from another database, so that the measurement itself is not counted."""
    time.sleep(SETTLING_S * min(1.0, scale.seconds * 2))
    database = place.value("SELECT current_database()")
    with connect_url("postgresql", server.url, "rowpost benchmark, watching") as watch:
        sql = watch.driver_connection.execute
        backends = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND application_name <> 'rowpost benchmark'"

        def sample() -> tuple[float, float, float, int, int, int]:
            pids, own = [pid for (pid,) in sql(backends, [database]).fetchall()], processes()
            now = time.monotonic(), sum(map(cpu_of, pids)), sum(map(cpu_of, own))
            return (*now, server.log.stat().st_size, len(pids), len(own))

        def window() -> Round:
            before = sample()
            time.sleep(scale.seconds * (OUR_WINDOW if name == OURS else WINDOW))
            after = sample()
            seconds, backend, client = (b - a for a, b in zip(before[:3], after[:3], strict=True))
            with server.log.open("rb") as log:
                log.seek(before[3])
                found = {kind: count / seconds for kind, count in counted(log.read(after[3] - before[3])).items()}
            control = found.pop(CONTROLS)
            kinds = {kind: found[kind] for kind in (PEEKS, REPORTS, OTHERS)} if name == OURS else {}
            cpu = {"database CPU ‰": backend / seconds * 1000, "client CPU ‰": client / seconds * 1000}
            return Round(
                sum(found.values()),
                {CONTROLS: control, **kinds, **cpu, "connections": float(after[4]), "processes": float(after[5])},
            )

        return take_turns(case, [Contender(name, window, does, UNIT, warm=False)], scale.rounds)


def targets(lines: Lines) -> list[Target]:
    case = case_name(QUEUES[-1])
    peeks, reports, others = (lines.more(case, kind) for kind in (PEEKS, REPORTS, OTHERS))
    return [
        Target(
            f"{case}: statements of peeks for each, with a peek delay of 1 s",
            _share(peeks),
            1.0,
            at_most=True,
            unit="a second",
        ),
        Target(
            f"{case}: statements of the supervisor's report",
            _share(reports, 10),
            1.0,
            at_most=True,
            unit="in ten seconds",
        ),
        Target(f"{case}: other statements for each", _share(others), MOST_OTHERS, at_most=True, unit="a second"),
    ]


def _share(each: float | None, factor: float = 1 / QUEUES[-1]) -> float | None:
    return None if each is None else each * factor
