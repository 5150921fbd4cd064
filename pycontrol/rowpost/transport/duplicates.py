"""Decide whether two outgoing messages with one message id are the same message, of which one row is enough."""

from __future__ import annotations

from datetime import timedelta

from rowpost.errors import InvalidMessage
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from rowpost.wire.outgoing import AddressedMessage

__all__ = ["check_same"]

#: two delays to the same moment differ by the time between the two calls
_ABOUT_THE_SAME = timedelta(seconds=1)


def check_same(first: AddressedMessage, second: AddressedMessage) -> None:
    """Check that two outgoing messages with the same message id and the same destination are the same message.

    Raises:
        InvalidMessage: they differ in type, body, delay or time to be received: dropping one of them would lose a
            message.
    """
    different = _difference(first, second)
    if different is None:
        return
    where = f"to {second.destination!r:.200}" if second.destination is not None else "as an event"
    raise InvalidMessage(
        f"Two messages with the id {second.headers.get(MESSAGE_ID)!r:.200} are sent {where}, and they differ in their "
        f"{different}. A queue stores one message of an id that is sent twice, so that one of them would be lost. Give "
        "each message an id of its own."
    )


def _difference(first: AddressedMessage, second: AddressedMessage) -> str | None:
    if first.headers.get(ENCLOSED_MESSAGE_TYPES) != second.headers.get(ENCLOSED_MESSAGE_TYPES):
        return "type"
    if first.body != second.body:
        return "body"
    if first.time_to_be_received != second.time_to_be_received:
        return "time to be received"
    delays = first.delay, second.delay
    if delays.count(None) == 1 or (None not in delays and abs(first.delay - second.delay) > _ABOUT_THE_SAME):  # type: ignore[operator]
        return "delay"
    return None
