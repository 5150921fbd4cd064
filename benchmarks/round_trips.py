"""Count the round trips and the texts of each operation on SQL Server, through a proxy that reads TDS.

    ROWPOST_TEST_SQLSERVER='Server=…;UID=…;PWD=…;Encrypt=no' PYTHONPATH=pycontrol python -m benchmarks.round_trips

The login may create databases: a new one is made and dropped. No time is measured. `benchmarks/tds.py` has the proxy. All
columns but the last are numbers for one operation. The last one counts the different texts of all repetitions.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.suite.server import BODY, HEADERS
from benchmarks.suite.tsql import new_database
from benchmarks.tds import Request, through_proxy
from rowpost.database.connection import Connection, connect_url
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage

__all__ = ["count", "main", "table"]

REPEATS = 20
RESULT = Path(__file__).parent / "results" / "round-trips.json"
PREPARES = ("sp_prepare", "sp_prepexec", "sp_prepexecrpc")


def operations(database: Connection) -> dict[str, Callable[[int], object]]:
    """Return each operation by its name, as a function of the number of its repetition."""
    queue = Queue("Sales", database)
    messages = [OutgoingMessage(BODY, dict(HEADERS)) for _ in range(100)]

    def receive(count: int, after: int | None) -> None:
        database.call("receive_messages", "Sales", begin=True, count=count, after_row_version=after)

    def sends(number: int) -> list[tuple[str, str | None, dict[str, object]]]:
        values = {"headers": "{}", "body": BODY, "id": None, "time_to_be_received_ms": None}
        return [("send_message", name, dict(values)) for name in ("Sales", "Billing")[:number]]

    def publish(topic: str) -> None:
        event = {"topics": [topic], "headers": "{}", "body": BODY}
        database.call_all([("publish_message", None, event)], begin=True, commit=True)

    def one_by_one(after: int | None) -> None:
        receive(1, after)
        database.commit()

    def with_sends(after: int | None) -> None:
        receive(100, after)
        database.call_all(sends(2), commit=True)

    return {
        "send one message": lambda _: queue.send(BODY, HEADERS),
        "send 100 messages": lambda _: queue.send_many(messages),
        "send to two queues, in one transaction": lambda _: database.call_all(sends(2), begin=True, commit=True),
        "publish to one queue": lambda _: publish("Shop.Placed"),
        "publish to two queues": lambda _: publish("Shop.Paid"),
        "receive and commit, from the queue's start": lambda _: one_by_one(None),
        "receive and commit, above a row version": lambda number: one_by_one(number + 2),
        "receive 100, send to two queues, commit": lambda number: with_sends(number + 2),
        "peek at the depth": lambda _: database.call("peek_queue", "Sales", count=100),
        "browse a page, above a row version": lambda number: queue.browse(1, number + 2, 0),
    }


def count(url: str) -> dict[str, dict[str, float]]:
    """Return, by operation: round trips, prepared statements and different ad hoc texts, each for one operation."""
    found = {}
    with through_proxy(url) as (behind, requests), connect_url("sqlserver", behind, "rowpost round trips") as database:
        for topic, queue in (("Shop.Placed", "Sales"), ("Shop.Paid", "Sales"), ("Shop.Paid", "Billing")):
            database.call("subscribe", endpoint=queue, topic=topic, queue_address=f"{queue}@[dbo]")
        for name, operation in operations(database).items():
            operation(-1)  # the first call of a connection may ask for more
            requests.clear()
            for number in range(REPEATS):
                operation(number)
            found[name] = figures(list(requests))
    return found


def figures(requests: list[Request]) -> dict[str, float]:
    """Return the figures of `REPEATS` repetitions, for one of them."""
    rpcs = [each.text for each in requests if each.kind == "RPC"]
    texts = [each.text for each in requests if each.kind == "SQLBatch"]
    prepared, unprepared = sum(text in PREPARES for text in rpcs), rpcs.count("sp_unprepare")
    others = len(requests) - len(texts) - prepared - unprepared
    counted = {
        "round trips": len(requests),
        "batches": len(texts),
        "prepared": prepared,
        "unprepared": unprepared,
        "others": others,
    }
    return {**{name: number / REPEATS for name, number in counted.items()}, "different ad hoc texts": len(set(texts))}


def table(found: dict[str, dict[str, float]]) -> str:
    """Return the figures as a table in Markdown."""
    columns = list(next(iter(found.values())))
    lines = [f"| operation | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(f'{each:g}' for each in values.values())} |" for name, values in found.items()]
    return "\n".join(lines)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.round_trips", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--label", default="now", help="the name of the figures in the file of results (%(default)s)")
    parser.add_argument(
        "--output", type=Path, default=RESULT, help="the file of results; figures with other labels stay"
    )
    options = parser.parse_args()
    server = os.environ.get("ROWPOST_TEST_SQLSERVER")
    if not server:
        parser.error("set ROWPOST_TEST_SQLSERVER to an ODBC connection string, with a login that may create databases")
    with new_database(server, "rowpost_round_trips", "Sales", "Billing") as (url, engine):
        found = count(url)
    known = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    about = {"engine": engine, "repeats": REPEATS, "operations": found}
    options.output.write_text(json.dumps({**known, options.label: about}, indent=1) + "\n", encoding="utf-8")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
