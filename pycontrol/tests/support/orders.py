"""The two messages of a shop that the tests of handlers send and handle."""

from dataclasses import dataclass

from rowpost.wire.message_types import message_type

__all__ = ["Charge", "Order"]


@message_type("Shop.Order")
@dataclass(frozen=True)
class Order:
    number: int


@message_type("Shop.Charge")
@dataclass(frozen=True)
class Charge:
    number: int
