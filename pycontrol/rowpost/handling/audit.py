"""Copies of messages that follow their handling: to the audit queue, onwards, and to ServiceControl. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from rowpost.recoverability.policy import Host
from rowpost.wire.headers import FORWARD_DESTINATION
from rowpost.wire.message import MESSAGE_ID, Message, format_timestamp, storable
from rowpost.wire.operation import Operation

__all__ = ["acknowledgement", "audited", "forwarded"]

_RETRIED = "ServiceControl.Retry.UniqueMessageId"
_ACKNOWLEDGE = "ServiceControl.Retry.AcknowledgementQueue"


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
        "NServiceBus.ProcessingStarted": format_timestamp(started),
        "NServiceBus.ProcessingEnded": format_timestamp(datetime.now(UTC)),
        "NServiceBus.ProcessingEndpoint": host.endpoint,
        "NServiceBus.ProcessingMachine": host.machine,
        "$.diagnostics.hostid": host.id,
        "$.diagnostics.hostdisplayname": host.machine,
    }
    if came.get(_RETRIED) and came.get(_ACKNOWLEDGE):
        copy["ServiceControl.Retry.AcknowledgementSent"] = "true"
    return Operation(copy, message.body, queue)


def forwarded(message: Message) -> Operation:
    """A delayed message on to the queue that it was meant for, without the header that said so (reference G3)."""
    headers = {name: value for name, value in message.headers.items() if name != FORWARD_DESTINATION}
    return Operation(headers, message.body, message.headers[FORWARD_DESTINATION])


def acknowledgement(message: Message) -> list[Operation]:
    """What ServiceControl is told when a message that it retried was handled (reference 2.6)."""
    retried, queue = message.headers.get(_RETRIED), message.headers.get(_ACKNOWLEDGE)
    if not (retried and queue):
        return []
    headers = {
        "ServiceControl.Retry.Successful": format_timestamp(datetime.now(UTC)),
        _RETRIED: retried,
        "NServiceBus.ControlMessage": "True",
    }
    return [Operation(headers, b"", queue)]
