"""The messages of the shop."""

from dataclasses import dataclass

from rowpost import message_type


@message_type("Shop.PlaceOrder", kind="command")
@dataclass(frozen=True)
class PlaceOrder:
    order_id: int
    card: str = "good"
    address: str = "ada@example"


@message_type("Shop.ChargeCard", kind="command")
@dataclass(frozen=True)
class ChargeCard:
    order_id: int
    card: str = "good"


@message_type("Shop.CardCharged", kind="event")
@dataclass(frozen=True)
class CardCharged:
    order_id: int


@message_type("Shop.SendMail", kind="command")
@dataclass(frozen=True)
class SendMail:
    order_id: int
    address: str = "ada@example"
