"""Endpoints for tests of hosting, for this process and for worker processes.

`PlaceOrder.wish` selects what the handler of `Sales` does. The handler writes a row into the table `handled`, in the
transaction of the message.
"""

import time
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.policy import Recoverability
from rowpost.wire.message_types import message_type


@message_type("Shop.Messages.PlaceOrder")
@dataclass(frozen=True)
class PlaceOrder:
    order_id: int
    wish: str = ""


@message_type("Shop.Messages.OrderAccepted")
@dataclass(frozen=True)
class OrderAccepted:
    order_id: int


@message_type("Shop.Messages.OrderPlaced")
@dataclass(frozen=True)
class OrderPlaced:
    order_id: int


@message_type("Shop.Messages.VipOrderPlaced")
@dataclass(frozen=True)
class VipOrderPlaced(OrderPlaced):
    discount: float = 0.1


AT_ONCE = Recoverability(immediate_retries=0, delayed_retries=0)


def note(context, what: str) -> None:
    """Insert a row into `handled`, on the connection of the message."""
    mark = "?" if context.database.engine == "sqlserver" else "%s"
    context.connection.cursor().execute(f"INSERT INTO handled (id, body) VALUES ({mark}, NULL)", (what,))


def make_sales(**options) -> Endpoint:
    """Return an endpoint Sales; the wish of a PlaceOrder selects what its handler does."""
    sales = Endpoint("Sales", audit_queue="audit", recoverability=AT_ONCE, **options)

    @sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)
    def place_order(message: PlaceOrder, context) -> object:
        note(context, f"order {message.order_id}")
        return WISHES[message.wish](message, context)

    @sales.handles("Shop.Messages.OrderPlaced", OrderPlaced, subscribe=True)
    def order_placed(message: OrderPlaced, context) -> None:
        note(context, f"placed {message.order_id}")

    return sales


def fail(message, context):
    context.send(OrderPlaced(message.order_id), to="Billing")
    raise ValueError("no such order")


class Status(Enum):
    ACCEPTED = 1
    SOLD_OUT = 7


def reply_later(message, context):
    time.sleep(0.5)
    context.reply(OrderAccepted(message.order_id))


def change_headers(message, context):
    context.headers["Shop.Kept"] = "changed"
    context.incoming.headers["Shop.Kept"] = "changed too"
    context.incoming.headers["Shop.Added"] = 7


def change_headers_and_fail(message, context):
    change_headers(message, context)
    raise ValueError("no such order")


WISHES = {
    "reply number": lambda message, context: context.reply(message.order_id) and None,
    "reply enum": lambda message, context: context.reply(Status.SOLD_OUT) and None,
    "": lambda message, context: None,
    "fail": fail,
    "return": lambda message, context: message.order_id,
    "reply": lambda message, context: context.reply(OrderAccepted(message.order_id)) and None,
    "reply twice": lambda message, context: [context.reply(OrderAccepted(message.order_id)) for _ in "12"] and None,
    "reply later": reply_later,
    "reply raw": lambda message, context: context.reply(b"raw") and None,
    "send nowhere": lambda message, context: context.send(OrderPlaced(1), to="Nowhere") and None,
    "change headers": change_headers,
    "change headers and fail": change_headers_and_fail,
    "forward": lambda message, context: context.forward_current_message_to("Billing"),
    "request": lambda message, context: context.request(message, to="Billing", timeout=timedelta(seconds=1)),
    "delay 100 days": lambda message, context: context.send(OrderPlaced(1), to="Billing", delay=timedelta(days=100)) and None,
    "delay -1 s": lambda message, context: context.send(OrderPlaced(1), to="Billing", delay=timedelta(seconds=-1)) and None,
    "delay for ever": lambda message, context: context.send(OrderPlaced(1), to="Billing", delay=timedelta.max) and None,
    "delay and expire": lambda message, context: context.send(
        OrderPlaced(1), to="Billing", delay=timedelta(1), time_to_be_received=timedelta(1)
    ) and None,
    "publish": lambda message, context: context.publish(VipOrderPlaced(message.order_id)) and None,
}  # fmt: skip

sales = make_sales(limit=2)
sales_none = make_sales(transaction_mode="none")
web = Endpoint("Web", send_only=True)
billing = Endpoint("Billing", recoverability=AT_ONCE)


@billing.handles("Shop.Messages.OrderPlaced", OrderPlaced, subscribe=True)
def bill(message: OrderPlaced, context) -> None:
    note(context, f"billed {message.order_id}")


@pytest.fixture
def handled_table(target, sql):
    sql.run("DROP TABLE IF EXISTS handled")
    binary = "bytea" if target.settings.engine == "postgresql" else "varbinary(max)"
    sql.run(f"CREATE TABLE handled (id varchar(40) NOT NULL, body {binary} NULL)")
    for name in ("Sales", "Billing", "error", "audit"):
        sql.empty(name)
    for _, endpoint, _ in sql.database.call("list_subscriptions"):
        for topic in ("Shop.Messages.OrderPlaced", "Shop.Messages.VipOrderPlaced"):
            sql.database.call("unsubscribe", endpoint=endpoint, topic=topic)


# ------------------------------------------------------------------ checks for ServiceControl
routed, routed_elsewhere = Endpoint("Sales", recoverability=AT_ONCE), Endpoint("Sales", recoverability=AT_ONCE)
routed_elsewhere.route(OrderPlaced, to="Elsewhere")


@routed.handles("Shop.Routed.Go")
def go(message, context) -> None:
    context.send(OrderPlaced(1))


checked = Endpoint("Checked", recoverability=AT_ONCE)
#: how often each check ran in this process
CHECKS_RUN: dict[str, int] = {}


@checked.check("Disk free", every=timedelta(seconds=0.2), category="Storage")
def disk_free() -> str | None:
    CHECKS_RUN["Disk free"] = CHECKS_RUN.get("Disk free", 0) + 1
    return "3 GB left" if CHECKS_RUN["Disk free"] == 1 else None


@checked.check("Licence")
def licence() -> str | None:
    CHECKS_RUN["Licence"] = CHECKS_RUN.get("Licence", 0) + 1
    raise PermissionError("no licence file")


@checked.handles("Shop.Messages.PlaceOrder")
def ignore(message, context) -> None:
    pass
