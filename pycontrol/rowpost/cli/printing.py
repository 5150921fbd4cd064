"""Print names, tables and messages: without control characters on a terminal, and as plain text in a pipe."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rowpost.errors import MessageCorrupt
from rowpost.wire.description import UNSAFE, WITHHELD, describe_body, message_document, visible
from rowpost.wire.message import BrowsedMessage, Message

__all__ = ["WITHHELD", "describe_body", "json_text", "message_document", "print_message", "table", "visible"]


def json_text(value: Any, *, indent: int | None = None, ascii_only: bool = False) -> str:
    r"""Return a JSON document in which everything that could control a terminal is escaped.

    It means the same to a program.

    >>> json_text({"name": "a\x9b31mb"})
    '{"name": "a\\u009b31mb"}'
    """
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, default=_plain)
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _plain(value: Any) -> Any:
    return msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else str(value)


def table(out: Console, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Print a table. `right` names the columns that are aligned to the right."""
    shown = Table(box=box.SIMPLE_HEAD if out.is_terminal else None, pad_edge=False, header_style="bold")
    for column in columns:
        shown.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(visible("" if cell is None else str(cell))) for cell in row))
    out.print(shown)


def print_message(out: Console, message: Message | BrowsedMessage) -> None:
    """Print headers and body as text."""
    length = message.body_bytes if isinstance(message, BrowsedMessage) else len(message.body)
    expired = "  expired" if message.expired else ""
    out.print(Text(f"row {message.row_version}  {message.id}  {length:,} bytes{expired}", style="bold"), soft_wrap=True)
    for name, value in _header_lines(message):
        out.print(Text.assemble("  ", (visible(name), "cyan"), ": ", visible(value)), soft_wrap=True)
    withheld = isinstance(message, BrowsedMessage) and message.withheld
    out.print(Text("\n" + (WITHHELD if withheld else describe_body(message.body, length)) + "\n"), soft_wrap=True)


def _header_lines(message: Message | BrowsedMessage) -> list[tuple[str, str]]:
    try:
        return [(name, "(null)" if value is None else value) for name, value in message.headers.items()]
    except MessageCorrupt as error:
        return [("(headers that cannot be read)", str(error)), ("(as stored)", message.raw_headers)]
