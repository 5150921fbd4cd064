"""Process messages with a plain function instead of an endpoint: `PlainHandler` implements `handling.processor.Processor`.

A plain function is called as `handler(message, connection)` inside the receiving transaction. If it returns, the message is handled.
If it raises, the attempt has failed. It sends nothing. It gets no control messages, and refuses
those that ask for events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Commit
from rowpost.handling.handlers import check_ran, name_of
from rowpost.handling.processor import Caused, Processor
from rowpost.handling.subscriptions import asks_for_subscription, subscription_refused
from rowpost.recoverability.policy import plain_recoverability
from rowpost.transactions.scope import Scope
from rowpost.wire.headers import CONTROL_MESSAGE
from rowpost.wire.message import Message
from rowpost.wire.operation import Call, Outgoing

__all__ = ["Handler", "PlainHandler"]

#: what a function causes, whatever its message: nobody puts anything into it
_NOTHING = Caused([])

#: called with a message and the driver's connection
Handler = Callable[[Message, Any], object]


class PlainHandler(Processor):
    """A function of (message, connection) as a processor.

    Args:
        function: the handler.
        attempts: how often a message is tried before it moves to the error queue.
        error_queue: where such messages go.
    """

    transaction_mode = "sends_atomic_with_receive"
    outbox = None
    sees_control_messages = False

    def __init__(self, function: Handler, attempts: int, error_queue: str) -> None:
        self._function = function
        self.error_queue = error_queue
        self.recoverability = plain_recoverability(attempts)
        self.participants: Mapping[str, str] = {}

    def handle(self, message: Message, database: Connection, scope: Scope) -> Caused:
        """Call the function. The value that it returns is ignored.

        Raises:
            SubscriptionRefused: the message asks for events.
            SettingsError: the function returned a coroutine or a generator, which is never run.
            Exception: whatever the function raises.
        """
        headers = message.headers
        if headers.get(CONTROL_MESSAGE) == "True" and asks_for_subscription(headers):
            how = "Give the queue an Endpoint with takes_subscriptions=True."
            raise subscription_refused(f"The queue of {name_of(self._function)}, which is a function,", headers, how)
        returned = self._function(message, database.driver_connection)
        if returned is not None:
            check_ran(returned, f"The handler {name_of(self._function)}")
        return _NOTHING

    def store(self, database: Connection, operations: list[Outgoing]) -> list[Outgoing]:
        """Return the operations unchanged: there are none."""
        return operations

    def in_lock_order(self, messages: list[Message]) -> list[Message]:
        """Return the messages in their order."""
        return messages

    def dispatch(
        self,
        database: Connection,
        operations: list[Outgoing],
        *,
        begin: bool = False,
        commit: bool = False,
        also: Iterable[Call] = (),
    ) -> None:
        """Make the calls of `also`. There are no operations."""
        database.call_all(list(also), begin=begin, commit=commit)

    def dispatch_groups(self, database: Connection, groups: list[list[Outgoing]], *, also: Iterable[Call] = (), commit: Commit = False) -> None:
        """Make the calls of `also`. There are no operations."""
        database.call_all(list(also), commit=commit)
