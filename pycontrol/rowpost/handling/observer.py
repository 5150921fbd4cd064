"""What observes handlers and sends for OpenTelemetry: protocols, so that this room and those above it import no
OpenTelemetry.

`pipeline.telemetry` implements them. An endpoint has no observer unless its environment has the section `telemetry`.
Then the way of a message makes no call for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

__all__ = ["HandlerObserver", "Invocable", "SendObserver", "SendSpan"]


class SendSpan(Protocol):
    """The span of one message on its way out."""

    def write(self, headers: dict[str, str | None]) -> None:
        """Name the span in the message's headers.

        What is added to them later becomes part of the span's attributes too.
        """


class SendObserver(Protocol):
    """Gives each message that is sent, published or replied a span."""

    def sending(self, intent: str) -> AbstractContextManager[SendSpan]:
        """Start a span, which ends with the block. `intent` is the value of the header MessageIntent."""


class Invocable(Protocol):
    """A handler of one message type.

    Attributes:
        type_name: the message type.
        name: the function's name.
        full_name: the same with its module.
    """

    type_name: str
    name: str

    @property
    def full_name(self) -> str: ...

    def call(self, message: Any, context: Any) -> None:
        """Run the handler."""


class HandlerObserver(Protocol):
    """Gives each call of a handler a span, and measures it."""

    def found(self, handlers: Sequence[Invocable]) -> None:
        """Note the handlers of the message that is handled now, before the first one runs."""

    def invoke(self, handler: Invocable, message: Any, context: Any) -> None:
        """Run a handler. Raises what it raises."""
