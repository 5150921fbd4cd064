"""The sagas of an environment's file: the tables that a deployment makes where it cannot read the endpoints' code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from rowpost.settings.yaml_file import Section

__all__ = ["SagaSettings", "read_sagas"]

CORRELATION_TYPES = ("string", "integer", "timestamp", "uuid")
PROPERTY = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)


@dataclass(frozen=True)
class SagaSettings:
    """One type of saga: its table, and the property by which an instance is found.

    `type` is string, integer, uuid or timestamp. A second, transitional property is stored besides while sagas move
    from one to the other.
    """

    name: str
    correlation: str
    type: str = "string"
    transitional: str | None = None
    transitional_type: str | None = None


def read_sagas(top: Section, name_of: Callable[[Section], str], dialect: str) -> tuple[SagaSettings, ...]:
    """The section `sagas`: tables by name, each with its correlation. Raises SettingsError."""
    sagas: dict[str, SagaSettings] = {}
    for section in top.sections("sagas"):
        name = name_of(section)
        same = name.casefold() if dialect == "sqlserver" else name
        if same in sagas:
            raise section.error("", "is the same table as another saga's: declare it once")
        transitional = section.text("transitional", default=None)
        transitional_type = section.choice("transitional_type", CORRELATION_TYPES, default="string")
        sagas[same] = SagaSettings(
            name,
            section.text("correlation"),
            section.choice("type", CORRELATION_TYPES, default="string"),
            transitional,
            transitional and transitional_type,
        )
        for key in ("correlation", "transitional"):
            if not PROPERTY.fullmatch(getattr(sagas[same], key) or "x"):
                raise section.error(key, "is not a property's name: write letters, digits and underscores")
        section.finish()
    return tuple(sagas.values())
