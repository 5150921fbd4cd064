"""Read the YAML file that says what is expected of messages. Each rule has one check.

    schemas: schemas                   # a folder of schema files, from this file; without it, rules see an archive's columns only
    rules:
      - name: order has a number       # in reports; each name once
        message_type: Shop.PlaceOrder  # a pattern, * matches any text; all types by default
        not_null: [OrderId, Customer.Name]
        severity: error                # or warning, which never changes the exit code
        allowed: 0.1%                  # the share of messages that may fail; none by default
      - {name: amount, message_type: Shop.*, column: Amount, min: 0, max: 10000}
      - {name: colour, column: Colour, values: [red, green]}
      - {name: email, column: Email, matches: '[^@]+@[^@]+'}
      - {name: total, message_type: Shop.PlaceOrder, sql: 'Total = Net + Tax'}
      - {name: once a day, message_type: Shop.PlaceOrder, unique: [OrderId], within: 1d}
      - {name: no gap, message_type: Shop.Invoiced, sequence: Number, by: [Branch]}
      - {name: types are known, known_type: true}
      - {name: nothing is left over, no_rescued: true}

A value that is null passes all checks but `not_null`, as in a CHECK constraint of SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from rowpost.settings.yaml_file import read_root
from rowpost.settings.yaml_node import Node, Texts
from rowpost.spark.report_values import check_names, share, span

__all__ = ["Expectations", "Rule", "read_expectations"]

Check = Literal["not_null", "range", "values", "matches", "sql", "unique", "sequence", "known_type", "no_rescued"]
Severity = Literal["error", "warning"]
_KEYS: dict[str, Check] = {
    "not_null": "not_null", "min": "range", "max": "range", "values": "values", "matches": "matches", "sql": "sql", "unique": "unique",
    "sequence": "sequence", "known_type": "known_type", "no_rescued": "no_rescued",
}  # fmt: skip
_OF_A_COLUMN = ("range", "values", "matches")
_COMMON = ("name", "message_type", "severity", "allowed")
_MORE = {"column": _OF_A_COLUMN, "within": ("unique",), "by": ("sequence",)}


@dataclass(frozen=True)
class Rule:
    """An expectation. `columns` are those of the check; the other fields belong to some checks only."""

    name: str
    check: Check
    message_type: str = "*"
    severity: Severity = "error"
    allowed: float = 0.0
    columns: tuple[str, ...] = ()
    low: Any = None
    high: Any = None
    values: tuple[Any, ...] = ()
    text: str = ""
    by: tuple[str, ...] = ()
    within: timedelta | None = None


@dataclass(frozen=True)
class Expectations:
    """The rules of one file, and its folder of schemas."""

    file: Path
    rules: tuple[Rule, ...]
    schemas: Path | None = None


def read_expectations(path: Path) -> Expectations:
    """Read the rules of a file. Raises SettingsError, which names file, rule and key."""
    root = read_root(path)
    folder = path.parent / root.take("schemas", str) if "schemas" in root.values else None
    rules = tuple(map(_rule, root.items("rules")))
    root.check_keys(("schemas", "rules"))
    check_names(root, "rules", (rule.name for rule in rules))
    return Expectations(path, rules, folder)


def _rule(node: Node) -> Rule:
    node.check_keys((*_COMMON, *_KEYS, *_MORE))
    checks = sorted({_KEYS[key] for key in node.values if key in _KEYS})
    if len(checks) != 1:
        found = f"has {len(checks)} checks ({', '.join(checks)})" if checks else "has no check"
        raise node.error("", f"{found}: write one of not_null, min and max, values, matches, sql, unique, sequence, known_type, no_rescued")
    check = checks[0]
    for key, of in _MORE.items():
        if key in node.values and check not in of:
            raise node.error(key, f"belongs to {' and '.join(of)}, not to {check}")
    return Rule(
        name=node.take("name", str), check=check, columns=_columns(node, check),
        message_type=node.take("message_type", str) if "message_type" in node.values else "*",
        severity=node.take("severity", Severity) if "severity" in node.values else "error",
        allowed=share(node, "allowed") if "allowed" in node.values else 0.0,
        low=_value(node, "min"), high=_value(node, "max"), values=_values(node), text=_text(node, check), by=_names(node, "by"),
        within=span(node, "within") if "within" in node.values else None,
    )  # fmt: skip


def _columns(node: Node, check: Check) -> tuple[str, ...]:
    if check in _OF_A_COLUMN:
        return (node.take("column", str),)
    if check in ("known_type", "no_rescued"):
        if node.take(check, bool) is not True:
            raise node.wrong(check, "true")
        return ()
    return () if check == "sql" else _names(node, check)


def _names(node: Node, key: str) -> tuple[str, ...]:
    """Return one name or a list of names."""
    if key not in node.values:
        return ()
    return (node.take(key, str),) if isinstance(node.values[key], str) else node.take(key, Texts)


def _value(node: Node, key: str) -> Any:
    value = node.values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float | str | date | datetime | None):
        raise node.wrong(key, "a number, a text, a date or a time")
    return value


def _values(node: Node) -> tuple[Any, ...]:
    values = node.values.get("values", [])
    if not isinstance(values, list) or ("values" in node.values and not values):
        raise node.wrong("values", "a list of values, such as [red, green]")
    if any(isinstance(value, dict | list) or value is None for value in values):
        raise node.wrong("values", "a list of plain values, without null")
    return tuple(values)


def _text(node: Node, check: Check) -> str:
    return node.take(check, str) if check in ("matches", "sql") else ""
