"""Measure ways to reduce contention of ten hot saga instances, compared with optimistic concurrency control.

    python -m benchmarks.contention [--messages 2000] [--requests 400] [--rounds 3] [--work 0] [--output benchmarks/results/contention.json]

Supervisors with worker processes run on one embedded PostgreSQL with durable commits. Each message changes one of ten
instances, chosen at random, and sends one message. With --work, the handler also waits that many milliseconds, as if it
called another service. All lines handle the same messages with the conflict policy, with both settings of `batch`: `off`
(a transaction for each message) and `adaptive` (the default). Rounds alternate between the lines. A line's figure is the
median of its rounds. Its ratio is the median of the rounds' ratios to optimistic concurrency control with all workers, with
the same setting, and with the one that was faster in that round. A round lasts from the commit that sends all messages to
the commit that handles the last one, including the distribution to partitions. The workers are connected and warmed up.

After each round, each instance's state is compared with a sequential model (in order, if the line guarantees order), and
the sent messages are counted. The exit code is 1 if anything differs. Without --work it is also 1 if no line with
partitions reaches three times the throughput of optimistic concurrency control with all workers and its better setting.

A second table compares the advice of docs/guides/contention.md with its alternatives, with alternating rounds and ratios as
above: a conflict policy for one hot instance; a separate endpoint for a contended saga, to speed up unrelated messages; and
answers gathered in one instance, in chunks, and one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.handlers import advised, contended
from rowpost.database import embedded
from rowpost.database.connection import Connection, connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.endpoint.endpoint import Endpoint
from rowpost.settings.environment import QueueSettings, Settings, SupervisorSettings, WorkerSettings, with_partitions
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from rowpost.workers import events
from rowpost.workers.supervision.supervisor import Supervisor

INSTANCES = 10
RULES = ("off", "adaptive")
HEADER = "Bench.Account"
TARGET_RATIO = 3.0  # to the throughput of optimistic concurrency control
ROUND_TIMEOUT_S = 300.0
WARM_UP_MESSAGES = 20  # for each worker, not measured
ENDS = (QueueSettings(contended.NOTES), QueueSettings("error"))

Messages = list[tuple[str, int]]
Workers = tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class Line:
    """One way to handle the messages: several workers on one queue, or several partitions with one worker each."""

    batch: str
    kind: str
    workers: int
    partitions: int = 0

    @property
    def name(self) -> str:
        if self.partitions:
            return f"{self.kind}, {self.partitions} partitions"
        return f"{self.kind}, " + ("limit 1: sequential" if self.workers == 1 else f"{self.workers} workers")

    @property
    def in_order(self) -> bool:
        """Whether messages of an instance are handled in their order of sending."""
        return bool(self.partitions) or self.workers == 1

    @property
    def table(self) -> str:
        return f'"Hot_{self.kind}"'

    @property
    def queues(self) -> tuple[QueueSettings, ...]:
        """The queues of this line. Messages are sent to the first one."""
        worker = WorkerSettings(
            f"{contended.__name__}:{self.kind}", limit=self.workers, strategy="fixed", batch=self.batch
        )
        parts = tuple(f"Split.p{n}" for n in range(1, self.partitions + 1))
        name = "Split" if parts else "Hot"
        return tuple(with_partitions(QueueSettings(name, worker=worker, partitions=parts, partition_by=HEADER)))


@dataclass(frozen=True)
class Advice:
    """The advised way or an alternative.

    Attributes:
        workers: queues, endpoints and limits.
        job: sends messages, and returns the result of `progress` at which the job is done.
        progress: a query.
    """

    means: str
    name: str
    workers: Workers
    job: Callable[[Connection, int], int]
    progress: str

    @property
    def queues(self) -> tuple[QueueSettings, ...]:
        """The queues, each with its workers."""
        made = (
            (name, WorkerSettings(f"{advised.__name__}:{handler}", limit=limit, strategy="fixed"))
            for name, handler, limit in self.workers
        )
        return tuple(QueueSettings(name, worker=worker) for name, worker in made)

    @property
    def all_workers(self) -> int:
        """The number of worker processes."""
        return sum(limit for *_, limit in self.workers)


def add_to_one(queue: str, milliseconds: float = 0.0) -> Callable[[Connection, int], int]:
    """Create a job that sends messages for one instance."""

    def send(database: Connection, count: int) -> int:
        body = json.dumps({"Account": "hot", "Amount": 1, "Milliseconds": milliseconds}).encode()
        Queue(queue, database).send_many(
            [OutgoingMessage(body, {"NServiceBus.EnclosedMessageTypes": "Bench.Add"})] * count
        )
        return count

    return send


def add_and_others(saga: str, others: str) -> Callable[[Connection, int], int]:
    """Create a job that sends messages for one instance (5 ms each) and as many unrelated ones. Only the latter are counted."""
    hot = add_to_one(saga, 5.0)

    def send(database: Connection, count: int) -> int:
        for _ in range(count // 10):
            hot(database, 5)
            headers = {"NServiceBus.EnclosedMessageTypes": "Bench.Other"}
            Queue(others, database).send_many([OutgoingMessage(b'{"Number":1}', headers)] * 5)
        return count // 10 * 5

    return send


def gather(name: str) -> Callable[[Connection, int], int]:
    """Create a job that sends requests whose answers are gathered. One message reports its end."""
    saga = advised.gatherings[name]

    def send(database: Connection, count: int) -> int:
        with Endpoint(contended.NOTES).open(database) as bus:
            saga.scatter(bus, name, map(advised.Ask, range(count)), to="Gather")
        return 1

    return send


def make_advice(workers: int) -> list[Advice]:
    """Return all ways. The others of the same `means` are compared with the first one."""

    def added(table: str) -> str:
        return f'SELECT (SELECT COALESCE(SUM("Concurrency"), 0) FROM "{table}") + (SELECT COUNT(*) FROM error)'

    noted = f'SELECT COUNT(*) FROM "{contended.NOTES}"'
    few = max(1, workers // 4)
    gathering = {
        "one instance, optimistic": "whole",
        "one instance, pessimistic": "locked",
        "chunks of 20, pessimistic": "tree",
        "one after the other": "in_turn",
    }
    return [
        Advice("policy for conflicts", "five retries at once", (("Impatient", "impatient", workers),), add_to_one("Impatient"), added("Impatient_optimistic")),
        Advice("policy for conflicts", "ConflictPolicy", (("Patient", "patient", workers),), add_to_one("Patient"), added("Patient_optimistic")),
        Advice("endpoint of its own", "saga and others in one", (("Shared", "shared", workers),), add_and_others("Shared", "Shared"), noted),
        Advice("endpoint of its own", "saga in its own", (("Lone", "lone", few), ("Others", "others", workers - few)), add_and_others("Lone", "Others"), noted),
        *(
            Advice("scatter-gather", title, (("Gather", name, workers // 2), ("Stock", "stock", workers // 2)), gather(name), noted)
            for title, name in gathering.items()
        ),
    ]  # fmt: skip


def make_lines(workers: int, partitions: int) -> list[Line]:
    ways = (
        ("optimistic", workers), ("pessimistic", workers), ("optimistic", 2), ("optimistic", 1),
        ("optimistic", 1, partitions), ("pessimistic", 1, partitions),
    )  # fmt: skip
    return [Line(rule, *way) for rule in RULES for way in ways]


@dataclass(frozen=True)
class Round:
    """The result of a round. `runs` is the number of handler runs per message, including those that were rolled back."""

    per_second: float
    failed: int
    runs: float


class Bench:
    """A separate embedded server with the queues and tables of all lines."""

    def __init__(self, folder: Path, lines: list[Line], advice: list[Advice], work: float) -> None:
        self._work = work
        self._runs = folder / "runs"
        self._runs.touch()
        os.environ[contended.RUNS] = str(self._runs)
        url = embedded.start(folder)
        self.database = connect_url("postgresql", url, "rowpost benchmark")
        self.sql = self.database.driver_connection.execute
        self.settings = Settings(url=url, supervisor=SupervisorSettings(maintenance_every=0.0))
        endpoints = (
            contended.optimistic,
            contended.pessimistic,
            advised.impatient,
            advised.patient,
            advised.shared,
            advised.lone,
        )
        gatherers = (advised.whole, advised.locked, advised.tree, advised.in_turn)
        sagas = tuple(saga for endpoint in (*endpoints, *gatherers) for saga in endpoint.sagas)
        self._tables = [saga.name for saga in sagas]
        queues = {queue.name: queue for line in (*lines, *advice) for queue in line.queues}
        apply(self.database, plan(replace(self.settings, queues=(*queues.values(), *ENDS), sagas=sagas)))

    def round(self, line: Line, messages: Messages) -> Round:
        """Measure one line, and check every message."""
        with self._supervisor(line.queues, line.workers * max(1, line.partitions)) as (supervisor, check):
            self._handle(
                line,
                [(f"warm {n}", n) for n in range(WARM_UP_MESSAGES * line.workers * max(1, line.partitions))],
                check,
            )
            failed, runs = failures(supervisor), self._runs.stat().st_size
            seconds = self._handle(line, messages, check)
        self._compare(line, messages)
        failed, runs = failures(supervisor) - failed, self._runs.stat().st_size - runs
        return Round(len(messages) / seconds, failed, runs / len(messages))

    def advised(self, advice: Advice, count: int) -> Round:
        """Measure a job done one way. `failed` is the number of messages in the error queue."""
        with self._supervisor(advice.queues, advice.all_workers) as (supervisor, check):
            self._do(advice, 20, check, supervisor)
            for name in (*self._tables, contended.NOTES, "error"):
                self.sql(f'TRUNCATE "{name}"')
            runs = failures(supervisor)
            seconds = self._do(advice, count, check, supervisor)
            runs = failures(supervisor) - runs
        failed = Queue("error", self.database).peek(count + 1)
        for name in (*self._tables, contended.NOTES, "error"):
            self.sql(f'TRUNCATE "{name}"')
        return Round(count / seconds, failed, 1 + runs / count)

    def _do(self, advice: Advice, count: int, check: Callable[[], None], supervisor: Supervisor) -> float:
        with self.database.transaction():
            wanted = advice.job(self.database, count)
        started = time.monotonic()
        while self.sql(advice.progress).fetchone()[0] < wanted:
            check()
        seconds = time.monotonic() - started
        while not supervisor.snapshot().idle or any(
            Queue(queue.name, self.database).peek(1) for queue in advice.queues
        ):
            check()
        return seconds

    @contextmanager
    def _supervisor(
        self, queues: tuple[QueueSettings, ...], workers: int
    ) -> Iterator[tuple[Supervisor, Callable[[], None]]]:
        """Run a supervisor with connected workers, and yield it with a function that waits 10 ms and exits if the supervisor has ended."""
        reported: list[events.Event] = []
        supervisor = Supervisor(replace(self.settings, queues=(*queues, *ENDS)), reported.append)
        thread = threading.Thread(target=supervisor.run)
        thread.start()
        deadline = time.monotonic() + ROUND_TIMEOUT_S

        def check() -> None:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise SystemExit(
                    f"{queues}: the supervisor ended, or the round took more than {ROUND_TIMEOUT_S} s. Its last events: {reported[-5:]}"
                )
            time.sleep(0.01)

        try:
            while sum(isinstance(event, events.WorkerStarted) for event in tuple(reported)) < workers:
                check()
            yield supervisor, check
        finally:
            supervisor.stop()
            thread.join()

    def _handle(self, line: Line, messages: Messages, check: Callable[[], None]) -> float:
        """Send all messages in one transaction. Return the seconds until each has created one version of its instance."""
        self.sql(f'TRUNCATE {line.table}, "{contended.NOTES}"')
        outgoing = [
            OutgoingMessage(
                json.dumps({"Account": account, "Amount": amount, "Milliseconds": self._work}).encode(),
                {"NServiceBus.EnclosedMessageTypes": "Bench.Add", HEADER: account},
            )
            for account, amount in messages
        ]
        with self.database.transaction():
            Queue(line.queues[0].name, self.database).send_many(outgoing)
        started = time.monotonic()
        while self.sql(f'SELECT COALESCE(SUM("Concurrency"), 0) FROM {line.table}').fetchone()[0] < len(messages):
            check()
        return time.monotonic() - started

    def _compare(self, line: Line, messages: Messages) -> None:
        model: dict[str, list[int]] = {}
        for account, amount in messages:
            total, versions, chain = model.get(account, (0, 0, 0))
            model[account] = [total + amount, versions + 1, contended.follow(chain, amount)]
        rows = self.sql(
            f'SELECT "Correlation_Account", ("Data" ->> \'Total\')::integer, "Concurrency", ("Data" ->> \'Chain\')::integer FROM {line.table}'
        )
        compared = 3 if line.in_order else 2
        found = {account: state[:compared] for account, *state in rows}
        if found != {account: state[:compared] for account, state in model.items()}:
            raise SystemExit(f"{line}: the states differ from the sequential model: {found} instead of {model}")
        depths = {
            queue.name: Queue(queue.name, self.database).peek(len(messages) + 1) for queue in (*line.queues, *ENDS)
        }
        if depths.pop(contended.NOTES) != len(messages) or any(depths.values()):
            raise SystemExit(
                f"{line}: messages remain, or the number of notifications differs from the number of messages: {depths}"
            )


def failures(supervisor: Supervisor) -> int:
    return sum(queue.failed for queue in supervisor.snapshot().queues)


def measure(bench: Bench, lines: list[Line], messages: Messages, rounds: int) -> list[dict]:
    found: dict[Line, list[Round]] = {line: [] for line in lines}
    for _ in range(rounds):
        for line in lines:
            found[line].append(bench.round(line, messages))
    base = {
        line.batch: found[line]
        for line in reversed(lines)
        if line.kind == "optimistic" and not line.partitions and line.workers > 2
    }
    best = [max(base[rule][n].per_second for rule in RULES) for n in range(rounds)]

    def ratio(line: Line, to: list[float]) -> float:
        return round(statistics.median(one.per_second / other for one, other in zip(found[line], to, strict=True)), 2)

    return [
        {
            "batches": line.batch,
            "name": line.name,
            "partitions": line.partitions,
            "per_second": round(statistics.median(one.per_second for one in found[line])),
            "rounds": [round(one.per_second) for one in found[line]],
            "failed_attempts": round(statistics.median(one.failed for one in found[line])),
            "runs_per_message": round(statistics.median(one.runs for one in found[line]), 2),
            "ratio_same_rule": ratio(line, [one.per_second for one in base[line.batch]]),
            "ratio_better_rule": ratio(line, best),
        }
        for line in lines
    ]


def measure_advice(bench: Bench, advice: list[Advice], count: int, rounds: int) -> list[dict]:
    """Measure all ways, and compare each with the first of its `means`."""
    found: dict[Advice, list[Round]] = {each: [] for each in advice}
    for _ in range(rounds):
        for each in advice:
            found[each].append(bench.advised(each, count))
    results = []
    for each in advice:
        first = found[next(other for other in advice if other.means == each.means)]
        ratios = [one.per_second / other.per_second for one, other in zip(found[each], first, strict=True)]
        results.append(
            {
                "means": each.means,
                "name": each.name,
                "per_second": round(statistics.median(one.per_second for one in found[each])),
                "rounds": [round(one.per_second) for one in found[each]],
                "ratio": round(statistics.median(ratios), 2),
                "attempts_per_message": round(statistics.median(one.runs for one in found[each]), 2),
                "in_error_queue": round(statistics.median(one.failed for one in found[each])),
            }
        )
    return results


def advice_table(results: list[dict], count: int) -> Table:
    """Return the second table."""
    table = Table(
        "means",
        "",
        "messages/s",
        "rounds",
        "ratio",
        "attempts per message",
        "in the error queue",
        title=f"{count:,} messages or requests",
    )
    for one in results:
        rounds = f"{min(one['rounds']):,} to {max(one['rounds']):,}"
        table.add_row(
            one["means"], one["name"], f"{one['per_second']:,}", rounds, f"{one['ratio']:.2f}",
            f"{one['attempts_per_message']:.2f}", f"{one['in_error_queue']:,}",
        )  # fmt: skip
    return table


def as_table(results: list[dict], options: argparse.Namespace) -> Table:
    title = f"{options.messages:,} messages, {INSTANCES} instances; each sends one message, and its handler waits {options.work:g} ms"
    base = f"to optimistic, {options.workers} workers"
    columns = (
        "batches",
        "",
        "messages/s",
        "rounds",
        "failed attempts",
        "runs per message",
        f"{base}, same batches",
        f"{base}, better batches",
    )
    table = Table(*columns, title=title)
    for one in results:
        table.add_row(
            one["batches"], one["name"], f"{one['per_second']:,}", f"{min(one['rounds']):,} to {max(one['rounds']):,}",
            f"{one['failed_attempts']:,}", f"{one['runs_per_message']:.2f}", f"{one['ratio_same_rule']:.2f}",
            f"{one['ratio_better_rule']:.2f}",
        )  # fmt: skip
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--work", type=float, default=0.0, help="milliseconds that a handler waits while it holds the state"
    )
    parser.add_argument("--workers", type=int, default=8, help="at least 3")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument(
        "--requests", type=int, default=400, help="messages and requests of the second table; 0 omits it"
    )
    parser.add_argument(
        "--output", type=Path, help="write the results as JSON to this file, and the tables to a .txt file"
    )
    options = parser.parse_args()
    source = random.Random(2026)
    messages = [(f"account {source.randrange(INSTANCES)}", source.randrange(1, 100)) for _ in range(options.messages)]
    lines, advice = make_lines(options.workers, options.partitions), make_advice(options.workers)
    with tempfile.TemporaryDirectory(prefix="rowpost-contention-") as folder:
        try:
            bench = Bench(Path(folder), lines, advice, options.work)
            results = measure(bench, lines, messages, options.rounds)
            of_advice = measure_advice(bench, advice, options.requests, options.rounds) if options.requests else []
        finally:
            embedded.stop(Path(folder))
    tables = [as_table(results, options), *([advice_table(of_advice, options.requests)] if of_advice else [])]
    Console().print(*tables)
    if options.output:
        known = {
            "messages": options.messages,
            "instances": INSTANCES,
            "work_ms": options.work,
            "workers": options.workers,
        }
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(
            json.dumps(known | {"results": results, "advice": of_advice}, indent=2) + "\n", encoding="utf-8"
        )
        with options.output.with_suffix(".txt").open("w", encoding="utf-8") as file:
            Console(file=file, width=150).print(*tables)
    return (
        0
        if options.work or max(one["ratio_better_rule"] for one in results if one["partitions"]) >= TARGET_RATIO
        else 1
    )


if __name__ == "__main__":
    raise SystemExit(main())
