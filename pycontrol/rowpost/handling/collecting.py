"""Collect what one message's handlers, or one block, send, and refuse it when the message or the block has ended.

`Collecting` is the base of `handling.context.Bus`. What it collects is sent at the end. What came later would never be sent, and SQL on its
connection would be part of another message's transaction. So `end` takes away everything that sending and SQL need. A use of it raises
`HandlerEnded` then, and while the message is handled nothing has to be checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowpost.database.connection import Connection
from rowpost.errors import HandlerEnded
from rowpost.handling.sender import Sender
from rowpost.transport.duplicates import check_same
from rowpost.wire.address import parse_address
from rowpost.wire.headers import MESSAGE_ID
from rowpost.wire.outgoing import AddressedMessage, Outgoing

__all__ = ["Collecting"]

#: what is gone after the end; the message itself and its headers can still be read
_ENDS = frozenset({"endpoint", "database", "outgoing", "discards", "audit_headers", "scope"})


class Collecting:
    """Collects outgoing messages until `end`.

    Attributes:
        endpoint: the sending endpoint.
        database: the connection on which the messages will be sent.
        outgoing: what was collected so far.
    """

    endpoint: Sender
    database: Connection
    outgoing: list[Outgoing]
    #: the endpoint's name, after the end
    _ended: str | None = None

    def __init__(self, endpoint: Sender, database: Connection) -> None:
        self.endpoint = endpoint
        self.database = database
        self.outgoing = []
        #: by message id
        self._collected: dict[str, list[AddressedMessage]] = {}

    def end(self) -> list[Outgoing]:
        """End the use of this object, and return what was collected. Can be called again, which returns nothing."""
        if self._ended is not None:
            return []
        self._ended, outgoing = self.endpoint.name, self.outgoing
        del self.outgoing, self.database, self.endpoint
        return outgoing

    def _used_late(self, endpoint: str) -> HandlerEnded:
        """Return the error for a use after the end."""
        return HandlerEnded(
            f"The bus of the endpoint {endpoint!r} was used after its block had ended. Nothing was sent or executed. Send within the block, or "
            "open another one: endpoint.open(…)."
        )

    def _add(self, addressed: AddressedMessage) -> None:
        """Collect a message.

        Raises:
            InvalidMessage: another message has the same id and the same destination.
            HandlerEnded: the handler or the block has ended meanwhile, in another thread.
        """
        outgoing = self.outgoing
        message_id = addressed.headers.get(MESSAGE_ID)
        if message_id:
            known = self._collected.get(message_id)
            if known is None:
                self._collected[message_id] = [addressed]
            else:
                for each in known:
                    if self._place(each) == self._place(addressed):
                        check_same(each, addressed)
                known.append(addressed)
        outgoing.append(addressed)
        self.outgoing  # noqa: B018 -- raises if `end` came between: then nobody may have seen the message in the list

    def _place(self, addressed: AddressedMessage) -> Any:
        return None if addressed.destination is None else self.database.local(parse_address(addressed.destination))

    if not TYPE_CHECKING:  # a type checker would accept every name

        def __getattr__(self, name: str) -> Any:
            """Raise HandlerEnded for what is gone after the end."""
            if self._ended is not None and name in _ENDS:
                raise self._used_late(self._ended)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
