"""A function of (message, connection), in the shape that the pipeline processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rowpost.database.connection import Connection
from rowpost.handling.handlers import check_ran, name_of
from rowpost.recoverability.policy import plain_recoverability
from rowpost.wire.message import Message
from rowpost.wire.operation import Call, Operation

__all__ = ["Handler", "PlainHandler"]


# Called as handler(message, connection) inside the receiving transaction; returning is success, raising is failure.
Handler = Callable[[Message, Any], object]


class PlainHandler:
    """A function of (message, connection), as the pipeline sees an endpoint: it sends nothing by itself."""

    transaction_mode = "sends_atomic_with_receive"

    def __init__(self, function: Handler, attempts: int, error_queue: str) -> None:
        self._function = function
        self.error_queue = error_queue
        self.recoverability = plain_recoverability(attempts)

    def handle(self, message: Message, database: Connection) -> list[Operation]:
        """Call the function. What it returns does not count, unless it is a coroutine or a generator: then nothing ran.

        Raises:
            SettingsError: it returned one. Whatever the function raises.
        """
        returned = self._function(message, database.driver_connection)
        if returned is not None:
            check_ran(returned, f"The handler {name_of(self._function)}")
        return []

    def dispatch_sealed(self, database: Connection, groups: list[list[Operation]], also: list[Call]) -> None:
        """Nothing is sent: `also`, and the commit of the batch's sealed transaction."""
        database.call_all(also, commit="sealed")

    def dispatch(self, database: Connection, operations: list[Operation], *, begin: bool = False, commit: bool = False) -> None:
        """Never called: there is nothing to send."""
