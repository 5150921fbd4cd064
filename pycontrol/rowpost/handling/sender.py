"""What a bus and a handler's context need of the endpoint that sends: the protocol `Sender`.

`endpoint.endpoint.Endpoint` implements it. The protocol stands here so that this room imports nothing above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Commit
from rowpost.handling.observer import SendObserver
from rowpost.handling.sending import AroundSend
from rowpost.recoverability.policy import Host
from rowpost.wire.address import Address
from rowpost.wire.outgoing import Outgoing
from rowpost.wire.serialization import Serializers

__all__ = ["Requests", "Sender"]


class Requests(Protocol):
    """Sends requests and waits for their replies."""

    def request(self, message: Any, to: str | None = None, *, timeout: timedelta, **options: Any) -> Any:
        """Send a request and return its reply."""


class Sender(Protocol):
    """An endpoint as a sender.

    Attributes:
        name: the endpoint's name, for headers.
        host: the machine, for headers.
        headers: are added to all messages.
        serializers: the first one encodes messages.
        send_only: whether the endpoint has no queue, so that it gets no replies.
        metrics_instance: names the instance that metrics are reported of, on each message; None if messages do not name
            it.
        tracing: gives each message that is sent a span; None if nothing is traced.
        sends_through: functions around what is sent, the outermost one first.
    """

    name: str
    host: Host
    headers: Mapping[str, str | None]
    serializers: Serializers
    send_only: bool
    metrics_instance: str | None
    tracing: SendObserver | None
    sends_through: Sequence[AroundSend]

    def may_reply_to(self, database: Connection, address: str) -> bool:
        """Return whether handlers may reply to an address."""

    @property
    def queue(self) -> str:
        """The name of the endpoint's queue, with its schema if that is not the engine's default."""

    def resolve(self, name: str) -> str:
        """Return a queue's name that somebody wrote, with the schema that the environment means.

        Raises InvalidQueueName.
        """

    @property
    def address(self) -> Address:
        """The address of the endpoint's queue."""

    @property
    def reply_address(self) -> Address | None:
        """The address that gets replies to what the endpoint sends; None for none."""

    def route_of(self, cls: type) -> str:
        """Return the destination of a message class. Raises InvalidMessage if there is none."""

    def dispatch(
        self, database: Connection, groups: list[list[Outgoing]], *, begin: bool = False, commit: Commit = False
    ) -> None:
        """Send messages in one round trip together with BEGIN and COMMIT."""

    def callbacks(self, where: Connection) -> Requests:
        """Return the receiver of replies to this process's requests."""
