"""Read the YAML file with the targets of endpoints and message types: which share of the messages is to be handled how fast.

window: 30d                        # of the error budgets; 30 days by default
targets:
  - name: orders
    endpoint: Sales                # a pattern, * matches any text; all by default
    message_type: Shop.PlaceOrder  # a pattern
    critical_time: 2s              # from sending to the end of handling, or processing_time: that of the handler
    share: 99.9%
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from rowpost.settings.yaml_file import read_root
from rowpost.settings.yaml_node import Node
from rowpost.spark.report_values import check_names, share, span

__all__ = ["Target", "Targets", "read_targets"]

_KINDS: tuple[Literal["critical_time", "processing_time"], ...] = ("critical_time", "processing_time")
_WINDOW = timedelta(days=30)


@dataclass(frozen=True)
class Target:
    """The share of messages, from 0 to 1, whose time is to be within a limit."""

    name: str
    kind: Literal["critical_time", "processing_time"]
    within: timedelta
    share: float
    endpoint: str = "*"
    message_type: str = "*"


@dataclass(frozen=True)
class Targets:
    """The targets of a file, and the time back from now in which their error budgets count."""

    targets: tuple[Target, ...]
    window: timedelta = _WINDOW


def read_targets(path: Path) -> Targets:
    """Read a file of targets. Raises SettingsError, which names file, target and key."""
    root = read_root(path)
    window = span(root, "window") if "window" in root.values else _WINDOW
    targets = tuple(map(_target, root.items("targets")))
    root.check_keys(("window", "targets"))
    check_names(root, "targets", (target.name for target in targets))
    return Targets(targets, window)


def _target(node: Node) -> Target:
    node.check_keys(("name", "endpoint", "message_type", "share", *_KINDS))
    kinds = [kind for kind in _KINDS if kind in node.values]
    if len(kinds) != 1:
        raise node.error("", f"has {len(kinds)} limits: write critical_time or processing_time, such as critical_time: 2s")
    if "share" not in node.values:
        raise node.error("share", "missing: write a share, such as 99.9%")
    patterns = {key: node.take(key, str) for key in ("endpoint", "message_type") if key in node.values}
    return Target(node.take("name", str), kinds[0], span(node, kinds[0]), share(node, "share"), **patterns)
