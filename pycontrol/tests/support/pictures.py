"""The dashboard in a browser: a scene to look at, Chromium, and the pictures of the guide.

`make pictures` takes the pictures of docs/pictures/. It needs Chromium on this machine.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from playwright.sync_api import Browser, Page, sync_playwright

from rowpost.dashboard import app
from rowpost.dashboard.access import LoopbackAccess
from rowpost.database import embedded
from rowpost.database.connection import Connection, connect
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.operations.log import Operator, RunningOperation, list_operations
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.settings.saga import SagaSettings
from rowpost.transport.controls import limit_workers, pause
from rowpost.transport.queue import Queue
from rowpost.version import __version__
from rowpost.wire.message import OutgoingMessage, format_timestamp
from tests.support.dashboard import failed_headers, serving

__all__ = ["QUEUES", "SAGA", "browser", "chromium", "fill", "overflow", "pages_of"]

PICTURES = Path(__file__).resolve().parents[3] / "docs" / "pictures"
QUEUES = ("Sales", "Billing", "Shipping", "Stock", "Mail", "error", "audit")
SAGA = "Sales_OrderPolicy"
#: the id of the message with which the conversation of `follow` begins
ORDER = "11d3a5c0-94b2-4f3e-8a57-0c5b6a7e2f40"
GUIDE = PICTURES.parent / "guides" / "dashboard.md"
LARGEST = 150_000  # bytes
TRACE = """Traceback (most recent call last):
  File "shop/billing.py", line 41, in charge_card
    receipt = gateway.charge(order.card, order.total)
  File "shop/gateway.py", line 88, in charge
    raise GatewayTimeout(f"no answer within {self.timeout} s")
