"""What an archive keeps, as a TOML file says it: rules, the first that fits a message decides.

    [[rule]]
    queue = "audit"              # a pattern, * stands for anything; all queues by default
    message_type = "Shop.Pay*"   # a pattern; all by default, messages without a type too
    older_than = "90d"           # by the message's day
    larger_than = "1MB"          # by its body
    action = "delete"            # or "redact": body and free text go, what is counted stays

    [[limit]]
    queue = "audit"
    total = "50GB"               # of all files: the oldest days go
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from rowpost.errors import SettingsError

__all__ = ["ACTIONS", "Limit", "Policy", "Rule", "parse_bytes", "pattern", "read_policy"]

ACTIONS = ("delete", "redact")
_RULE = {"queue", "message_type", "older_than", "larger_than", "action"}
_LIMIT = {"queue", "total"}
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_DAYS = {"d": 1, "w": 7}


@dataclass(frozen=True)
class Rule:
    """Which messages, and what becomes of them."""

    action: str
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
    """Raises SettingsError, which names file, table and key."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read as TOML: {error}") from error
    unknown = document.keys() - {"rule", "limit"}
    if unknown or not document:
        raise SettingsError(f"{path}: has {', '.join(sorted(unknown)) or 'nothing'}; a policy is made of [[rule]] and [[limit]].")
    rules = tuple(_rule(path, number, each) for number, each in enumerate(_tables(path, document, "rule"), 1))
    limits = tuple(_limit(path, number, each) for number, each in enumerate(_tables(path, document, "limit"), 1))
    return Policy(rules, limits)


def _tables(path: Path, document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    tables = document.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise SettingsError(f"{path}: write [[{name}]], in two brackets.")
    return tables


def _rule(path: Path, number: int, table: dict[str, Any]) -> Rule:
    where = f"{path}: rule {number}"
    _known(where, table, _RULE)
    if table.get("action") not in ACTIONS:
        raise SettingsError(f"{where}: action must be {' or '.join(ACTIONS)}, not {table.get('action')!r}.")
    if not table.keys() - {"action"}:
        raise SettingsError(f"{where}: would {table['action']} every message of every queue; say which, with queue = \"*\" if all.")
    return Rule(
        table["action"], table.get("queue", "*"), table.get("message_type", "*"),
        _days(where, table["older_than"]) if "older_than" in table else None,
        parse_bytes(where, table["larger_than"]) if "larger_than" in table else None,
    )  # fmt: skip


def _limit(path: Path, number: int, table: dict[str, Any]) -> Limit:
    where = f"{path}: limit {number}"
    _known(where, table, _LIMIT)
    if "total" not in table:
        raise SettingsError(f"{where}: total is missing, such as total = \"50GB\".")
    return Limit(parse_bytes(where, table["total"]), table.get("queue", "*"))


def _known(where: str, table: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(table.keys() - known)
    if unknown:
        raise SettingsError(f"{where}: {unknown[0]!r} is no key; it may have {', '.join(sorted(known))}.")
    for key, value in table.items():
        if not isinstance(value, str):
            raise SettingsError(f"{where}: {key} must be a text in quotes, not {value!r}.")


def _days(where: str, text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,6})([dw])", text)
    if match is None:
        raise SettingsError(f"{where}: older_than = {text!r} is no number of days or weeks, such as 90d or 12w.")
    return timedelta(days=int(match[1]) * _DAYS[match[2]])


def parse_bytes(where: str, text: str) -> int:
    """A size such as 1MB or 50GB in bytes. Raises SettingsError.

    >>> parse_bytes("rule 1", "2 KB")
    2048
    """
    match = re.fullmatch(r"(\d{1,9}) ?([KMGT]?B)", text)
    if match is None:
        raise SettingsError(f"{where}: {text!r} is no size, such as 500KB, 1MB or 50GB.")
    return int(match[1]) * _UNITS[match[2]]


def pattern(glob: str) -> str:
    """A regular expression that Java reads as Python does.

    >>> re.fullmatch(pattern("Shop.P*"), "Shop.Place") is not None
    True
    """
    return "^" + "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in glob) + "$"
