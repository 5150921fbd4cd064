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

from rowpost.settings.yaml_file import Section, read_values

__all__ = ["ACTIONS", "Limit", "Policy", "Rule", "pattern", "read_policy"]

ACTIONS = ("delete", "redact")
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_DAYS = {"d": 1, "w": 7}


@dataclass(frozen=True)
class Rule:
    """Which messages to delete or redact. `larger_than` is in bytes; None does not filter."""

    action: str
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
class Policy:
    """The rules and limits of one file."""

    rules: tuple[Rule, ...] = ()
    limits: tuple[Limit, ...] = ()


def read_policy(path: Path) -> Policy:
    """Read a policy. Raises SettingsError, which names file, rule and key."""
    document = Section(path, "", read_values(path))
    rules, limits = tuple(map(_rule, document.listed("rules"))), tuple(map(_limit, document.listed("limits")))
    document.finish()
    if not rules and not limits:
        raise document.error("", "has neither rules nor limits, so it would do nothing: add one")
    return Policy(rules, limits)


def _rule(rule: Section) -> Rule:
    action = rule.choice("action", ACTIONS)
    queue, message_type = rule.text("queue", None), rule.text("message_type", None)
    older_than, larger_than = rule.text("older_than", None), rule.text("larger_than", None)
    rule.finish()
    if (queue, message_type, older_than, larger_than) == (None,) * 4:
        raise rule.error("", f'would {action} every message of every queue: add a condition, or queue: "*" for all messages')
    return Rule(
        action, queue or "*", message_type or "*",
        None if older_than is None else _days(rule, older_than),
        None if larger_than is None else _bytes(rule, "larger_than", larger_than),
    )  # fmt: skip


def _limit(limit: Section) -> Limit:
    total, queue = limit.text("total"), limit.text("queue", "*")
    limit.finish()
    return Limit(_bytes(limit, "total", total), queue)


def _days(rule: Section, text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,6})([dw])", text)
    if match is None:
        raise rule.error("older_than", f"must be a number of days or weeks, such as 90d or 12w (got {text!r})")
    return timedelta(days=int(match[1]) * _DAYS[match[2]])


def _bytes(section: Section, key: str, text: str) -> int:
    match = re.fullmatch(r"(\d{1,9}) ?([KMGT]?B)", text)
    if match is None:
        raise section.error(key, f"must be a size, such as 500KB, 1MB or 50GB (got {text!r})")
    return int(match[1]) * _UNITS[match[2]]


def pattern(glob: str) -> str:
    """Convert a glob pattern to a regular expression that Java and Python read alike.

    >>> re.fullmatch(pattern("Shop.P*"), "Shop.Place") is not None
    True
    """
    return "^" + "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in glob) + "$"
