"""What a handler causes: messages to send, and procedures to call together with them.

`AddressedMessage` is one message on its way out. `Call` is one call of a procedure of the contract. `Outgoing` is
either of the two. They are plain values: `transport.dispatch` turns outgoing messages into calls and sends all of them
in one round trip.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

__all__ = ["AddressedMessage", "Call", "Outgoing"]


class Call(NamedTuple):
    """One call of a procedure, as `Connection.call_all` takes it.

    Attributes:
        procedure: name in `sql/contract.yml`.
        queue: the queue or saga that the procedure was rendered for; None for a procedure of the whole database.
        arguments: values by the contract's parameter names.
    """

    procedure: str
    queue: str | None
    arguments: dict[str, Any]


class AddressedMessage(NamedTuple):
    """One message on its way out: to `destination`, or to the subscribers of `topics`.

    Attributes:
        headers: all headers of the message.
        body: the encoded message.
        destination: name or address of a queue. None if the message is published.
        topics: the event's type and its base types, if the message is published.
        delay: the message is not handled before this time has passed, by the server's clock.
        time_to_be_received: the message expires after this time.
    """

    headers: dict[str, str | None]
    body: bytes
    destination: str | None = None
    topics: tuple[str, ...] = ()
    delay: timedelta | None = None
    time_to_be_received: timedelta | None = None


#: what leaves a handler
Outgoing = AddressedMessage | Call
