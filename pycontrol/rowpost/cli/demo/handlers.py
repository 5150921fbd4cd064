"""The demo's handlers, and its own SQL.

What handlers write through their connection commits together with the message.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from rowpost.database.connection import Connection
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES
from rowpost.wire.message import Message
from rowpost.wire.message_types import first_type

__all__ = ["OrderRefused", "note_event", "place_order", "statement"]

ORDER_HEADER = "Shop.OrderId"
SQL = Path(__file__).parent / "sql"


class OrderRefused(Exception):
    """The order is invalid."""


@dataclass(frozen=True)
class _Order:
    number: int
    message_type: str
    amount: Decimal | None


def place_order(message: Message, connection: Any) -> None:
    """Store an order. Raises OrderRefused if the amount is not positive."""
    order = _read(message)
    if order.amount is not None and order.amount <= 0:
        raise OrderRefused(f"order {order.number}: the amount {order.amount} is not positive")
    _store(message, order, connection)


def note_event(message: Message, connection: Any) -> None:
    """Store an event about an order."""
    _store(message, _read(message), connection)


def _read(message: Message) -> _Order:
    """Read an order from the body, or from the headers if another system sent no body.

    Raises OrderRefused without a number.
    """
    content = json.loads(message.body, parse_float=Decimal) if message.body else {}
    headers = message.headers
    types = headers.get(ENCLOSED_MESSAGE_TYPES) or content.get("$type") or "unknown"
    number = content.get("OrderId") or headers.get(ORDER_HEADER)
    if number is None:
        raise OrderRefused(
            f"the message has no order number: neither OrderId in its body nor the header {ORDER_HEADER}"
        )
    return _Order(int(number), first_type(types), content.get("Amount"))


def _store(message: Message, order: _Order, connection: Any) -> None:
    engine = Connection.share(connection).engine
    values = (message.id, order.message_type, order.number, order.amount, os.getpid())
    connection.cursor().execute(statement(engine, "insert_order"), values)


@cache
def statement(engine: str, name: str) -> str:
    """Return the text of sql/<engine>/<name>.sql."""
    return (SQL / engine / f"{name}.sql").read_text(encoding="utf-8")
