"""Response times of the dashboard's pages: 200 queues, one with a million messages, and an error queue with 100,000.

    python -m benchmarks.dashboard [--queues 200] [--messages 1000000] [--rounds 40]

It starts a PostgreSQL of its own in a temporary folder, and ends with 1 if the 95th percentile of a page is above 200 ms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import psycopg

from rowpost.dashboard import app
from rowpost.dashboard.access import LoopbackAccess
from rowpost.dashboard.server import listen, make_server
from rowpost.database import embedded
from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.settings.environment import QueueSettings, Settings

__all__ = ["main"]

GOAL_MS, FAILED = 200, 100_000
HEADERS = (
    '{"NServiceBus.MessageId":"\' || gen_random_uuid() || \'","NServiceBus.EnclosedMessageTypes":"Shop.Messages.PlaceOrder, Shop",'
    '"NServiceBus.TimeSent":"2026-04-29 21:56:55:590807 Z"'
)
FAILURE = (
    ',"NServiceBus.FailedQ":"Queue001","NServiceBus.TimeOfFailure":"2026-04-29 21:58:00:406166 Z",'
    '"NServiceBus.ExceptionInfo.ExceptionType":"Shop.Error\' || g % 40 || \'","NServiceBus.ExceptionInfo.Message":"order \' || g || \' failed",'
    "\"NServiceBus.ExceptionInfo.StackTrace\":\"' || repeat('   at Shop.Orders.Handle(PlaceOrder message) in Orders.cs', 30) || '\""
)


def fill(url: str, queues: int, messages: int) -> None:
    """Deploy the queues, and fill two of them."""
    names = [f"Queue{number:03}" for number in range(1, queues - 1)] + ["error", "audit"]
    with connect_url("postgresql", url) as database:
        apply(database, plan(Settings(url=url, queues=tuple(QueueSettings(name) for name in names))))
    with psycopg.connect(url, autocommit=True) as connection:
        for table, count, headers in (
            ("Queue001", messages, HEADERS + "}"),
            ("error", min(FAILED, messages), HEADERS + FAILURE + "}"),
        ):
            connection.execute(
                f"INSERT INTO \"{table}\" (id, headers, body) SELECT gen_random_uuid(), '{headers}', convert_to('{{\"OrderId\":' || g || '}}', 'UTF8')"
                f" FROM generate_series(1, {count}) AS g"
            )
            connection.execute(f'VACUUM ANALYZE "{table}"')


def measure(client: httpx.Client, path: str, rounds: int) -> list[float]:
    """Return the times of a page in milliseconds; the first answer does not count."""
    times = []
    for number in range(rounds + 1):
        began = time.perf_counter()
        answer = client.get(path)
        took = (time.perf_counter() - began) * 1000
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
        if number:
            times.append(took)
    return times


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", type=int, default=200)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rowpost-dashboard-") as folder:
        url = embedded.start(Path(folder))
        try:
            began = time.monotonic()
            fill(url, chosen.queues, chosen.messages)
            print(f"{chosen.queues} queues, {chosen.messages:,} messages, made in {time.monotonic() - began:.0f} s")
            return _measured(url, chosen.rounds)
        finally:
            embedded.stop(Path(folder))


def _measured(url: str, rounds: int) -> int:
    site = app(Settings(environment="benchmark", url=url), access=LoopbackAccess())
    with listen("127.0.0.1", 0) as opened:
        server = make_server(site)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        slow = False
        with httpx.Client(base_url=f"http://127.0.0.1:{opened.getsockname()[1]}", timeout=60) as client:
            client.get("/")
            found = client.get("/api/v1/failed", params={"count": 1}).json()
            row = found["messages"][0]["row_version"]
            paths = {
                "queues": "/", "queues, measured anew": "/", "a queue of many messages": "/queue/Queue001", "a message": "/message/1/Queue001",
                "failed messages": "/failed", "one cause": f"/failed?cause={found['groups'][0]['key']}", "a failed message": f"/failed/{row}",
                "a message followed": f"/follow?id={found['messages'][0]['message_id']}", "a conversation": "/follow?conversation=7c1f0f52-4a6e-4b7e-9d3c-2f1f5a3e8d10",
                "subscriptions": "/subscriptions", "workers": "/workers", "sagas": "/sagas", "deployment": "/deployment",
            }  # fmt: skip
            print(f"\n| page | median | 95th percentile |\n|---|---|---|  (goal: {GOAL_MS} ms)")
            for name, path in paths.items():
                times = _anew(site, client, path, rounds) if "anew" in name else measure(client, path, rounds)
                high = statistics.quantiles(times, n=20)[-1]
                slow = slow or high > GOAL_MS
                print(f"| {name} | {statistics.median(times):.0f} ms | {high:.0f} ms |")
        server.should_exit = True
        thread.join(20)
    return int(slow)


def _anew(site: object, client: httpx.Client, path: str, rounds: int) -> list[float]:
    """The times of a page that measures all queues itself, because the last figures are too old."""
    times = []
    for _ in range(rounds):
        site.state.site.monitor.expire()  # type: ignore[attr-defined]
        began = time.perf_counter()
        client.get(path).raise_for_status()
        times.append((time.perf_counter() - began) * 1000)
    return times


if __name__ == "__main__":
    sys.exit(main())
