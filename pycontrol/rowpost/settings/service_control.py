"""The section `service_control` of an environment: where heartbeats and the results of custom checks go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from rowpost.errors import InvalidQueueName
from rowpost.settings.yaml_node import Node, decode
from rowpost.wire.address import parse_address

__all__ = ["ServiceControlSettings", "read_service_control"]


@dataclass(frozen=True)
class ServiceControlSettings:
    """How endpoints report to ServiceControl.

    Attributes:
        queue: the address of its queue. A name with dots stands in quotes: `"Particular.ServiceControl"`.
        heartbeat: seconds between two heartbeats of an endpoint; 0 sends none, only the results of checks.
        oldest_message: seconds after which a message that still waits makes the check of its queue fail; 0 checks nothing of rowpost's own.
    """

    queue: str
    heartbeat: Annotated[float, Meta(ge=0)] = 10.0
    oldest_message: Annotated[float, Meta(ge=0)] = 300.0


def read_service_control(node: Node | None) -> ServiceControlSettings | None:
    """Read the section; None if there is none. Raises SettingsError."""
    if node is None:
        return None
    settings = decode(node, ServiceControlSettings)
    try:
        parse_address(settings.queue)
    except InvalidQueueName as error:
        raise node.error("queue", str(error)) from error
    return settings
