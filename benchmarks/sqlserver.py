"""The workloads `calls` and `scaling` of the suite on SQL Server, without peers.

    ROWPOST_TEST_SQLSERVER='Server=…;UID=…;PWD=…' PYTHONPATH=pycontrol python -m benchmarks.sqlserver

The figures are messages per second. They are comparable only with figures of the same server and the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.suite.figures import Contender, Line, Paced, Round, Scale, percentile, take_turns
from benchmarks.suite.server import BODY, HEADERS
from benchmarks.suite.tsql import TsqlPlace, new_database
from benchmarks.suite.workers import make_ready, worker_pool
from benchmarks.suite.workloads import calls, scaling
from rowpost.database.connection import connect_url
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage

__all__ = ["main"]

RESULT = Path(__file__).parent / "results" / "sqlserver.json"
QUEUE = "Bench"


def measure_calls(place: TsqlPlace, scale: Scale, _: tuple[int, ...]) -> list[Line]:
    """Measure one client that sends, and one that receives."""
    lines = []
    for verb, cases in (("send", calls.SENDS), ("receive", calls.RECEIVES)):
        for batch, case in cases.items():
            paced = Paced(10 * batch, scale.seconds, 4 * batch, scale.rows(calls.MAX_ROUND_MESSAGES, least=4 * batch))
            once = partial(_calls, place, verb, batch, paced)
            lines += take_turns(case, [Contender("rowpost", once, calls.ATOMIC[verb])], scale.rounds)
    return lines


def _calls(place: TsqlPlace, verb: str, batch: int, paced: Paced) -> float:
    number = -(-paced.count // batch)
    place.fill(QUEUE, number * batch if verb == "receive" else 0)
    with connect_url("sqlserver", place.url, "rowpost benchmark") as database:
        queue = Queue(QUEUE, database)
        messages = [OutgoingMessage(BODY, dict(HEADERS)) for _ in range(batch)]
        one: Callable[[], object] = (
            partial(queue.send, BODY, HEADERS) if batch == 1 else partial(queue.send_many, messages)
        )
        if verb == "receive":
            one = partial(queue.receive, batch)
        one()
        started = time.perf_counter()
        for _ in range(number - (verb == "receive")):
            one()
        seconds = time.perf_counter() - started
        done = number - (verb == "receive")
    return paced.note(done * batch / seconds)


def measure_scaling(place: TsqlPlace, scale: Scale, workers: tuple[int, ...]) -> list[Line]:
    """Measure worker processes on one backlog."""
    lines = []
    for case, batch in scaling.CASES.items():
        with ExitStack() as stack:
            contenders = []
            for number in workers:
                pool = stack.enter_context(worker_pool(place, "clocked", number, batch=batch))
                paced = Paced(
                    scale.rows(scaling.GUESS[batch]), scale.seconds, 50 * number, scale.rows(40_000, least=50 * number)
                )
                once = partial(_drain, place, pool, paced)
                contenders.append(Contender(scaling.workers_name(number), once, scaling.DOES[batch]))
            lines += take_turns(case, contenders, scale.rounds)
    return lines


def _drain(place: TsqlPlace, pool, paced: Paced) -> Round:
    count = paced.count
    place.fill(QUEUE, count)
    seconds = pool.drain()
    waits = pool.noted(count)
    paced.note(count / seconds)
    return Round(count / seconds, {scaling.P99: percentile([wait for wait in waits if wait < seconds], 0.99) * 1000})


WORKLOADS = {"calls": measure_calls, "scaling": measure_scaling}


def main() -> int:
    """Run the command line. Return 1 if a line has no figure."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sqlserver", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), help="run only these workloads"
    )
    parser.add_argument(
        "--rounds", type=int, default=Scale.rounds, help="alternating rounds of each line (%(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=Scale.seconds, help="approximate duration of a round (%(default)s)"
    )
    parser.add_argument(
        "--workers", type=int, nargs="+", default=list(scaling.WORKERS), help="numbers of workers of scaling"
    )
    parser.add_argument("--output", type=Path, default=RESULT, help="the file of results")
    options = parser.parse_args()
    server = os.environ.get("ROWPOST_TEST_SQLSERVER")
    if not server:
        parser.error("set ROWPOST_TEST_SQLSERVER to an ODBC connection string, with a login that may create databases")
    lines: dict[str, list[Line]] = {}
    load = round(os.getloadavg()[0], 2)
    with (
        tempfile.TemporaryDirectory(prefix="rowpost-bench-") as folder,
        new_database(server, "rowpost_bench", QUEUE) as (url, engine),
    ):
        make_ready(Path(folder))
        for name in options.only:
            place = TsqlPlace(url, QUEUE)
            lines[name] = WORKLOADS[name](place, Scale(options.rounds, options.seconds), tuple(options.workers))
            place.database.close()
    about = {
        "engine": engine,
        "cores": os.cpu_count(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "load_before": load,
    }
    found = {name: [_data(line) for line in of_one] for name, of_one in lines.items()}
    options.output.write_text(json.dumps({"about": about, **found}, indent=1) + "\n", encoding="utf-8")
    for line in (line for of_one in lines.values() for line in of_one):
        print(
            f"{line.case}, {line.name}: {line.error or f'{line.figure:,.0f} messages/s'}",
            *(f"{k} {v:.1f}" for k, v in line.more.items()),
        )
    return int(any(line.error for of_one in lines.values() for line in of_one))


def _data(line: Line) -> dict[str, object]:
    return {
        "case": line.case,
        "name": line.name,
        "messages/s": line.figure,
        "rounds": line.rounds,
        **line.more,
        "error": line.error,
    }


if __name__ == "__main__":
    sys.exit(main())
