"""The shop's messages. The names are those of the wire format, so any endpoint could be replaced by a .NET endpoint."""

from dataclasses import dataclass

from rowpost import message_type

__all__ = ["OrderAccepted", "OrderBilled", "OrderPlaced", "PaymentOverdue", "PlaceOrder", "ShipOrder", "VipOrderPlaced"]


@message_type("Shop.Messages.PlaceOrder")
@dataclass(frozen=True)
class PlaceOrder:
    """A command that the web form sends to Sales. The reply is OrderAccepted. Amounts are in cents."""

    customer: str
    card: str
    amount: int


@message_type("Shop.Messages.OrderAccepted")
@dataclass(frozen=True)
class OrderAccepted:
    """The reply to PlaceOrder."""

    order_id: int


@message_type("Shop.Messages.OrderPlaced")
@dataclass(frozen=True)
class OrderPlaced:
    """An event that Sales publishes."""

    order_id: int
    card: str
    amount: int


@message_type("Shop.Messages.VipOrderPlaced")
@dataclass(frozen=True)
class VipOrderPlaced(OrderPlaced):
    """An event about a large order. Subscribers of OrderPlaced receive it too."""


@message_type("Shop.Messages.OrderBilled")
@dataclass(frozen=True)
class OrderBilled:
    """An event that Billing publishes after a payment."""

    order_id: int


@message_type("Shop.Messages.PaymentOverdue")
@dataclass(frozen=True)
class PaymentOverdue:
    """A timeout that the order policy requests."""


@message_type("Shop.Messages.ShipOrder")
@dataclass(frozen=True)
class ShipOrder:
    """A delayed command that Shipping sends to itself."""

    order_id: int
