"""Scaling: 1 to 16 workers on one backlog.

The handler of the worker processes records the time. `one by one`: one transaction for each message, as in
NServiceBus.SqlServer. `adaptive` (the default): up to 500 messages share a transaction. Processor time is that of the
workers' backends, measured by the kernel. p99 is that of the time from one message to the next in a worker. The figures of
NServiceBus.SqlServer are from its issue #1784 (Particular/NServiceBus.SqlServer on GitHub). They were measured with SQL
Server on another machine, so only their growth with the number of workers can be compared.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from benchmarks.suite.figures import Contender, Line, Lines, Paced, Round, Scale, Target, percentile, take_turns
from benchmarks.suite.server import Place, Server
from benchmarks.suite.workers import WorkerPool, backends, worker_pool

WORKERS = (1, 2, 4, 8, 16)
CASES = {"one by one": "off", "adaptive": "adaptive"}
GUESS = {"off": 400, "adaptive": 5000}  # messages of the warm-up round
LONG = {"off": 1.5, "adaptive": 4.0}  # multiples of a usual round: batches start with one message and grow
DOES = {
    "off": "exactly once, a transaction for each message",
    "adaptive": "exactly once, up to 500 messages a transaction",
}
REFERENCE = "NServiceBus.SqlServer, #1784"
#: By the number of its instances: messages/s, database CPU in microseconds a message, p99 in ms.
PUBLISHED = {1: (266, 1710, 3.7), 4: (1120, 3220, 9.5), 8: (1977, 4680, 17.6), 16: (2047, 5300, 65.2)}
CPU, P99 = "database CPU µs", "p99 ms"


def workers_name(number: int) -> str:
    return f"rowpost, {number} worker{'s' if number > 1 else ''}"


def measure(server: Server, scale: Scale) -> list[Line]:
    lines = []
    for case, batch in CASES.items():
        with ExitStack() as stack:
            place = stack.enter_context(server.place("scaling", "Bench"))
            contenders = []
            for number in WORKERS:
                known = backends(place)
                pool = stack.enter_context(worker_pool(place, "clocked", number, batch=batch))
                once = _Round(place, pool, backends(place) - known, number, batch, scale)
                contenders.append(Contender(workers_name(number), once, DOES[batch]))
            lines += take_turns(case, contenders, scale.rounds)
    for number, (rate, cpu, p99) in PUBLISHED.items():
        name = f"{REFERENCE}, {number} instance{'s' if number > 1 else ''}"
        lines.append(
            Line("published", name, (float(rate),), does="not measured here", more={CPU: float(cpu), P99: p99})
        )
    return lines


class _Round:
    """The rounds of one worker pool."""

    def __init__(self, place: Place, pool: WorkerPool, pids: set[int], number: int, batch: str, scale: Scale) -> None:
        self._place, self._pool, self._pids = place, pool, pids
        self._paced = Paced(
            scale.rows(GUESS[batch]), LONG[batch] * scale.seconds, 50 * number, scale.rows(400_000, least=50 * number)
        )

    def __call__(self) -> Round:
        count = self._paced.count
        self._place.sql('TRUNCATE "Bench"')
        self._place.fill("Bench", count)
        self._place.tidy('"Bench"')
        before = self._cpu()
        seconds = self._pool.drain()
        cpu = (self._cpu() - before) / count * 1e6
        waits = self._pool.noted(count)
        # the note of each worker's first message includes the pause between two rounds and is removed below
        self._paced.note(count / seconds)
        return Round(count / seconds, {CPU: cpu, P99: percentile([w for w in waits if w < seconds], 0.99) * 1000})

    def _cpu(self) -> float:
        """Return the processor time of the workers' backends in seconds, measured by the scheduler."""
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in self._pids) / 1e9


def targets(lines: Lines) -> list[Target]:
    found = []
    for case in CASES:
        one, many = (lines.more(case, CPU, workers_name(number)) for number in (WORKERS[0], WORKERS[-1]))
        times = many / one if one and many else None
        found.append(
            Target(f"16 workers, {case}: database CPU a message, times one worker's", times, 1.5, at_most=True)
        )
    return found
