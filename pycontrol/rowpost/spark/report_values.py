"""Read what the YAML files of reports have in common: names that are told apart, shares and durations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

from rowpost.settings.yaml_node import Node

__all__ = ["check_names", "share", "span"]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def check_names(node: Node, key: str, names: Iterable[str]) -> None:
    """Raise SettingsError if the list at `key` is empty, or has two items of one name."""
    counted = Counter(names)
    if not counted:
        raise node.error(key, "is empty: there would be nothing to report")
    if twice := [name for name, number in counted.items() if number > 1]:
        raise node.error(key, f"two {key} are named {twice[0]!r}: reports could not tell them apart")


def share(node: Node, key: str) -> float:
    """Return a share such as 0.1% as a number from 0 to 1. Raises SettingsError."""
    text = node.values[key]
    match = re.fullmatch(r"(\d{1,3}(?:\.\d+)?) ?%", text) if isinstance(text, str) else None
    node.taken.add(key)
    if match is None or float(match[1]) > 100:  # noqa: PLR2004 -- per cent
        raise node.wrong(key, "a share, such as 0.1%")
    return float(match[1]) / 100


def span(node: Node, key: str) -> timedelta:
    """Return a duration such as 1d or 30m. Raises SettingsError."""
    text = node.values[key]
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)(ms|[smhd])", text) if isinstance(text, str) else None
    node.taken.add(key)
    if match is None or not float(match[1]):
        raise node.wrong(key, "a duration, such as 500ms, 2s, 30m, 12h or 1d")
    return timedelta(milliseconds=float(match[1])) if match[2] == "ms" else timedelta(**{_UNITS[match[2]]: float(match[1])})
