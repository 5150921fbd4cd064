"""Decide whether two outgoing messages with one message id are the same message, of which one row is enough."""

from __future__ import annotations

from rowpost.errors import InvalidMessage
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from rowpost.wire.outgoing import AddressedMessage

__all__ = ["check_same"]


def check_same(first: AddressedMessage, second: AddressedMessage) -> None:
    """Check that two outgoing messages with the same message id and the same destination are the same message.

    They may differ in their headers, delay and time to be received: the last one is stored.

    Raises:
        InvalidMessage: they differ in type or body: dropping one of them would lose a message.
    """
    if first.headers.get(ENCLOSED_MESSAGE_TYPES) != second.headers.get(ENCLOSED_MESSAGE_TYPES):
        different = "type"
    elif first.body != second.body:
        different = "body"
    else:
        return
    where = f"to {second.destination!r:.200}" if second.destination is not None else "as an event"
    raise InvalidMessage(
        f"Two messages with the id {second.headers.get(MESSAGE_ID)!r:.200} are sent {where}, and they differ in their "
        f"{different}. A queue stores one message of an id that is sent twice, so that one of them would be lost. Give "
        "each message an id of its own."
    )
