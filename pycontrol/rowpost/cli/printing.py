"""Print names, tables and messages: without control characters on a terminal, and as plain text in a pipe."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rowpost.errors import MessageCorrupt
from rowpost.wire.message import BrowsedMessage, Message

__all__ = ["describe_body", "json_text", "message_document", "print_message", "table", "visible"]

HEX_BYTES = 256
_PER_LINE = 16
# control characters except tab and line feed, lone surrogates, and characters that change the writing direction
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""Escape control characters, so that a message cannot control the terminal that shows it.

    >>> visible("a\x1b[31mb\tc")
    'a\\x1b[31mb\tc'
    """
    return _UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text)


def json_text(value: Any, *, indent: int | None = None, ascii_only: bool = False) -> str:
    r"""Return a JSON document in which whatever could control a terminal is escaped. It means the same to a program.

    >>> json_text({"name": "a\x9b31mb"})
    '{"name": "a\\u009b31mb"}'
    """
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, default=str)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def table(out: Console, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Print a table. `right` names the columns that are aligned to the right."""
    shown = Table(box=box.SIMPLE_HEAD if out.is_terminal else None, pad_edge=False, header_style="bold")
    for column in columns:
        shown.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(visible("" if cell is None else str(cell))) for cell in row))
    out.print(shown)


def describe_body(body: bytes, whole: int | None = None) -> str:
    """Describe a body: text as it is, binary data as its size and its first bytes in hexadecimal.

    If `body` was truncated, `whole` is the length of the whole body in bytes.
    """
    length = len(body) if whole is None else whole
    if not body:
        return "(no body)" if length == 0 else f"({length:,} bytes, not shown)"
    text = _as_text(body, cut=length > len(body))
    if text is not None:
        return visible(text) + (f"\n({length:,} bytes, truncated)" if length > len(body) else "")
    lines = [body[at : at + _PER_LINE].hex(" ") for at in range(0, min(len(body), HEX_BYTES), _PER_LINE)]
    more = f"\n(the first {min(len(body), HEX_BYTES)} bytes)" if length > HEX_BYTES or length > len(body) else ""
    return f"(binary, {length:,} bytes)\n" + "\n".join(lines) + more


def _as_text(body: bytes, cut: bool = False) -> str | None:
    """Decode the body as UTF-8. Return None if it is not text. Truncation may have split the last character."""
    for dropped in range(4 if cut else 1):
        try:
            text = body[: len(body) - dropped].decode()
        except UnicodeDecodeError:
            continue
        return None if "\0" in text else text
    return None


def print_message(out: Console, message: Message | BrowsedMessage) -> None:
    """Print headers and body as text."""
    length = message.body_bytes if isinstance(message, BrowsedMessage) else len(message.body)
    expired = "  expired" if message.expired else ""
    out.print(Text(f"row {message.row_version}  {message.id}  {length:,} bytes{expired}", style="bold"), soft_wrap=True)
    for name, value in _header_lines(message):
        out.print(Text.assemble("  ", (visible(name), "cyan"), ": ", visible(value)), soft_wrap=True)
    out.print(Text("\n" + describe_body(message.body, length) + "\n"), soft_wrap=True)


def _header_lines(message: Message | BrowsedMessage) -> list[tuple[str, str]]:
    try:
        return [(name, "(null)" if value is None else value) for name, value in message.headers.items()]
    except MessageCorrupt as error:
        return [("(headers that cannot be read)", str(error)), ("(as stored)", message.raw_headers)]


def message_document(queue: str, message: Message | BrowsedMessage) -> dict[str, Any]:
    """Return a message as a JSON document.

    The body is in `body` if it is text, otherwise in `body_base64`. Headers that are not JSON are in `raw_headers`.
    """
    document: dict[str, Any] = {
        "queue": queue,
        "id": str(message.id),
        "row_version": message.row_version,
        "expired": message.expired,
    }
    try:
        document |= {"message_id": message.message_id, "headers": message.headers}
    except MessageCorrupt as error:
        document |= {"raw_headers": message.raw_headers, "corrupt": str(error)}
    if isinstance(message, BrowsedMessage):
        document |= {"expires": message.expires and message.expires.isoformat(), "body_bytes": message.body_bytes}
    else:
        document["body_bytes"] = len(message.body)
    text = _as_text(message.body)
    if text is None:
        document["body_base64"] = base64.b64encode(message.body).decode()
    else:
        document["body"] = text
    return document
