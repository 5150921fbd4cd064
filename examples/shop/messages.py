"""What the shop's parts tell each other. The names are those on the wire: a .NET endpoint could be any of the parts."""

from dataclasses import dataclass

from rowpost.wire.message_types import message_type

__all__ = ["OrderAccepted", "OrderBilled", "OrderPlaced", "PaymentOverdue", "PlaceOrder", "ShipOrder", "VipOrderPlaced"]


@message_type("Shop.Messages.PlaceOrder")
@dataclass(frozen=True)
class PlaceOrder:
    """A command: the web form sends it to Sales, and waits for OrderAccepted. Amounts are cents."""

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
    """An event: whoever wants to know subscribes."""

    order_id: int
    card: str
    amount: int


@message_type("Shop.Messages.VipOrderPlaced")
@dataclass(frozen=True)
class VipOrderPlaced(OrderPlaced):
    """A great order; subscribers of OrderPlaced get it too."""


@message_type("Shop.Messages.OrderBilled")
@dataclass(frozen=True)
class OrderBilled:
    """An event: the money is there."""

    order_id: int


@message_type("Shop.Messages.PaymentOverdue")
@dataclass(frozen=True)
class PaymentOverdue:
    """A timeout that the order policy asks for."""


@message_type("Shop.Messages.ShipOrder")
@dataclass(frozen=True)
class ShipOrder:
    """A command that Shipping sends to itself, for later."""

    order_id: int
