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

from rowpost.settings.yaml_file import read_root
from rowpost.settings.yaml_node import Texts, decode

__all__ = ["LoadMap", "read_map"]


@dataclass(frozen=True)
class LoadMap:
    """How the rows of a table become messages.

    Attributes:
        key: columns that identify a row permanently.
        type: the message type.
        body: columns that are the fields of the JSON body; None for all columns.
        body_column: the column that holds the whole body, instead of `body`.
        content_type: of the body.
        headers: pairs of a header's name and the column that holds its value.
    """

    key: Texts
    type: str
    body: Texts | None = None
    body_column: str | None = None
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> set[str]:
        """The columns that the table must have."""
        body = {self.body_column} if self.body_column else set(self.body or ())
        return {*self.key, *body, *(column for _, column in self.headers)}


def read_map(path: Path) -> LoadMap:
    """Read a map from a YAML file. Raises SettingsError, which names file and key."""
    root = read_root(path)
    headers = root.child("headers")
    pairs = tuple((name, headers.take(name, str)) for name in headers.all) if headers else ()
    found = decode(root, LoadMap, given={"headers": pairs})
    if found.body and found.body_column:
        raise root.error("body", "and body_column exclude each other: write one of them")
    return found
