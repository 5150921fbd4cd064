"""An endpoint at work, beside procrastinate and pgqueuer doing the same on the same server in the same run.

    python benchmarks/endpoint.py [--rounds 5] [--seconds 2] [--output benchmarks/results/endpoint.json]

Handled messages per second by one and by two worker processes, on a backlog, durable commits on:

    insert   one business INSERT and one outgoing message (for the peers: one follow-up job) for each message
    no-op    a handler that does nothing

Rounds alternate between the contenders; each begins with a backlog that takes it about --seconds. Every line's figure
is the median of its rounds, its ratio the median of the rounds' ratios to the faster peer of the same round. After each
round rows are counted: as many business rows and follow-ups as messages, and nothing left.

The peers are installed into benchmarks/.peers when they are missing; what they do for their figure stands in peers/.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this folder, where queue.py would hide the standard library's queue

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rowpost import embedded
from rowpost.database import Database, connect_url
from rowpost.deploy import apply
from rowpost.message import OutgoingMessage
from rowpost.plan import plan
from rowpost.processes import spawn_worker
from rowpost.queue import Queue
from rowpost.reports import Assignment, Leave, Progress, Ready, Receive
from rowpost.settings import QueueSettings, Settings

HERE = Path(__file__).parent
PEERS = HERE / "peers"
VENV = HERE / ".peers"
WORKS = ("insert", "no-op")
PROCESSES = (1, 2)
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
START_WITH = 400  # messages of the first, unmeasured round, which tells how many a round needs
DEADLINE = 120.0  # seconds a round may take


@dataclass(frozen=True)
class Contender:
    """Somebody who works off a backlog. `tables` are emptied before each round; `count_work` and `count_follow` check it."""

    name: str
    guarantee: str
    tables: str
    fill: Callable[[Bench, str, int], None]
    work: Callable[[Bench, str, int], float]
    count_work: str
    count_follow: str


class Bench:
    """An embedded server of its own with the queues of all contenders."""

    def __init__(self, folder: Path) -> None:
        self.url = embedded.start(folder)
        self.database: Database = connect_url("postgresql", self.url, "rowpost benchmark")
        self.sql = self.database.connection.execute
        self.settings = Settings(url=self.url, queues=tuple(map(QueueSettings, ("Bench", "Follow", "error"))))
        apply(self.database, plan(self.settings))
        self.sql("CREATE TABLE business (number integer NOT NULL)")
        for peer in ("procrastinate", "pgqueuer"):
            self.peer(peer, "install")

    def value(self, text: str):
        return self.sql(text).fetchone()[0]

    def peer(self, name: str, *arguments: str) -> None:
        """A step of a peer that is not measured."""
        command = [VENV / "bin" / "python", PEERS / f"{name}_jobs.py", self.url, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name} {arguments} failed: {done.stderr}")

    def round(self, contender: Contender, work: str, processes: int, count: int) -> float:
        """Messages per second; every row is accounted for."""
        self.sql(f"TRUNCATE business, {contender.tables}")
        contender.fill(self, work, count)
        self.sql("VACUUM ANALYZE")
        self.sql("CHECKPOINT")
        seconds = contender.work(self, work, processes)
        rows = (self.value("SELECT COUNT(*) FROM business"), self.value(contender.count_follow))
        wanted = (count, count) if work == "insert" else (0, 0)
        left = self.value(contender.count_work)
        if rows != wanted or left:
            raise SystemExit(f"{contender.name}, {work}: {rows} rows instead of {wanted}, {left} left: the benchmark is wrong")
        return count / seconds


def fill_ours(bench: Bench, work: str, count: int) -> None:
    Queue("Bench", bench.database).send_many(OutgoingMessage(b'{"Number":%d}' % n, HEADERS) for n in range(count))


def work_ours(bench: Bench, work: str, processes: int) -> float:
    """The worker processes of `rowpost run`, told to receive until nothing is left."""
    handler = f"rowpost_endpoint:{'insert' if work == 'insert' else 'nothing'}"
    workers = [spawn_worker(Assignment(bench.settings, "Bench", handler, number)) for number in range(1, processes + 1)]
    try:
        for worker in workers:
            hear(worker, Ready)
        started = time.monotonic()
        for worker in workers:
            worker.tell(Receive(1))
        for worker in workers:
            hear(worker, Progress, lambda report: report.round == 1 and not report.busy)
        return time.monotonic() - started
    finally:
        for worker in workers:
            worker.tell(Leave())
            worker.close()


def hear(worker, kind: type, condition: Callable = lambda report: True) -> None:
    """Waits for a report."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        for report in worker.heard():
            if isinstance(report, kind) and condition(report):
                return
            if isinstance(report, Progress) and report.failures:
                raise SystemExit(f"a handler failed: {report.failures[0].error}")
        time.sleep(0.002)
    raise SystemExit(f"no {kind.__name__} within {DEADLINE} s")


