"""The section `service_control` of an environment: where heartbeats, results of checks, metrics and changes of sagas
go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from msgspec import Meta

from rowpost.errors import InvalidQueueName
from rowpost.settings.yaml_node import LONGEST_S, Node, Seconds, decode
from rowpost.wire.address import Naming

__all__ = ["ServiceControlSettings", "read_service_control"]


@dataclass(frozen=True)
class ServiceControlSettings:
    """How endpoints report to ServiceControl.

    Attributes:
        queue: the address of its queue. A name with dots stands in quotes: `"Particular.ServiceControl"`.
        heartbeat: seconds between two heartbeats of an endpoint; 0 sends none, only the results of checks.
        oldest_message: seconds after which a message that still waits makes the check of its queue fail; 0 checks
            nothing of rowpost's own.
        monitoring: the address of the monitoring instance's queue, to which metrics are sent; None measures nothing.
        metrics_interval: seconds between two reports of metrics; more often under load.
        instance: names the endpoints of this environment's supervisor among other instances of them, on each message
            that they send. None: the monitoring instance tells them apart by their machines. Needs `monitoring`.
        saga_audit: whether endpoints report each change of a saga.
    """

    queue: str
    heartbeat: Seconds = 10.0
    oldest_message: Seconds = 300.0
    monitoring: str | None = None
    metrics_interval: Annotated[float, Meta(ge=0.1, le=LONGEST_S)] = 10.0
    instance: str | None = None
    saga_audit: bool = False


def read_service_control(node: Node | None, naming: Naming) -> ServiceControlSettings | None:
    """Read the section; None if there is none.

    Its queues get the environment's default schema. Raises SettingsError.
    """
    if node is None:
        return None
    settings = decode(node, ServiceControlSettings)
    named: dict[str, Any] = {}
    for key, address in (("queue", settings.queue), ("monitoring", settings.monitoring)):
        try:
            named |= {} if address is None else {key: naming.resolve(address)}
            naming.canonical(named.get(key, settings.queue))
        except InvalidQueueName as error:
            raise node.error(key, str(error)) from error
    if settings.instance is not None and settings.monitoring is None:
        raise node.error("instance", "names the source of metrics, which are not sent: add monitoring, or remove it")
    return replace(settings, **named)
