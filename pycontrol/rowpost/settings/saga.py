"""Settings of sagas: the tables that a deployment makes if it cannot read the endpoints' code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from rowpost.settings.yaml_node import Node, decode

__all__ = ["CorrelationType", "SagaSettings", "read_sagas"]

#: the types of a correlation property
CorrelationType = Literal["string", "integer", "timestamp", "uuid"]
_Property = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}\Z",
        description="a property's name: write letters, digits and underscores",
    ),
]


@dataclass(frozen=True)
class SagaSettings:
    """One type of saga: its table, and the property by which an instance is found.

    Attributes:
        name: the table, with its schema if that is not the default one.
        correlation: the property.
        type: its type: string, integer, uuid or timestamp.
        transitional: a second property, which is stored as well while sagas move from one to the other.
        transitional_type: its type; None if there is no second property.
        outbox: the outbox whose business database has the table; empty for the database of the queues.
    """

    name: str
    correlation: _Property
    type: CorrelationType = "string"
    transitional: _Property | None = None
    transitional_type: CorrelationType | None = None
    outbox: str = ""

    def __post_init__(self) -> None:
        kind = (self.transitional_type or "string") if self.transitional else None
        object.__setattr__(self, "transitional_type", kind)


def read_sagas(root: Node, name_of: Callable[[Node], str], dialect: str) -> tuple[SagaSettings, ...]:
    """Read the section `sagas`: tables by name, each with its correlation. Raises SettingsError."""
    sagas: dict[str, SagaSettings] = {}
    for node in root.children("sagas"):
        outbox = node.values.get("outbox", "")
        if outbox and outbox not in root.values.get("outbox", {}):
            raise node.error("outbox", f"is {outbox!r}, which is not declared below `outbox`: declare it there")
        name = node.name if outbox else name_of(node)
        key = f"{outbox}.{name.casefold() if dialect == 'sqlserver' else name}"
        if key in sagas:
            raise node.error("", "is the same table as another saga's: declare it once")
        sagas[key] = decode(node, SagaSettings, given={"name": name})
    return tuple(sagas.values())
