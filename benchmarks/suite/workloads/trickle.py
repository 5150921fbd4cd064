"""Trickle: from the beginning of a send to the beginning of its handler, while messages arrive one by one.

A message every 100, 25 and 10 ms, under `rowpost run` with a peek delay of one second and up to four workers. The queue
is empty between them, and is not idle for long.
"""

from __future__ import annotations

from functools import partial

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Round, Scale, Target, take_turns
from benchmarks.suite.server import Server
from benchmarks.suite.workers import Notes
from benchmarks.suite.workloads.latency import EXACTLY, Samples, noted, send_paced
from rowpost.transport.queue import Queue

#: messages a second
RATES = (10, 40, 100)
WORKERS = 4


def measure(server: Server, scale: Scale) -> list[Line]:
    lines = []
    with noted(server, WORKERS) as (_, queue, notes):
        for rate in RATES:
            samples = Samples()
            ours = partial(_paced, queue, notes, samples, rate, scale.rows(100, least=8))
            contender = Contender(OURS, ours, EXACTLY, "ms")
            lines += [samples.complete(line) for line in take_turns(_case(rate), [contender], scale.rounds)]
    return lines


def _case(rate: int) -> str:
    return f"{rate} a second"


def _paced(queue: Queue, notes: Notes, samples: Samples, rate: int, count: int) -> Round:
    send_paced(queue, count, 1 / rate)
    return samples.note(notes.take(count))


def targets(lines: Lines) -> list[Target]:
    return [
        Target(f"trickle of {_case(rate)}, p95", lines.more(_case(rate), "p95"), 8.0, at_most=True, unit="ms")
        for rate in RATES
    ]
