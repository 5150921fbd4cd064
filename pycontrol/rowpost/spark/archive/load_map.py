"""Read the YAML file that maps the rows of a table to messages.

    key: [order_id]                       # columns that identify a row; the message id is computed from them
    type: Shop.Messages.PlaceOrder        # NServiceBus.EnclosedMessageTypes
    body: [order_id, amount]              # fields of the JSON body; all columns by default
    # body_column: payload                # instead of body: send one column unchanged
    # content_type: application/json
    headers:
      Shop.Customer: customer_id          # header: column
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rowpost.settings.yaml_file import Section, read_values

__all__ = ["LoadMap", "read_map"]


@dataclass(frozen=True)
class LoadMap:
    """A mapping. `key`, `body` and the values of `headers` name columns. If `body` is None, the body has all columns."""

    key: tuple[str, ...]
    type: str
    body: tuple[str, ...] | None = None
    body_column: str | None = None
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> set[str]:
        """The columns that the table must have."""
        body = {self.body_column} if self.body_column else set(self.body or ())
        return {*self.key, *body, *(column for _, column in self.headers)}


def read_map(path: Path) -> LoadMap:
    """Read a mapping. Raises SettingsError, which names file and key."""
    document = Section(path, "", read_values(path))
    key, message_type = document.texts("key"), document.text("type")
    body, body_column = document.texts("body", None), document.text("body_column", None)
    if body and body_column:
        raise document.error("body", "cannot be combined with body_column: write one of them")
    content_type = document.text("content_type", "application/json")
    headers = document.section("headers")
    document.finish()
    return LoadMap(
        tuple(key), message_type, tuple(body) if body else None, body_column, content_type,
        tuple((name, headers.text(name)) for name in headers) if headers else (),
    )  # fmt: skip
