"""The messages of `tests/interop/endpoint/Messages.cs`, as classes of Python. `Values` is that of the recorded rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from rowpost.wire.message_types import message_type
from tests.support.recorded_values import Values

__all__ = [
    "BillOrder", "Count", "Ephemeral", "Fail", "IOrderEvent", "OrderAccepted", "OrderBilled", "OrderPlaced", "Overdue", "Parcel",
    "PaymentDone", "PlaceOrder", "Relay", "StartOrder", "TakePayment", "Timed", "Values",
]  # fmt: skip


@message_type("Shop.Messages.PlaceOrder")
@dataclass
class PlaceOrder:
    order_id: int
    amount: Decimal = Decimal(0)
    note: str | None = None
    when: datetime | None = None


@message_type("Shop.Messages.OrderAccepted")
@dataclass
class OrderAccepted:
    order_id: int


@message_type("Shop.Messages.IOrderEvent")
@dataclass
class IOrderEvent:
    order_id: int


@message_type("Shop.Messages.OrderPlaced")
@dataclass
class OrderPlaced(IOrderEvent):
    pass


@message_type("Shop.Messages.OrderBilled")
@dataclass
class OrderBilled:
    order_id: int
    amount: Decimal = Decimal(0)


@message_type("Shop.Messages.BillOrder")
@dataclass
class BillOrder:
    order_id: int


@message_type("Shop.Messages.Fail")
@dataclass
class Fail:
    order_id: int


@message_type("Shop.Messages.Count")
@dataclass
class Count:
    order_id: int


@message_type("Shop.Messages.Relay")
@dataclass
class Relay:
    order_id: int
    to: str = ""
    then_fail: bool = False


@message_type("Shop.Messages.StartOrder")
@dataclass
class StartOrder:
    order_id: int
    payments: str = ""


@message_type("Shop.Messages.TakePayment")
@dataclass
class TakePayment:
    order_id: int


@message_type("Shop.Messages.PaymentDone")
@dataclass
class PaymentDone:
    order_id: int


@message_type("Shop.Messages.Parcel")
@dataclass
class Parcel:
    order_id: int
    data: bytes | None = None


@message_type("Shop.Messages.Ephemeral", time_to_be_received=timedelta(seconds=2))
@dataclass
class Ephemeral:
    order_id: int


@message_type("Shop.Messages.Timed")
@dataclass
class Timed:
    order_id: int


@message_type("Shop.Messages.Overdue")
@dataclass
class Overdue:
    pass
