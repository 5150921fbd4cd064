"""Measure the microseconds of each step of one message, for benchmarks/profile.md.

    python -m benchmarks.steps [--rounds 30]

Prints a table in Markdown. The steps are those of a worker that handles messages in batches of 100 on a separate
PostgreSQL, with one business INSERT and one outgoing message each. `client` and `server` are the processor time of this
process and of its backend. Other programs on the machine affect them little. `wall` is the median round, including the
wait for the disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

from benchmarks.handlers.worked import Follow, Work, insert, nothing
from rowpost.database import embedded
from rowpost.database.connection import Connection, connect_url
from rowpost.database.dialects.postgresql import libpq
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.handling.context import Context
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.pipeline.pipeline import Pipeline
from rowpost.pipeline.timings import Stopwatch, measure
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.transport.queue import Queue
from rowpost.wire.message import Message, OutgoingMessage, decode_headers, encode_headers
from rowpost.workers.protocol import InFlight, Tally

BATCH = 100
TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")  # one tick in /proc
HEADERS = {
    "NServiceBus.MessageId": "43e9c0c6-57a8-4513-b15a-b43b0169b465",
    "NServiceBus.ConversationId": "81bd5f1d-8bd6-4a32-8a2f-b43b0169b465",
    "NServiceBus.CorrelationId": "43e9c0c6-57a8-4513-b15a-b43b0169b465",
    "NServiceBus.MessageIntent": "Send",
    "NServiceBus.EnclosedMessageTypes": "Bench.Work, Bench",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.OriginatingEndpoint": "Bench",
    "NServiceBus.TimeSent": "2026-04-29 21:56:55:590807 Z",
}


class Steps:
    """Measure and collect (step, client, server, wall) in microseconds per message."""

    def __init__(self, database: Connection) -> None:
        self.database = database
        self.rows: list[tuple[str, float, float | None, float | None]] = []

    def backend(self) -> float:
        """Return the processor time of the backend so far in microseconds."""
        stat = (
            Path(f"/proc/{self.database.driver_connection.info.backend_pid}/stat")
            .read_text()
            .rpartition(")")[2]
            .split()
        )
        return (int(stat[11]) + int(stat[12])) * TICK_US

    def python(self, step: str, run: Callable[[], object], number: int = 20_000) -> None:
        """Measure a step without a database."""
        seconds = min(timeit.repeat(run, number=number, repeat=5, timer=time.process_time))
        self.rows.append((step, seconds / number * 1e6, None, None))

    def trips(self, rounds: int, **steps: Callable[[], object]) -> None:
        """Measure steps with round trips, one after the other in each round of BATCH messages."""
        client, server, wall = ({step: [] for step in steps} for _ in range(3))
        for _ in range(rounds):
            for step, run in steps.items():
                before = time.process_time(), self.backend(), time.perf_counter()
                run()
                for found, now, then in zip(
                    (client, server, wall),
                    (time.process_time(), self.backend(), time.perf_counter()),
                    before,
                    strict=True,
                ):
                    found[step].append(now - then)
        for step in steps:
            name = step.replace("_", " ")
            self.rows.append((
                name,
                statistics.mean(client[step]) / BATCH * 1e6,
                statistics.mean(server[step]) / BATCH,
                statistics.median(wall[step]) / BATCH * 1e6,
            ))  # fmt: skip

    def show(self) -> None:
        print("| step | client | server | wall |\n|---|---:|---:|---:|")
        for step, *times in self.rows:
            cells = ("" if each is None else f"{each:.1f}" for each in times)
            print(f"| {step} | {' | '.join(cells)} |")


def python_steps(steps: Steps, row: tuple) -> None:
    message, tally, watch, in_flight = Message(*row), Tally(), Stopwatch(), InFlight(bytearray(InFlight.SIZE))
    context, outcome = Context(nothing, steps.database, message), Outcome(Kind.HANDLED, 1, message.id)
    steps.python("a row becomes a Message, its headers a dict", lambda: Message(*row).headers)
    steps.python("types to handlers", lambda: nothing._handlers.find(message))
    steps.python("body to class", lambda: nothing._handlers.decode(message, Work))
    steps.python(
        "Endpoint.handle with a no-op handler (context, these two, checks)",
        lambda: nothing.handle(message, steps.database),
    )
    steps.python("context.send", lambda: context.send(Follow(1), to="Follow"))
    context.outgoing.clear()
    steps.python("headers of an outgoing message to text", lambda: encode_headers(HEADERS))
    steps.python("headers of an incoming message from text", lambda: decode_headers(row[3]))
    steps.python(
        "the in-flight message, for time limits and crashes", lambda: (in_flight.starting(message), in_flight.ended())
    )
    steps.python("outcome and tally", lambda: tally.add(Outcome(Kind.HANDLED, outcome.row_version, outcome.id)))
    steps.python(
        "critical and processing time", lambda: watch.measured(measure(Kind.HANDLED, [(message.headers, 0.0)], 2e9))
    )


def trip_steps(steps: Steps, rounds: int) -> None:
    database = steps.database
    connection, groups, rows = database.driver_connection, [], []

    def receive() -> None:
        rows[:] = database.call("receive_messages", "Bench", begin="commit_guarded", count=BATCH)

    def inserts() -> None:
        for number in range(BATCH):
            connection.execute("INSERT INTO business (number) VALUES (%s)", (number,))

    def sends() -> None:
        groups.clear()
        for row in rows:
            context = Context(insert, database, Message(*row))
            context.send(Follow(1), to="Follow")
            groups.append(context.outgoing)

    steps.trips(
        rounds, begin_commit_guarded_and_receive=receive, one_business_INSERT_each=inserts, one_context_send_each=sends,
        outgoing_messages_and_commit=lambda: insert.dispatch(database, groups, commit="commit_guarded"),
    )  # fmt: skip
    database.begin()
    command = prepared_command(connection, b"RELEASE SAVEPOINT s; SAVEPOINT s")
    connection.execute("SAVEPOINT s")
    steps.trips(rounds, a_savepoint_each_which_batches_do_without=lambda: [command() for _ in range(BATCH)])
    database.rollback()


def prepared_command(connection, text: bytes) -> Callable[[], None]:
    return lambda: libpq.command(connection, text)


def whole(steps: Steps, endpoint, size: int, rounds: int, name: str) -> None:
    """Measure all steps together, as a worker executes them."""
    pipeline = Pipeline(steps.database, "Bench", endpoint)
    batches = Batches(pipeline, BatchSize(size, None, now=size))

    def run() -> None:
        for _ in range(BATCH // size):
            batches.process()

    steps.trips(rounds, **{name: run})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help=f"rounds of {BATCH} messages")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="rowpost-bench-") as folder:
        url = embedded.start(Path(folder))
        with connect_url("postgresql", url, "rowpost benchmark") as database:
            apply(database, plan(Settings(url=url, queues=tuple(map(QueueSettings, ("Bench", "Follow", "error"))))))
            database.driver_connection.execute("CREATE TABLE business (number integer NOT NULL)")
            queue = Queue("Bench", database)
            messages = [OutgoingMessage(b'{"Number":%d}' % number, HEADERS) for number in range(rounds * BATCH * 5)]
            queue.send_many([OutgoingMessage(b'{"Number":1}', HEADERS), *messages])
            database.driver_connection.execute("VACUUM ANALYZE")
            steps = Steps(database)
            (row,) = database.call("receive_messages", "Bench", count=1)
            python_steps(steps, row)
            trip_steps(steps, rounds)
            whole(steps, nothing, BATCH, rounds, "all of it, no-op, in batches of 100")
            whole(steps, insert, BATCH, rounds, "all of it, INSERT and send, in batches of 100")
            whole(steps, insert, 1, rounds, "all of it, INSERT and send, one by one")
            steps.show()
        embedded.stop(Path(folder))


if __name__ == "__main__":
    main()
