"""What leaves a handler: messages to send, and procedures to call with them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

__all__ = ["Call", "Operation"]


#: a procedure, the queue or saga that it was rendered for, and its arguments: called with what is sent, in its transaction
Call = tuple[str, str | None, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One message on its way out: to `destination`, or to the subscribers of `topics`.

    `immediate` leaves at once and stays even if the handler fails (isolated dispatch).
    """

    headers: dict[str, str | None]
    body: bytes
    destination: str | None = None
    topics: tuple[str, ...] = ()
    delay: timedelta | None = None
    time_to_be_received: timedelta | None = None
