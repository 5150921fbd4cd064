"""What the arguments of the tasks were."""

from dataclasses import dataclass

from rowpost import message_type

__all__ = ["CardCharged", "ChargeCard"]


@message_type("Shop.ChargeCard", kind="command")
@dataclass(frozen=True)
class ChargeCard:
    order_id: int


@message_type("Shop.CardCharged", kind="command")
@dataclass(frozen=True)
class CardCharged:
    order_id: int
