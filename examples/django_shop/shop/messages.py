"""The only message."""

from dataclasses import dataclass

from rowpost import message_type

__all__ = ["PlaceOrder"]


@message_type("Shop.PlaceOrder", kind="command")
@dataclass(frozen=True)
class PlaceOrder:
    order_id: int
