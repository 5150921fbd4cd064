"""Messages to ServiceControl, as the plugins of NServiceBus send them: heartbeats, and the results of custom checks.

With them an endpoint appears in ServicePulse beside those of .NET.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from rowpost.wire.headers import CONTENT_TYPE, ENCLOSED_MESSAGE_TYPES, MESSAGE_INTENT, REPLY_TO_ADDRESS
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message_types import enclosed_type_names, message_type
from rowpost.wire.outgoing import AddressedMessage
from rowpost.wire.saga_audit import SagaUpdatedMessage
from rowpost.wire.user import user_name

__all__ = ["EndpointHeartbeat", "RegisterEndpointStartup", "ReportCustomCheckResult", "host_properties", "report"]

_JSON = JsonSerializer()


@message_type("ServiceControl.Plugin.Heartbeat.Messages.RegisterEndpointStartup")
@dataclass(frozen=True)
class RegisterEndpointStartup:
    """An endpoint has started in a process."""

    host_id: UUID
    endpoint: str
    started_at: datetime
    host_properties: dict[str, str]
    host_display_name: str
    host: str


@message_type("ServiceControl.Plugin.Heartbeat.Messages.EndpointHeartbeat")
@dataclass(frozen=True)
class EndpointHeartbeat:
    """An endpoint is alive."""

    executed_at: datetime
    endpoint_name: str
    host_id: UUID
    host: str


@message_type("ServiceControl.Plugin.CustomChecks.Messages.ReportCustomCheckResult")
@dataclass(frozen=True)
class ReportCustomCheckResult:
    """What a check of an endpoint has found. `failure_reason` is None if it passed."""

    host_id: UUID
    custom_check_id: str
    category: str
    has_failed: bool
    failure_reason: str | None
    reported_at: datetime
    endpoint_name: str
    host: str


def host_properties(machine: str) -> dict[str, str]:
    """Return what the plugin tells about the process: machine, process id, user and program."""
    return {"Machine": machine, "ProcessID": str(os.getpid()), "UserName": user_name(), "PathToExecutable": sys.argv[0]}


def report(
    message: RegisterEndpointStartup | EndpointHeartbeat | ReportCustomCheckResult | SagaUpdatedMessage,
    *,
    queue: str,
    reply_to: str,
    time_to_be_received: timedelta | None,
) -> AddressedMessage:
    """Return a message on its way to ServiceControl.

    Args:
        message: what it says.
        queue: the address of ServiceControl's queue.
        reply_to: the canonical address of the endpoint's queue.
        time_to_be_received: an old report is worth nothing; None if it does not expire.
    """
    headers: dict[str, str | None] = {
        ENCLOSED_MESSAGE_TYPES: enclosed_type_names(type(message)),
        CONTENT_TYPE: _JSON.content_type,
        MESSAGE_INTENT: "Send",
        REPLY_TO_ADDRESS: reply_to,
    }
    return AddressedMessage(headers, _JSON.encode(message), queue, time_to_be_received=time_to_be_received)
