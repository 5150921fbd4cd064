"""The steps of the example: place orders, archive handled messages with a stream, analyse them, replay failures."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from examples.shop.messages import OrderAccepted, PlaceOrder
from examples.shop.stage import ERROR, FOLDER, Shop
from examples.shop.web import web
from pyspark.sql import SparkSession

from rowpost import Queue
from rowpost.cli.archiving import registered_queues
from rowpost.spark.explain import explained
from rowpost.spark.jobs import archive, replay, verify
from rowpost.spark.jobs.metrics import metrics
from rowpost.spark.jobs.reports import failures, one_conversation
from rowpost.wire.conversation import mermaid, tree

__all__ = ["Story"]

AUDIT = "Shop.audit"
BLOCKED_ONE_IN = 6
DEADLINE = 120.0  # seconds
ENVIRONMENT = str(FOLDER / "shop.yml")


class Story:
    """The steps in their order. Raises AssertionError that names the failed step."""

    def __init__(self, shop: Shop, spark: SparkSession, out: Path, say: Callable[[str], None]) -> None:
        self.shop, self.spark, self.out, self.say = shop, spark, out, say
        self.folder = str(out / "archive")
        self.audit = archive.ArchiveJob(AUDIT, self.folder, ENVIRONMENT)

    def play(self, orders: int) -> None:
        with explained():
            stream = archive.start(self.spark, archive.ArchiveJob(AUDIT, self.folder, ENVIRONMENT, every="1 second"))
            try:
                blocked = self.order(orders)
                self.wait("the good orders are shipped", lambda: self.count("shipped") == orders - blocked)
                self.wait(
                    f"{blocked} payments failed and wait in {ERROR}",
                    lambda: len(self.shop.failed_payments()) == blocked,
                )
                self.wait(
                    "the archive grew while the shop was at work",
                    lambda: (stream.lastProgress or {"batchId": 0})["batchId"] > 0,
                )
            finally:
                stream.stop()
            self.catch_up()
            self.measure()
            self.draw_one_conversation()
            self.bring_back(blocked)

    def order(self, orders: int) -> int:
        """Place the orders, four at a time. Return how many use the blocked card."""

        def place(number: int) -> bool:
            blocked = number % BLOCKED_ONE_IN == 0
            card = "4000-0000" if blocked else "4111-1111"
            answer = web.callbacks().request(
                PlaceOrder(f"Customer {number}", card, 1000 + number), timeout=timedelta(seconds=30)
            )
            assert isinstance(answer, OrderAccepted), f"Sales answered {answer!r}"
            return blocked

        with ThreadPoolExecutor(4) as customers:
            blocked = sum(customers.map(place, range(1, orders + 1)))
        self.say(f"ok  {orders} orders are placed, {blocked} on a card that is blocked")
        return blocked

    def catch_up(self) -> None:
        """Archive the rest of the audit queue, drain the error queue, and verify the archive."""
        archive.run(self.spark, self.audit)
        failed = archive.run(self.spark, archive.ArchiveJob(ERROR, self.folder, ENVIRONMENT, mode="drain"))
        waiting = verify.Waiting(AUDIT, archive.read_queue(self.spark, AUDIT, ENVIRONMENT, ("id", "row_version")))
        report = verify.run(self.spark, self.folder, waiting)
        assert not report.findings, f"the archive has findings: {report.findings}"
        assert report.counts["not_archived_yet"] == 0, f"the archive lacks messages: {report.counts}"
        with self.shop.connected() as database:
            left = Queue(ERROR, database).peek()
        assert left == 0, f"{left} messages are left in {ERROR}"
        self.say(
            f"ok  {report.counts['messages']} messages are archived, each once; {failed['messages']} of them were drained from {ERROR}"
        )

    def measure(self) -> None:
        """Print percentiles per hour, and groups of failures."""
        kept = archive.read_archive(self.spark, self.folder)
        hours = [
            row.asDict()
            for row in metrics(kept.where("queue = 'Shop.audit'")).orderBy("hour", "endpoint", "message_type").collect()
        ]
        assert hours, "nothing was measured"
        self.say(
            f"\n{'hour':18}{'endpoint':16}{'message type':34}{'messages':>8}{'p50':>9}{'p95':>9}{'p99':>9}  milliseconds from sent to handled"
        )
        for row in hours:
            times = "".join(f"{row[f'critical_ms_{name}']:9,.0f}" for name in ("p50", "p95", "p99"))
            self.say(
                f"{row['hour']:%Y-%m-%d %H:%M}  {row['endpoint']:16}{row['message_type']:34}{row['messages']:8}{times}"
            )
        groups = failures(kept, datetime.now(UTC)).collect()
        for group in groups:
            self.say(
                f"\n{group.messages} failed in {group.endpoint}: {group.exception_type}, such as {group.sample_message!r}"
            )

    def draw_one_conversation(self) -> None:
        """Print the conversation of an order that was shipped."""
        kept = archive.read_archive(self.spark, self.folder)
        shipped = kept.where("message_type = 'Shop.Messages.ShipOrder'").select("conversation_id").collect()
        steps = one_conversation(kept, shipped[0].conversation_id)
        assert len(steps) > 1, "a conversation of one message"
        self.say("\n" + "\n".join(tree(steps)) + "\n")
        self.say(mermaid(steps) + "\n")

    def bring_back(self, blocked: int) -> None:
        """Correct the cause, then replay from the archive twice. The second replay must send nothing."""
        with self.shop.connected() as database:
            database.driver_connection.execute("DELETE FROM shop.blocked_cards")
            found = partial(registered_queues, database)
            asked = replay.Replay("unblocked", where="failed_queue is not null")
            first, second = (
                replay.run(self.spark, self.folder, asked, environment=ENVIRONMENT, resolve_queues=found)
                for _ in range(2)
            )
        assert (first["sent_now"], second["sent_now"]) == (blocked, 0), f"replayed {first}, then {second}"
        self.say(
            f"ok  {first['sent_now']} failed payments are replayed to {', '.join(first['queues'])}; a second run sends none"
        )
        self.wait("then those orders are shipped too", lambda: self.count("shipped") == len(self.shop.orders()))
        with self.shop.connected() as database:
            twice = database.driver_connection.execute(
                "SELECT count(*) - count(DISTINCT order_id) FROM shop.payments"
            ).fetchone()[0]
        assert twice == 0, f"{twice} orders were paid twice"
        self.say("ok  every order is paid once")

    def count(self, state: str) -> int:
        return sum(order.state == state for order in self.shop.orders())

    def wait(self, step: str, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, f"{step}: not within {DEADLINE:.0f} s"
            time.sleep(0.1)
        self.say(f"ok  {step}")
