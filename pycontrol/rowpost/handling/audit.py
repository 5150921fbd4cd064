"""Copies of messages that follow their handling: to the audit queue, onwards, and to ServiceControl. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from rowpost.recoverability.policy import Host
from rowpost.wire.headers import (
    CONTROL_MESSAGE,
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
)
from rowpost.wire.message import Message, format_timestamp, storable
from rowpost.wire.operation import Operation

__all__ = ["acknowledgement", "audited", "forwarded"]



def audited(
    message: Message, queue: str, host: Host, started: datetime, headers: Mapping[str, str | None] | None = None
) -> Operation:
    """The copy for the audit queue: headers and body as they came, who handled it, from when to when (reference I12).

    `headers` are the message's own from before a handler could change them.
    """
    came = message.headers if headers is None else headers
    copy = {
        **storable(came),
        MESSAGE_ID: came.get(MESSAGE_ID) or str(message.id),
        PROCESSING_STARTED: format_timestamp(started),
        PROCESSING_ENDED: format_timestamp(datetime.now(UTC)),
        PROCESSING_ENDPOINT: host.endpoint,
        PROCESSING_MACHINE: host.machine,
        HOST_ID: host.id,
        HOST_DISPLAY_NAME: host.machine,
    }
    if came.get(RETRY_UNIQUE_MESSAGE_ID) and came.get(RETRY_ACKNOWLEDGEMENT_QUEUE):
        copy[RETRY_ACKNOWLEDGEMENT_SENT] = "true"
    return Operation(copy, message.body, queue)


def forwarded(message: Message) -> Operation:
    """A delayed message on to the queue that it was meant for, without the header that said so (reference G3)."""
    headers = {name: value for name, value in message.headers.items() if name != FORWARD_DESTINATION}
    return Operation(headers, message.body, message.headers[FORWARD_DESTINATION])


def acknowledgement(message: Message) -> list[Operation]:
    """What ServiceControl is told when a message that it retried was handled (reference 2.6)."""
    retried, queue = message.headers.get(RETRY_UNIQUE_MESSAGE_ID), message.headers.get(RETRY_ACKNOWLEDGEMENT_QUEUE)
    if not (retried and queue):
        return []
    headers = {
        RETRY_SUCCESSFUL: format_timestamp(datetime.now(UTC)),
        RETRY_UNIQUE_MESSAGE_ID: retried,
        CONTROL_MESSAGE: "True",
    }
    return [Operation(headers, b"", queue)]
