"""What an archive keeps, as a YAML file says it: rules, the first that fits a message decides.

    rules:
      - queue: audit                 # a pattern, * stands for anything; all queues by default
        message_type: Shop.Pay*      # a pattern; all by default, messages without a type too
        older_than: 90d              # by the message's day
        larger_than: 1MB             # by its body
        action: delete               # or redact: body and free text go, what is counted stays

    limits:
      - queue: audit
        total: 50GB                  # of all files: the oldest days go
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from rowpost.settings.yaml_file import read_root
from rowpost.settings.yaml_node import Node, decode

__all__ = ["ACTIONS", "Limit", "Policy", "Rule", "pattern", "read_policy"]

ACTIONS = ("delete", "redact")
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_DAYS = {"d": 1, "w": 7}


@dataclass(frozen=True)
class Rule:
    """Which messages, and what becomes of them."""

    action: Literal["delete", "redact"]
    queue: str = "*"
    message_type: str = "*"
    older_than: timedelta | None = None
    larger_than: int | None = None


@dataclass(frozen=True)
class Limit:
    """How many bytes the files of each queue that fits may have together."""

    total: int
    queue: str = "*"


@dataclass(frozen=True)
class Policy:
    """All of a file."""

    rules: tuple[Rule, ...] = ()
    limits: tuple[Limit, ...] = ()


def read_policy(path: Path) -> Policy:
    """Read a policy from a YAML file. Raises SettingsError, which names file, rule and key."""
    root = read_root(path)
    policy = Policy(tuple(map(_rule, root.items("rules"))), tuple(map(_limit, root.items("limits"))))
    root.check_keys()
    if not policy.rules and not policy.limits:
        raise root.error("", "has neither rules nor limits: nothing would be done")
    return policy


def _rule(node: Node) -> Rule:
    older_than = _days(node, "older_than") if "older_than" in node.values else None
    larger_than = _bytes(node, "larger_than") if "larger_than" in node.values else None
    node.taken.update(("older_than", "larger_than"))
    rule = decode(node, Rule, given={"older_than": older_than, "larger_than": larger_than})
    if node.values.keys() <= {"action"}:
        raise node.error("", f'would {rule.action} every message of every queue: say which, with queue: "*" if all')
    return rule


def _limit(node: Node) -> Limit:
    return decode(node, Limit, given={"total": _bytes(node, "total")})


def _days(node: Node, key: str) -> timedelta:
    text = node.take(key, str)
    match = re.fullmatch(r"(\d{1,6})([dw])", text)
    if match is None:
        raise node.error(key, f"{text!r} is not a number of days or weeks, such as 90d or 12w")
    return timedelta(days=int(match[1]) * _DAYS[match[2]])


def _bytes(node: Node, key: str) -> int:
    text = node.take(key, str)
    match = re.fullmatch(r"(\d{1,9}) ?([KMGT]?B)", text)
    if match is None:
        raise node.error(key, f"{text!r} is not a size, such as 500KB, 1MB or 50GB")
    return int(match[1]) * _UNITS[match[2]]


def pattern(glob: str) -> str:
    """A regular expression that Java reads as Python does.

    >>> re.fullmatch(pattern("Shop.P*"), "Shop.Place") is not None
    True
    """
    return "^" + "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in glob) + "$"
