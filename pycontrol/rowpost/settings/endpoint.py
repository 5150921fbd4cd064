"""Settings of endpoints: the section `endpoints` of an environment, by the endpoints' names; and `host`, which holds
for all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from rowpost.errors import InvalidQueueName
from rowpost.settings.yaml_node import Node, decode
from rowpost.wire.address import parse_address

__all__ = ["EndpointSettings", "HostSettings", "check_address", "read_endpoints", "read_host"]

_ROUTED = re.compile(r"[^\s,;*]+(?:\.\*)?")
_Guid = Annotated[
    str,
    Meta(
        pattern=r"^(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\Z",
        description="a GUID of 32 hexadecimal digits, in quotes",
    ),
]


@dataclass(frozen=True)
class HostSettings:
    """How ServiceControl tells instances of an endpoint apart.

    It shows endpoints with the same name and host id as one instance.

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
        audit_queue: where copies of handled messages go if the endpoint's code does not say it; None for the
            environment's.
        routes: destinations by the full name of a message type, or by a namespace with `.*` at its end, which stands
            for the types of this namespace and not of those below it.
    """

    name: str
    host: HostSettings | None = None
    audit_queue: str | None = None
    routes: tuple[tuple[str, str], ...] = ()


def read_host(node: Node | None) -> HostSettings | None:
    """Read a section `host`; None if there is none. Raises SettingsError."""
    if node is None:
        return None
    host = decode(node, HostSettings)
    if host.id is not None:
        host = HostSettings(host.name, UUID(host.id).hex)
    return host


def check_address(node: Node, key: str, name: str | None) -> None:
    """Check a queue's name, if there is one. Raises SettingsError."""
    try:
        parse_address(name or "none")
    except InvalidQueueName as error:
        raise node.error(key, str(error)) from error


def _read_routes(node: Node | None) -> tuple[tuple[str, str], ...]:
    if node is None:
        return ()
    routes = []
    for name in node.all:
        to = node.take(name, str)
        if not _ROUTED.fullmatch(name):
            raise node.error(
                name, "is no message type: write its full name without its assembly, or a namespace as Shop.Messages.*"
            )
        check_address(node, name, to)
        routes.append((name, to))
    return tuple(routes)


def read_endpoints(root: Node) -> tuple[EndpointSettings, ...]:
    """Read the section `endpoints`. Raises SettingsError."""
    found = []
    for node in root.children("endpoints"):
        given = {"name": node.name, "host": read_host(node.child("host")), "routes": _read_routes(node.child("routes"))}
        found.append(decode(node, EndpointSettings, given=given))
        check_address(node, "audit_queue", found[-1].audit_queue)
    return tuple(found)