def peer(name: str) -> dict[str, Callable]:
    """How a peer is filled and worked: the seconds from the word to its last handler's end."""

    def fill(bench: Bench, work: str, count: int) -> None:
        bench.peer(name, "fill", work, str(count))

    def run(bench: Bench, work: str, processes: int) -> float:
        command = [VENV / "bin" / "python", PEERS / f"{name}_jobs.py", bench.url, "work"]
        started = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for _ in range(processes)
        ]
        for process in started:
            assert process.stdout.readline() == "ready\n", f"{name} does not start"
        begun = time.monotonic()
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        ended = [float(process.communicate(timeout=DEADLINE)[0]) for process in started]
        return max(ended) - begun

    return {"fill": fill, "work": run}


CONTENDERS = (
    Contender(
        "rowpost", "exactly once: removal, INSERT and outgoing message in one transaction", '"Bench", "Follow"',
        fill_ours, work_ours, 'SELECT COUNT(*) FROM "Bench"', 'SELECT COUNT(*) FROM "Follow"',
    ),
    Contender(
        "pgqueuer", "at least once: INSERT and follow-up in one transaction, the job's end in another",
        "pgqueuer, pgqueuer_log, pgqueuer_statistics", **peer("pgqueuer"),
        count_work="SELECT COUNT(*) FROM pgqueuer WHERE entrypoint <> 'follow'",
        count_follow="SELECT COUNT(*) FROM pgqueuer WHERE entrypoint = 'follow'",
    ),
    Contender(
        "procrastinate", "at least once: INSERT and follow-up in one transaction, the job's end in another",
        "procrastinate_jobs CASCADE", **peer("procrastinate"),
        count_work="SELECT COUNT(*) FROM procrastinate_jobs WHERE queue_name = 'work'",
        count_follow="SELECT COUNT(*) FROM procrastinate_jobs WHERE queue_name = 'follow'",
    ),
)  # fmt: skip


def install_peers() -> None:
    """Into a virtual environment of their own, once."""
    if (VENV / "complete").exists():
        return
    Console(stderr=True).print(f"installing the peers into {VENV} ...")
    venv.create(VENV, with_pip=True)
    pip = [VENV / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", HERE / "requirements-peers.txt"], check=True)
    (VENV / "complete").touch()


def measure(bench: Bench, work: str, processes: int, rounds: int, seconds: float) -> list[dict]:
    """One workload with so many processes: a result for each contender."""
    counts = {}
    for each in CONTENDERS:  # warms up, and tells how many messages make a round
        quick = bench.round(each, work, processes, START_WITH)
        sure = bench.round(each, work, processes, max(START_WITH, int(quick * seconds / 2)))
        counts[each] = max(START_WITH, int(sure * seconds))
    rates = {each: [] for each in CONTENDERS}
    for _ in range(rounds):
        for each in CONTENDERS:
            rates[each].append(bench.round(each, work, processes, counts[each]))
    best = [max(rates[peer][n] for peer in CONTENDERS[1:]) for n in range(rounds)]
    return [
        {
            "work": work,
            "workers": processes,
            "name": each.name,
            "per_second": round(statistics.median(rates[each])),
            "rounds": [round(rate) for rate in rates[each]],
            "ratio": round(statistics.median(rate / top for rate, top in zip(rates[each], best, strict=True)), 2),
            "messages": counts[each],
            "guarantee": each.guarantee,
        }
        for each in CONTENDERS
    ]


def as_table(results: list[dict]) -> Table:
    table = Table("work", "workers", "", "messages/s", "rounds", "to the faster peer", "what it does for it")
    for one in results:
        spread = f"{min(one['rounds']):,} to {max(one['rounds']):,}"
        table.add_row(
            one["work"], str(one["workers"]), one["name"], f"{one['per_second']:,}", spread, f"{one['ratio']:.2f}",
            one["guarantee"], end_section=one["name"] == CONTENDERS[-1].name,
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="about how long a round takes")
    parser.add_argument("--work", choices=WORKS, help="only this one")
    parser.add_argument("--workers", type=int, choices=PROCESSES, help="only so many")
    parser.add_argument("--output", type=Path, help="write the results as JSON, and the table beside it")
    options = parser.parse_args()
    install_peers()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PEERS), os.environ.get("PYTHONPATH")]))
    sys.path.append(str(PEERS))
    with tempfile.TemporaryDirectory(prefix="rowpost-bench-") as folder:
        bench = Bench(Path(folder))
        try:
            durable = {name: bench.value(f"SHOW {name}") for name in ("fsync", "synchronous_commit")}
            assert set(durable.values()) == {"on"}, durable
            results = [
                line
                for work in WORKS
                for processes in PROCESSES
                if options.work in (None, work) and options.workers in (None, processes)
                for line in measure(bench, work, processes, options.rounds, options.seconds)
            ]
            server = bench.value("SHOW server_version")
        finally:
            bench.database.close()
            embedded.stop(Path(folder))
    Console(width=150).print(as_table(results))
    if options.output:
        about = {"postgresql": server, "python": platform.python_version(), "cores": os.cpu_count(), **durable}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps({"about": about | {"rounds": options.rounds}, "lines": results}, indent=1) + "\n")
        with options.output.with_suffix(".txt").open("w") as file:
            Console(file=file, width=150).print(as_table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
