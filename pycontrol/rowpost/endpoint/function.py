"""Run a plain function as an endpoint: `FunctionEndpoint`.

A plain function is called as `function(message, connection)` inside the receiving transaction, and an `async def` one
is awaited, with a connection for an event loop. If it returns, the message is handled. If it raises, the attempt has
failed. It sends nothing and refuses messages that ask for events. `endpoint.resolve` wraps the functions that settings
name, so that nothing else has to distinguish functions from endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rowpost.database.connection import Connection
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import SubscriptionRefused
from rowpost.handling.async_connection import async_connection
from rowpost.handling.event_loop import is_async, run
from rowpost.handling.handlers import check_ran, name_of
from rowpost.handling.processor import Caused
from rowpost.handling.subscriptions import subscription_refused
from rowpost.recoverability.policy import plain_recoverability
from rowpost.settings.worker import FunctionRetries
from rowpost.transactions.scope import Scope
from rowpost.wire.message import Message

__all__ = ["FunctionEndpoint", "HandlerFunction"]

#: called with a message and the driver's connection; may be `async def`
HandlerFunction = Callable[[Message, Any], object]


class FunctionEndpoint(Endpoint):
    """An endpoint whose only handler is a plain function, which gets the messages of all types.

    Args:
        function: the handler.
        queue: the queue's name, as the settings have it.
        retries: how often and when a message is tried before it moves to `error_queue`; None for the default.
        error_queue: the error queue's name, as the settings have it.
    """

    def __init__(
        self,
        function: HandlerFunction,
        queue: str,
        *,
        retries: FunctionRetries | None = None,
        error_queue: str = "error",
    ) -> None:
        super().__init__(queue, error_queue=error_queue, recoverability=plain_recoverability(retries))
        self._function, self._is_async = function, is_async(function)

    def resolve(self, name: str) -> str:
        """Return the name unchanged: the settings have added the schema already."""
        return name

    def _run(self, message: Message, database: Connection, scope: Scope | None) -> Caused:
        """Call the function. The value that it returns is ignored, unless it is one that is never run."""
        name = f"The handler {name_of(self._function)}"
        if self._is_async:
            run(self._function, message, async_connection(database), name=name)  # type: ignore[arg-type]
            return Caused([])
        returned = self._function(message, database.driver_connection)
        if returned is not None:
            check_ran(returned, name)
        return Caused([])

    def _subscription_refused(self, headers: Mapping[str, str | None]) -> SubscriptionRefused:
        how = "Give the queue an Endpoint with takes_subscriptions=True."
        return subscription_refused(f"The queue of {name_of(self._function)}, which is a function,", headers, how)