shop.gateway.GatewayTimeout: no answer within 30 s"""


def chromium() -> str | None:
    """Return the path of the system's Chromium; None if there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """Start the system's Chromium without a window."""
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=[*options, "--force-color-profile=srgb"])
        yield started
        started.close()


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def fill(database: Connection) -> RunningOperation:
    """Fill the queues with messages, failures of several causes, subscriptions, operations and instances of a saga; return the operation that goes on."""
    now = datetime.now(UTC)

    def headers(kind: str, age_s: float) -> dict[str, str | None]:
        return {
            "NServiceBus.MessageId": str(uuid4()), "NServiceBus.EnclosedMessageTypes": f"Shop.Messages.{kind}, Shop.Messages",
            "NServiceBus.MessageIntent": "Send", "NServiceBus.ContentType": "application/json", "NServiceBus.OriginatingEndpoint": "Web",
            "NServiceBus.TimeSent": format_timestamp(now - timedelta(seconds=age_s)), "NServiceBus.ConversationId": str(uuid4()),
        }  # fmt: skip

    for queue, kind, count in (
        ("Sales", "PlaceOrder", 84),
        ("Billing", "ChargeCard", 12),
        ("Shipping", "ShipOrder", 3),
    ):
        Queue(queue, database).send_many(
            OutgoingMessage(
                b'{"OrderId":%d,"Customer":"Ada Lovelace","Skus":["A-1","B-7"]}' % (4000 + number),
                headers(kind, 2.0 * (count - number)),
            )
            for number in range(count)
        )
    causes = (
        ("shop.gateway.GatewayTimeout", "no answer within 30 s", "Billing", "ChargeCard", 37),
        ("System.ArgumentException", "The customer 4711 has no address", "Shipping", "ShipOrder", 9),
        (
            "psycopg.errors.CheckViolation",
            'new row for relation "stock" violates check constraint "not_negative"',
            "Stock",
            "ReserveStock",
            4,
        ),
    )
    for error, text, queue, kind, count in causes:
        Queue("error", database).send_many(
            OutgoingMessage(
                b'{"OrderId":%d,"Total":"99.50","Card":"**** 4242"}' % number,
                headers(kind, 900) | failed_headers(text, queue, error, f"Shop.Messages.{kind}") | {
                    "NServiceBus.TimeOfFailure": format_timestamp(now - timedelta(minutes=count - number)),
                    "NServiceBus.ExceptionInfo.StackTrace": TRACE,
                },
            )
            for number in range(count)
        )  # fmt: skip
    for endpoint, topic in (
        ("Billing", "OrderPlaced"),
        ("Shipping", "OrderBilled"),
        ("Mail", "OrderPlaced"),
        ("Mail", "OrderShipped"),
        ("Stock", "OrderPlaced"),
    ):
        database.call_atomically("subscribe", endpoint=endpoint, topic=f"Shop.Messages.{topic}", queue_address=endpoint)
    workers = [
        {"queue": queue, "process_id": 4100 + number, "state": state, "seconds": 2.4 * number}
        | ({"message": str(uuid4()), "message_seconds": 0.8 * number} if state == "busy" else {})
        for number, (queue, state) in enumerate(
            (("Sales", "busy"), ("Sales", "busy"), ("Billing", "busy"), ("Shipping", "idle")), 1
        )
    ]
    for number, host in enumerate(("app-1", "app-2")):
        database.call(
            "report_supervisor", supervisor_id=uuid4(), host_name=host, process_id=4099, environment="production", rowpost_version=__version__,
            queues='["Sales", "Billing", "Shipping"]', workers=json.dumps(workers[: 4 - number]),
        )  # fmt: skip
    follow(database)
    going = _operation(database)
    for number in range(12):
        database.call(
            "insert_saga", SAGA, id=uuid4(), correlation_value=str(4000 + number),
            data=f'{{"OrderId":"{4000 + number}","Placed":true,"Billed":{"true" if number % 3 else "false"},"Lines":[{{"Sku":"A-1","Count":{number}}}]}}',
            metadata='{"Originator":"Web"}', persistence_version="1.0", saga_type_version="1.0",
        )  # fmt: skip
    return going


def _operation(database: Connection) -> RunningOperation:
    """Let operators operation: one bulk operation goes on, as its process would report it."""
    ada, bob, console = Operator("dashboard", "ada"), Operator("dashboard", "bob"), Operator("command line")
    with ada.operation(database, "pause", "Mail", reason="the provider is down until 14:00") as noted:
        noted.done = 0
        pause(database, "Mail", "the provider is down until 14:00")
    with bob.operation(database, "limit", "Billing", limit=6, shared=True) as noted:
        noted.done = 0
        limit_workers(database, "Billing", 6, shared=True)
    with ada.operation(database, "discard", "error", reason="the order was cancelled by telephone", row=4711) as noted:
        noted.message_id = str(uuid4())
    done = RunningOperation.begin(database, console, "discard-all", "error", reason="load test", exception="LoadTest")
    done.report(total=1_250, done=1_250, operation_state="done")
    left = RunningOperation.begin(database, bob, "move-all", "error", failed_queue="Stock", to="Billing")
    left.report(total=96, done=41, operation_state="interrupted")
    going = RunningOperation.begin(
        database, ada, "retry-all", "error", reason="the gateway is back", exception="GatewayTimeout"
    )
    going.report(total=12_480, done=7_300, gone=12)
    return going


def follow(database: Connection) -> None:
    """Store a conversation: an order that was placed, announced and billed, and whose shipment has failed."""
    now, name = datetime.now(UTC), "7c1f0f52-4a6e-4b7e-9d3c-2f1f5a3e8d10"

    def headers(
        number: int, kind: str, intent: str, sender: str, cause: int | None, **more: str
    ) -> dict[str, str | None]:
        sent = now - timedelta(seconds=60 - 2 * number)
        return {
            "NServiceBus.MessageId": ORDER[:-1] + str(number), "NServiceBus.EnclosedMessageTypes": f"Shop.Messages.{kind}, Shop.Messages",
            "NServiceBus.MessageIntent": intent, "NServiceBus.ConversationId": name, "NServiceBus.OriginatingEndpoint": sender,
            "NServiceBus.TimeSent": format_timestamp(sent), **({} if cause is None else {"NServiceBus.RelatedTo": ORDER[:-1] + str(cause)}),
        } | more  # fmt: skip

    def handled(number: int, endpoint: str) -> dict[str, str]:
        started = now - timedelta(seconds=59.9 - 2 * number)
        return {
            "NServiceBus.ProcessingStarted": format_timestamp(started), "NServiceBus.ProcessingEndpoint": endpoint, "NServiceBus.ProcessingMachine": "app-1",
            "NServiceBus.ProcessingEnded": format_timestamp(started + timedelta(milliseconds=12.5 * (number + 1))),
        }  # fmt: skip

    Queue("audit", database).send_many([
        OutgoingMessage(b'{"OrderId":4003}', headers(0, "PlaceOrder", "Send", "Web", None) | handled(0, "Sales") | {"NServiceBus.InvokedSagas": f"Shop.OrderPolicy:{uuid4()}"}),
        OutgoingMessage(b'{"OrderId":4003}', headers(1, "OrderPlaced", "Publish", "Sales", 0) | handled(1, "Billing")),
        OutgoingMessage(b'{"OrderId":4003}', headers(2, "OrderBilled", "Publish", "Billing", 1) | handled(2, "Sales")),
    ])  # fmt: skip
    shipment = headers(3, "ShipOrder", "Send", "Sales", 2)
    Queue("error", database).send(
        b'{"OrderId":4003}', shipment | failed_headers("no answer within 30 s", "Shipping", "shop.gateway.GatewayTimeout", "Shop.Messages.ShipOrder") | {
            "NServiceBus.MessageId": shipment["NServiceBus.MessageId"], "NServiceBus.ProcessingEndpoint": "Shipping", "NServiceBus.TimeSent": shipment["NServiceBus.TimeSent"],
            "NServiceBus.TimeOfFailure": format_timestamp(now),
        },
    )  # fmt: skip
    Queue("Shipping", database).send(b'{"OrderId":4003}', headers(4, "SendReceipt", "Send", "Billing", 1))


def pages_of(database: Connection) -> dict[str, str]:
    """Return the pages of the scene by name."""
    row = Queue("error", database).browse(1)[0].row_version
    operations = list_operations(database)
    message = Queue("Sales", database).browse(1)[0].row_version
    return {
        "queues": "/", "queue": "/queue/Sales", "message": f"/message/{message}/Sales", "failed-messages": "/failed", "failed-message": f"/failed/{row}",
        "edit": f"/failed/{row}/edit", "discard": f"/failed/{row}/discard", "purge": "/purge/Sales", "subscriptions": "/subscriptions",
        "workers": "/workers", "follow": f"/follow?id={ORDER}", "conversation": "/follow?conversation=7c1f0f52-4a6e-4b7e-9d3c-2f1f5a3e8d10", "follow-form": "/follow",
        "operations": "/operations", "operation": f"/operation/{next((each.number for each in operations if each.goes_on), operations[0].number)}", "bulk": "/failed/all?operation=retry",
        "paused": "/queue/Mail", "sagas": "/sagas", "saga": f"/saga/{SAGA}", "saga-instance": f"/saga/{SAGA}?instance=4003", "deployment": "/deployment?verify=1",
        "not-found": "/queue/Nowhere",
    }  # fmt: skip


def main() -> int:
    """Take the pictures that the guide shows; return 1 if one is too large."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rowpost-pictures-") as folder:
        try:
            settings = Settings(
                environment="production", url=embedded.start(Path(folder)), sagas=(SagaSettings(SAGA, "OrderId"),),
                queues=tuple(QueueSettings(name) for name in QUEUES),
            )  # fmt: skip
            with connect(settings) as database:
                apply(database, plan(settings))
                _take(settings, database, fill(database))
        finally:
            embedded.stop(Path(folder))
    sizes = {path.name: path.stat().st_size for path in sorted(PICTURES.glob("*.png"))}
    print("\n".join(f"{name} {size:,}" for name, size in sizes.items()))
    return int(max(sizes.values()) > LARGEST)


