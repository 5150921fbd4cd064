"""How a table's rows become messages, as a TOML file says it.

    key = ["order_id"]                    # columns that name a row for ever: its id is made of them
    type = "Shop.Messages.PlaceOrder"     # NServiceBus.EnclosedMessageTypes
    body = ["order_id", "amount"]         # fields of the JSON body; all columns by default
    # body_column = "payload"             # or: one column is the body as it is
    # content_type = "application/json"

    [headers]
    "Shop.Customer" = "customer_id"       # header = column
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowpost.errors import SettingsError

__all__ = ["LoadMap", "read_map"]

_KEYS = {"key", "type", "body", "body_column", "content_type", "headers"}


@dataclass(frozen=True)
class LoadMap:
    """`key`, `body` and the values of `headers` are columns; `body` None means all of them."""

    key: tuple[str, ...]
    type: str
    body: tuple[str, ...] | None = None
    body_column: str | None = None
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> set[str]:
        """Those that the table must have."""
        body = {self.body_column} if self.body_column else set(self.body or ())
        return {*self.key, *body, *(column for _, column in self.headers)}


def read_map(path: Path) -> LoadMap:
    """Raises SettingsError, which names file and key."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read as TOML: {error}") from error
    unknown = sorted(document.keys() - _KEYS)
    if unknown:
        raise SettingsError(f"{path}: {unknown[0]!r} is no key; it may have {', '.join(sorted(_KEYS))}.")
    if not _texts(document.get("key")) or not document.get("key"):
        raise SettingsError(f'{path}: key must name the columns that make a row\'s id, such as key = ["order_id"].')
    if not isinstance(document.get("type"), str) or not document["type"]:
        raise SettingsError(f'{path}: type is missing: the message type, such as type = "Shop.Messages.PlaceOrder".')
    if "body" in document and ("body_column" in document or not _texts(document["body"])):
        raise SettingsError(f"{path}: body is a list of columns, and stands without body_column.")
    headers = document.get("headers", {})
    if not isinstance(headers, dict) or not _texts(list(headers.values())):
        raise SettingsError(f"{path}: [headers] gives a column for each header.")
    return LoadMap(
        tuple(document["key"]), document["type"], tuple(document["body"]) if "body" in document else None,
        document.get("body_column"), document.get("content_type", "application/json"), tuple(headers.items()),
    )  # fmt: skip


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
