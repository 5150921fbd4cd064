"""What people should know about a queue or a message type: a description, an owner and a runbook.

They stand with a queue, and in the section `message_types`. rowpost shows them on pages, in lists and in metrics, so
that an alert can name them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from rowpost.settings.yaml_node import Node, decode
from rowpost.wire.message_types import split_enclosed_types

__all__ = ["DESCRIBED", "Descriptor", "Link", "MessageTypeSettings", "read_message_types"]

#: the address of a page; other kinds of addresses could run code in a browser
Link = Annotated[
    str,
    Meta(pattern=r"^https?://[^\s<>\"'\\]+\Z", description="the address of a page, such as https://wiki.example/sales"),
]
#: the keys
DESCRIBED = ("description", "owner", "runbook")


@dataclass(frozen=True, kw_only=True)
class Descriptor:
    """What people should know.

    Attributes:
        description: what it is for.
        owner: who is asked about it: a team, a person, an address.
        runbook: the address of the page that says what to do if something is wrong.
    """

    description: str = ""
    owner: str = ""
    runbook: Link = ""


@dataclass(frozen=True, kw_only=True)
class MessageTypeSettings(Descriptor):
    """What an environment says about a message type. `name`: its full name, without its assembly."""

    name: str


def read_message_types(root: Node) -> tuple[MessageTypeSettings, ...]:
    """Read the section `message_types`. Raises SettingsError."""
    found = []
    for node in root.children("message_types"):
        if list(split_enclosed_types(node.name)) != [node.name]:
            raise node.error(
                "", "is no message type: write its full name without its assembly, such as Shop.Messages.PlaceOrder"
            )
        found.append(decode(node, MessageTypeSettings, given={"name": node.name}))
    return tuple(found)