def _take(settings: Settings, database: Connection, going: RunningOperation) -> None:
    site = app(replace(settings, url=settings.url), access=LoopbackAccess())
    with serving(site) as client, browser() as started:
        _traffic(database, site.state.site.monitor)
        shown = GUIDE.read_text(encoding="utf-8")
        for name, path in pages_of(database).items():
            for suffix, width, scheme in (("", 1200, "light"), ("-dark", 1200, "dark"), ("-narrow", 400, "light")):
                if f"{name}{suffix}.png" not in shown:
                    continue
                going.report()  # or it would be shown as interrupted
                page = started.new_page(viewport={"width": width, "height": 760}, color_scheme=scheme)
                page.goto(str(client.base_url).rstrip("/") + path)
                page.screenshot(path=PICTURES / f"{name}{suffix}.png")
                page.close()


def _traffic(database: Connection, monitor: object, seconds: float = 40.0) -> None:
    """Send and receive for a while, so that the charts show something."""
    dice, end = random.Random(4), time.monotonic() + seconds
    queues = [Queue(name, database) for name in ("Sales", "Billing", "Shipping", "Stock", "Mail")]
    while time.monotonic() < end:
        for number, queue in enumerate(queues):
            sent = dice.randint(0, 12 - 2 * number)
            queue.send_many(
                OutgoingMessage(b"{}", {"NServiceBus.TimeSent": format_timestamp(datetime.now(UTC))})
                for _ in range(sent)
            )
            queue.receive(max(1, dice.randint(0, 12 - 2 * number)), after_row_version=100)
        monitor.latest(0.4)  # type: ignore[attr-defined]
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
