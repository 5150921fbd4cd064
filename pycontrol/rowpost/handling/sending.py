"""Functions around what an endpoint sends: `@endpoint.around_sends`.

@sales.around_sends
def stamped(message, sending, proceed):
    sending.headers["Shop.Tenant"] = tenant.get()
    proceed()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rowpost.errors import InvalidMessage
from rowpost.handling.arguments import check_headers
from rowpost.wire.headers import MESSAGE_ID

__all__ = ["AroundSend", "Intent", "Sending", "send_through"]

Intent = Literal["Send", "Publish", "Reply"]


@dataclass
class Sending:
    """One message on its way out, as functions around sends see it.

    Attributes:
        intent: by which verb it is sent.
        headers: all of its headers. A function may change them before it calls `proceed`.
        destination: the name or address of its queue; None if it is published.
        bus: the handler's `Context`, or the `Bus` outside of handlers.
    """

    intent: Intent
    headers: dict[str, str | None]
    destination: str | None
    bus: Any = field(repr=False)


#: called with a message, its `Sending`, and a function without arguments that sends it
AroundSend = Callable[[Any, Sending, Callable[[], None]], object]


def send_through(
    functions: Sequence[AroundSend], message: Any, sending: Sending, send: Callable[[dict[str, str | None]], None]
) -> None:
    """Send a message through functions around sends, the first one outermost.

    Args:
        functions: at least one.
        message: as it was given.
        sending: describes it.
        send: sends it with these headers.

    Raises:
        InvalidMessage: a function did not call `proceed`, called it twice, or left headers that cannot be sent.
        Exception: what a function raises.
    """
    if not functions:
        headers = check_headers(sending.headers)
        if not headers.get(MESSAGE_ID):
            raise InvalidMessage("A message cannot have an empty id. Leave its header in place.")
        send(headers)
        return
    function, sent = functions[0], False
    name = f"{getattr(function, '__qualname__', None) or repr(function)}, which is around sends,"

    def proceed() -> None:
        nonlocal sent
        if sent:
            raise InvalidMessage(f"{name} called proceed() twice for a {type(message).__name__}. Call it once.")
        send_through(functions[1:], message, sending, send)
        sent = True

    function(message, sending, proceed)
    if not sent:
        raise InvalidMessage(
            f"{name} did not send a {type(message).__name__}. Let it call proceed(), or raise an error to refuse the "
            "message."
        )
