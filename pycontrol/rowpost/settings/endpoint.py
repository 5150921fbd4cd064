"""Settings of endpoints: the section `endpoints` of an environment, by the endpoints' names; and `host`, which holds for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from rowpost.settings.yaml_node import Node, decode

__all__ = ["EndpointSettings", "HostSettings", "read_endpoints", "read_host"]

_Guid = Annotated[
    str,
    Meta(pattern=r"^(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\Z", description="a GUID of 32 hexadecimal digits, in quotes"),
]


@dataclass(frozen=True)
class HostSettings:
    """How ServiceControl tells instances of an endpoint apart. It shows endpoints with the same name and host id as one instance.

    Attributes:
        name: the display name. None for the machine's name.
        id: a GUID. None for one that is made from the display name and the endpoint's name.
    """

    name: str | None = None
    id: _Guid | None = None


@dataclass(frozen=True)
class EndpointSettings:
    """What an environment says about one endpoint.

    Attributes:
        name: the endpoint's name, as its code has it.
        host: its host; None for that of the environment.
    """

    name: str
    host: HostSettings | None = None


def read_host(node: Node | None) -> HostSettings | None:
    """Read a section `host`; None if there is none. Raises SettingsError."""
    if node is None:
        return None
    host = decode(node, HostSettings)
    if host.id is not None:
        host = HostSettings(host.name, UUID(host.id).hex)
    return host


def read_endpoints(root: Node) -> tuple[EndpointSettings, ...]:
    """Read the section `endpoints`. Raises SettingsError."""
    found = []
    for node in root.children("endpoints"):
        given = {"name": node.name, "host": read_host(node.child("host"))}
        found.append(decode(node, EndpointSettings, given=given))
    return tuple(found)
