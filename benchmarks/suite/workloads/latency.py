"""Latency: from the beginning of a send to the beginning of its handler.

`idle`: one message at a time is sent to an empty queue every 53 ms, under `rowpost run` with a peek delay of one second and
one worker. Sender and worker of a peer share a process; those of rowpost do not. `half load`: messages are sent one by one
at half the rate that one sender and one worker can sustain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Round, Scale, Target, percentile, take_turns
from benchmarks.suite.peers import PEERS, Conversation
from benchmarks.suite.server import Place, Server
from benchmarks.suite.workers import HANDLERS, NOTES, Notes, running
from rowpost.database.connection import connect_url
from rowpost.transport.queue import Queue

WITH_PEERS = True
IDLE, HALF = "idle queue", "half load"
GAP = 0.053  # seconds; not a multiple or divisor of any system's timers
EXACTLY = "exactly once, sender and worker in two processes"


def send_paced(queue: Queue, number: int, gap: float) -> None:
    """Send `number` messages, one every `gap` seconds. Late messages are sent as soon as possible."""
    due = time.monotonic()
    for _ in range(number):
        time.sleep(max(0.0, due - time.monotonic()))
        queue.send(b"%r" % time.monotonic())
        due += gap


class Samples:
    """The latencies of one contender: a median for each round, and p99 and maximum of all rounds."""

    def __init__(self) -> None:
        self._rounds: list[list[float]] = []

    def note(self, waits: list[float], **more: float) -> Round:
        self._rounds.append(waits)
        return Round(percentile(waits, 0.5) * 1000, more)

    def complete(self, line: Line) -> Line:
        if not line.rounds:
            return line
        waits = [wait for each in self._rounds[-len(line.rounds) :] for wait in each]  # without the warm-up round
        shown = {"p95": percentile(waits, 0.95), "p99": percentile(waits, 0.99), "worst": max(waits)}
        return replace(line, more={**{name: seconds * 1000 for name, seconds in shown.items()}, **line.more})


@contextmanager
def noted(server: Server, limit: int = 1) -> Iterator[tuple[Place, Queue, Notes]]:
    """Yield a queue whose workers note how long each message took to its handler, and those notes."""
    with TemporaryDirectory() as folder, server.place("latency", "Bench") as place:
        notes = Notes(Path(folder) / "notes")
        (Path(folder) / "notes").mkdir()
        worker = {"handler": f"{HANDLERS}:timed", "limit": limit, "peek_delay": 1.0}
        with (
            running(place, Path(folder), {"Bench": worker}, {NOTES: str(Path(folder) / "notes")}),
            connect_url("postgresql", place.url, "rowpost benchmark, sending") as database,
        ):
            yield place, Queue("Bench", database), notes


def measure(server: Server, scale: Scale) -> list[Line]:
    with noted(server) as (place, queue, notes):
        return [*_idle(place, queue, notes, scale), *_half(queue, notes, scale)]


def _idle(place: Place, queue: Queue, notes: Notes, scale: Scale) -> list[Line]:
    count = scale.rows(60, least=8)
    stack: list[tuple] = []
    samples = {name: Samples() for name in (OURS, *(peer.name for peer in PEERS))}

    def ours() -> Round:
        send_paced(queue, count, GAP)
        return samples[OURS].note(notes.take(count))

    def theirs(peer) -> Contender:
        talks: list[Conversation] = []

        def once() -> Round:
            if not talks:
                peer.run(place, "install")
                context = peer.talk(place, "serve")
                stack.append((context, context.__enter__()))
                talks.append(stack[-1][1])
            return samples[peer.name].note(talks[0].ask(f"{count} {GAP}"))

        return Contender(peer.name, once, peer.serves, "ms")

    try:
        contenders = [Contender(OURS, ours, EXACTLY, "ms"), *map(theirs, PEERS)]
        return [samples[line.name].complete(line) for line in take_turns(IDLE, contenders, scale.rounds)]
    finally:
        for context, _ in stack:
            context.__exit__(None, None, None)


def _half(queue: Queue, notes: Notes, scale: Scale) -> list[Line]:
    number = max(50, int(1500 * scale.seconds))
    started = time.monotonic()
    send_paced(queue, number, 0.0)
    notes.take(number)
    rate = number / (time.monotonic() - started)
    count, samples = max(50, int(rate / 2 * scale.seconds * 4)), Samples()

    def ours() -> Round:
        started = time.monotonic()
        send_paced(queue, count, 2 / rate)
        sent = count / (time.monotonic() - started)
        return samples.note(notes.take(count), **{"messages/s": sent})

    return [samples.complete(line) for line in take_turns(HALF, [Contender(OURS, ours, EXACTLY, "ms")], scale.rounds)]


def targets(lines: Lines) -> list[Target]:
    return [
        Target("idle queue to handler, median", lines.figure(IDLE), 5.0, at_most=True, unit="ms"),
        Target("idle queue to handler, p99", lines.more(IDLE, "p99"), 25.0, at_most=True, unit="ms"),
    ]
