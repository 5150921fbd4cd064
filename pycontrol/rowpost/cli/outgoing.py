"""The headers of a message that somebody sends by hand: the practical minimum of reference 2.5."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import typer

from rowpost.errors import MessageCorrupt
from rowpost.wire.headers import (
    CONTENT_TYPE,
    CONVERSATION_ID,
    CORRELATION_ID,
    ENCLOSED_MESSAGE_TYPES,
    MESSAGE_ID,
    MESSAGE_INTENT,
    ORIGINATING_ENDPOINT,
    ORIGINATING_MACHINE,
    REPLY_TO_ADDRESS,
    TIME_SENT,
)
from rowpost.wire.message import decode_headers, format_timestamp

__all__ = ["Envelope", "content_type", "read_header_options", "read_headers_file"]


@dataclass(frozen=True)
class Envelope:
    """What all messages of one call share. `given` headers win over those that are made; `raw` makes none."""

    given: Mapping[str, str | None]
    raw: bool = False
    type_name: str | None = None
    sender: str = "rowpost"
    reply_to: str | None = None
    machine: str = ""

    def headers(self, body: bytes, message_id: str, now: datetime) -> dict[str, str | None]:
        """The headers of one message."""
        if self.raw:
            return {**self._named(), **self.given}
        message_id = self.given.get(MESSAGE_ID) or message_id
        return {
            MESSAGE_ID: message_id,
            MESSAGE_INTENT: "Send",
            CONTENT_TYPE: content_type(body),
            CONVERSATION_ID: message_id,
            CORRELATION_ID: message_id,
            ORIGINATING_ENDPOINT: self.sender,
            ORIGINATING_MACHINE: self.machine,
            TIME_SENT: format_timestamp(now),
            **self._named(),
            **self.given,
        }

    def _named(self) -> dict[str, str]:
        named = {ENCLOSED_MESSAGE_TYPES: self.type_name, REPLY_TO_ADDRESS: self.reply_to}
        return {name: value for name, value in named.items() if value is not None}


def content_type(body: bytes) -> str:
    """What a body looks like, by its first character.

    >>> content_type(b' {"OrderId": 42}'), content_type(b"<order/>"), content_type(b"\\x00")
    ('application/json', 'text/xml', 'application/octet-stream')
    """
    first = body[:64].removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    return {b"{": "application/json", b"[": "application/json", b"<": "text/xml"}.get(first, "application/octet-stream")


def read_header_options(options: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE, several times. Raises typer.BadParameter.

    >>> read_header_options(["Shop.Region=EU", "Shop.Note=a=b"])
    {'Shop.Region': 'EU', 'Shop.Note': 'a=b'}
    """
    headers: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{option!r} is no header: write NAME=VALUE", param_hint="--header")
        if name in headers:
            raise typer.BadParameter(f"the header {name!r} is given twice", param_hint="--header")
        headers[name] = value
    return headers


def read_headers_file(path: Path) -> dict[str, str | None]:
    """A JSON object of texts and nulls, as receive --output writes it. Raises typer.BadParameter."""
    try:
        return decode_headers(path.read_text(encoding="utf-8-sig").strip())
    except (OSError, UnicodeDecodeError, MessageCorrupt) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise typer.BadParameter(f"{path}: {reason}", param_hint="--headers") from error
