"""Build the messages that follow a handled message: its audit copy, a forwarded copy, and ServiceControl's
acknowledgement.

All functions are pure. They return outgoing messages, which are sent in the transaction of the handled message. The
headers are those that ServiceControl reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from rowpost.errors import SettingsError
from rowpost.recoverability.policy import Host
from rowpost.wire.headers import (
    CONTROL_MESSAGE,
    ENCLOSED_MESSAGE_TYPES,
    FORWARD_DESTINATION,
    HOST_DISPLAY_NAME,
    HOST_ID,
    MESSAGE_ID,
    PROCESSING_ENDED,
    PROCESSING_ENDPOINT,
    PROCESSING_MACHINE,
    PROCESSING_STARTED,
    RETRY_ACKNOWLEDGEMENT_QUEUE,
    RETRY_ACKNOWLEDGEMENT_SENT,
    RETRY_SUCCESSFUL,
    RETRY_UNIQUE_MESSAGE_ID,
    TIME_SENT,
)
from rowpost.wire.message import Message, format_timestamp, storable, timestamp_now
from rowpost.wire.message_types import split_enclosed_types, type_key
from rowpost.wire.outgoing import AddressedMessage

__all__ = ["NotAudited", "acknowledgement", "audited", "forwarded", "not_audited"]


Headers = Mapping[str, str | None]
#: returns whether the audit queue gets no copy of a message with these headers
NotAudited = Callable[[Headers], object]


def not_audited(endpoint: str, what: Iterable[str] | NotAudited) -> NotAudited:
    """Return the function that decides which messages of an endpoint are not audited.

    Args:
        endpoint: its name.
        what: the function, or full names of types. A type stands for those that derive from it, too.

    Raises:
        SettingsError: `what` is a text.
    """
    if isinstance(what, str):
        raise SettingsError(f"The endpoint {endpoint!r} cannot have not_audited={what!r}. Write a list: [{what!r}].")
    if callable(what):
        return what
    types = frozenset(map(type_key, what))
    return lambda headers: (
        not types.isdisjoint(map(type_key, split_enclosed_types(headers.get(ENCLOSED_MESSAGE_TYPES))))
    )


def audited(
    message: Message,
    queue: str,
    host: Host,
    started: datetime,
    headers: Headers,
    time_to_be_received: timedelta | None = None,
) -> AddressedMessage:
    """Return the copy of a message for the audit queue.

    Args:
        message: the handled message.
        queue: the audit queue.
        host: the endpoint and machine that handled the message.
        started: when the handler started, in UTC.
        headers: the headers as the message arrived, without changes by handlers, and those that the audit copy adds.
        time_to_be_received: the copy expires after this time; None if it does not.
    """
    copy = {
        **storable(headers),
        MESSAGE_ID: headers.get(MESSAGE_ID) or str(message.id),
        PROCESSING_STARTED: format_timestamp(started),
        PROCESSING_ENDED: timestamp_now(),
        PROCESSING_ENDPOINT: host.endpoint,
        PROCESSING_MACHINE: host.machine,
        HOST_ID: host.id,
        HOST_DISPLAY_NAME: host.display_name,
    }
    if headers.get(RETRY_UNIQUE_MESSAGE_ID) and headers.get(RETRY_ACKNOWLEDGEMENT_QUEUE):
        copy[RETRY_ACKNOWLEDGEMENT_SENT] = "true"
    return AddressedMessage(copy, message.body, queue, time_to_be_received=time_to_be_received)


def forwarded(message: Message, headers: Headers, destination: str) -> AddressedMessage:
    """Return a delayed message for its destination, without the header that names the destination."""
    kept = {name: value for name, value in headers.items() if name != FORWARD_DESTINATION}
    return AddressedMessage(kept, message.body, destination)


def acknowledgement(headers: Headers, resolve: Callable[[str], str]) -> list[AddressedMessage]:
    """Return the message that tells ServiceControl that a message it retried was handled; none if it asked for none.

    `resolve` gives the queue's name the schema that the environment means, if it has none.
    """
    retried, queue = headers.get(RETRY_UNIQUE_MESSAGE_ID), headers.get(RETRY_ACKNOWLEDGEMENT_QUEUE)
    if not retried or not queue:
        return []
    confirmation: dict[str, str | None] = {
        RETRY_SUCCESSFUL: timestamp_now(),
        RETRY_UNIQUE_MESSAGE_ID: retried,
        CONTROL_MESSAGE: "True",
        TIME_SENT: timestamp_now(),
    }
    return [AddressedMessage(confirmation, b"", resolve(queue))]
