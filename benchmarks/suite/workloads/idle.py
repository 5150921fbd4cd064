"""Idle: what queues cost while nothing happens.

`rowpost run` runs as in production, with a peek delay of one second and one worker for each queue. Each queue has a
delayed table; the one statement of a peek also returns when the next delayed message is due, and what operators have set. The
supervisor reports itself every ten seconds, in the round trip of a peek. The peers wait for jobs of
one queue. Statements are counted in the server's log, with BEGIN and COMMIT separately. Processor time is that of the
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
#: statements a second for the supervisor, however many queues it has
REPORTS = 0.1
UNIT = "statements/s"
LOGGED = re.compile(rb"LOG:  (?:statement|execute [^:]*): *(\w+)")
CONTROL = {b"BEGIN", b"COMMIT", b"ROLLBACK"}


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
                    lines += _watch(server, place, lambda talk=talk: tree(talk.pid), case_name(1), peer.name, peer.serves, scale)
            except Exception as error:  # noqa: BLE001 the other peers are still measured
                lines.append(Line(case_name(1), peer.name, unit=UNIT, error=f"{type(error).__name__}: {error}"))
    return lines


def _log_statements(place: Place) -> None:
    """Log the statements of sessions that start after this call."""
    place.sql(f"ALTER DATABASE {place.value('SELECT current_database()')} SET log_statement = 'all'")


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
            time.sleep(scale.seconds * 5)
            after = sample()
            seconds, backend, client = (b - a for a, b in zip(before[:3], after[:3], strict=True))
            with server.log.open("rb") as log:
                log.seek(before[3])
                words = LOGGED.findall(log.read(after[3] - before[3]))
            count = sum(word.upper() not in CONTROL for word in words)
            control = {"BEGIN, COMMIT": (len(words) - count) / seconds}
            cpu = {"database CPU ‰": backend / seconds * 1000, "client CPU ‰": client / seconds * 1000}
            return Round(count / seconds, {**control, **cpu, "connections": float(after[4]), "processes": float(after[5])})

        return take_turns(case, [Contender(name, window, does, UNIT, warm=False)], scale.rounds)


def targets(lines: Lines) -> list[Target]:
    most = lines.figure(case_name(QUEUES[-1]))
    each = None if most is None else (most - REPORTS) / QUEUES[-1]
    claim = f"{case_name(QUEUES[-1])}: statements for each in a peek delay of 1 s, without the supervisor's report every 10 s"
    return [Target(claim, each, 1.0, at_most=True, unit="a second")]
