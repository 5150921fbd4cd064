"""The commands that the web application and the handlers send."""

from dataclasses import dataclass

from rowpost import message_type

__all__ = ["Accept", "Bill", "Print"]


@message_type("Orders.Accept", kind="command")
@dataclass(frozen=True)
class Accept:
    order_id: int


@message_type("Orders.Bill", kind="command")
@dataclass(frozen=True)
class Bill:
    order_id: int


@message_type("Orders.Print", kind="command")
@dataclass(frozen=True)
class Print:
    order_id: int
