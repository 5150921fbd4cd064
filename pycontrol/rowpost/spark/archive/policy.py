"""Read the YAML file that says what an archive keeps. The first rule that matches a message applies.

rules:
  - queue: audit                 # a pattern, * matches any text; all queues by default
    message_type: Shop.Pay*      # a pattern; all by default, including messages without a type
    older_than: 90d              # measured from the message's day
    larger_than: 1MB             # size of the body
    action: delete               # or redact: removes body and free text, keeps what is counted

limits:
  - queue: audit
    total: 50GB                  # of all files: the oldest days are deleted
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from rowpost.settings.yaml_file import read_root
from rowpost.settings.yaml_node import Node, decode

__all__ = ["Limit", "Retention", "Rule", "pattern", "read_policy"]

_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_DAYS = {"d": 1, "w": 7}
_Age = Annotated[str, Meta(pattern=r"^[0-9]{1,6}[dw]\Z", description="a number of days or weeks, such as 90d or 12w")]
_Size = Annotated[str, Meta(pattern=r"^[0-9]{1,9} ?[KMGT]?B\Z", description="a size, such as 500KB, 1MB or 50GB")]


@dataclass(frozen=True)
class Rule:
    """Which messages to delete or redact. `larger_than` is in bytes; None does not filter."""

    action: Literal["delete", "redact"]
    queue: str = "*"
    message_type: str = "*"
    older_than: timedelta | None = None
    larger_than: int | None = None


@dataclass(frozen=True)
class Limit:
    """The maximum total size, in bytes, of the files of each matching queue."""

    total: int
    queue: str = "*"


@dataclass(frozen=True)
class Retention:
    """The rules and limits of one file."""

    rules: tuple[Rule, ...] = ()
    limits: tuple[Limit, ...] = ()


def read_policy(path: Path) -> Retention:
    """Read a policy from a YAML file. Raises SettingsError, which names file, rule and key."""
    root = read_root(path)
    policy = Retention(tuple(map(_rule, root.items("rules"))), tuple(map(_limit, root.items("limits"))))
    root.check_keys()
    if not policy.rules and not policy.limits:
        raise root.error("", "has neither rules nor limits: nothing would be done")
    return policy


def _rule(node: Node) -> Rule:
    given = {
        key: read(node, key) for key, read in (("older_than", _days), ("larger_than", _bytes)) if key in node.values
    }
    rule = decode(node, Rule, given=given)
    if node.values.keys() <= {"action"}:
        raise node.error("", f'would {rule.action} every message of every queue: say which, with queue: "*" if all')
    return rule


def _limit(node: Node) -> Limit:
    return decode(node, Limit, given={"total": _bytes(node, "total")})


def _days(node: Node, key: str) -> timedelta:
    text = node.take(key, _Age)
    return timedelta(days=int(text[:-1]) * _DAYS[text[-1]])


def _bytes(node: Node, key: str) -> int:
    number = (text := node.take(key, _Size)).rstrip(" BKMGT")
    return int(number) * _UNITS[text.removeprefix(number).strip()]


def pattern(glob: str) -> str:
    """Convert a glob pattern to a regular expression that Java and Python read alike.

    >>> re.fullmatch(pattern("Shop.P*"), "Shop.Place") is not None
    True
    """
    return "^" + "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in glob) + "$"
