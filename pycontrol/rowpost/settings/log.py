"""The section `log` of an environment: which lines `rowpost run` writes, and in which form."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from rowpost.settings.yaml_node import Node, decode

__all__ = ["LogSettings", "read_log"]


@dataclass(frozen=True)
class LogSettings:
    """What is logged.

    Attributes:
        level: the least severe line that is written. Workers do not send records below it.
        format: `text`, or `json` for one document a line.
    """

    level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    format: Literal["text", "json"] = "text"

    @property
    def number(self) -> int:
        """The level as a number of the module logging."""
        return logging.getLevelNamesMapping()[self.level.upper()]


def read_log(node: Node | None) -> LogSettings:
    """Read the section. Raises SettingsError."""
    return LogSettings() if node is None else decode(node, LogSettings)
