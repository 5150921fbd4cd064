"""Endpoints and handlers for tests of telemetry. Worker processes import this module, which imports no OpenTelemetry."""

import sys
from dataclasses import dataclass
from datetime import timedelta

from rowpost.endpoint.endpoint import Endpoint
from rowpost.wire.message_types import message_type


@message_type("Chain.Order")
@dataclass(frozen=True)
class Order:
    number: int


@message_type("Chain.Bill")
@dataclass(frozen=True)
class Bill:
    number: int


@message_type("Chain.Remind")
@dataclass(frozen=True)
class Remind:
    number: int


sales, billing = Endpoint("Sales"), Endpoint("Billing")


@sales.handles("Chain.Order", Order)
def take_order(order, context):
    context.send(Bill(order.number), to="Billing")
    context.send(Remind(order.number), to="Billing", delay=timedelta(milliseconds=1))


@billing.handles("Chain.Bill", Bill)
def bill(message, context): ...


@billing.handles("Chain.Remind", Remind)
def remind(message, context): ...


def note_imports(message, connection):
    """Record which modules of telemetry this process has imported."""
    found = [name for name in sys.modules if name.startswith(("opentelemetry", "rowpost.pipeline.telemetry"))]
    connection.execute("INSERT INTO handled (id, body) VALUES (%s, %s)", (str(message.id), ",".join(found).encode()))
