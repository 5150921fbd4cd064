"""Audits what it gets: a plain function, whose retries are settings of its worker."""

from typing import Any

from rowpost import Message
from shop.journal import note, noted


def record(message: Message, connection: Any) -> None:
    note(f"audit {message.body.decode()}")
    if noted().count(f"audit {message.body.decode()}") < 4:
        raise ValueError("not yet")
