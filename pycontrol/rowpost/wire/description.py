"""Texts that describe a message to people: its body, its headers, and the document that programs get.

`visible` is applied to whatever a sender could have written, before it is shown. The command line and the dashboard
share these functions, so that both show the same.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from rowpost.errors import MessageCorrupt
from rowpost.wire.message import BrowsedMessage, Message

__all__ = ["UNSAFE", "WITHHELD", "as_text", "describe_body", "message_document", "visible"]

#: what is shown in the place of a body that the login may not read
WITHHELD = "The body is not shown: the login needs the role rowpost_body_reader or rowpost_operator."
HEX_BYTES = 256
_PER_LINE = 16
#: control characters except tab and line feed, lone surrogates, and characters that change the writing direction
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""Escape control characters, so that a message cannot control the terminal that shows it.

    >>> visible("a\x1b[31mb\tc")
    'a\\x1b[31mb\tc'
    """
    return UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text)


def describe_body(body: bytes, whole: int | None = None) -> str:
    """Describe a body: text as it is, binary data as its size and its first bytes in hexadecimal.

    If `body` was truncated, `whole` is the length of the whole body in bytes.
    """
    length = len(body) if whole is None else whole
    if not body:
        return "(no body)" if length == 0 else f"({length:,} bytes, not shown)"
    text = as_text(body, cut=length > len(body))
    if text is not None:
        return visible(text) + (f"\n({length:,} bytes, truncated)" if length > len(body) else "")
    lines = [body[at : at + _PER_LINE].hex(" ") for at in range(0, min(len(body), HEX_BYTES), _PER_LINE)]
    more = f"\n(the first {min(len(body), HEX_BYTES)} bytes)" if length > HEX_BYTES or length > len(body) else ""
    return f"(binary, {length:,} bytes)\n" + "\n".join(lines) + more


def as_text(body: bytes, cut: bool = False) -> str | None:
    """Decode the body as UTF-8. Return None if it is not text. Truncation may have split the last character."""
    for dropped in range(4 if cut else 1):
        try:
            text = body[: len(body) - dropped].decode()
        except UnicodeDecodeError:
            continue
        return None if "\0" in text else text
    return None


def message_document(queue: str, message: Message | BrowsedMessage) -> dict[str, Any]:
    """Return a message as a JSON document.

    The body is in `body` if it is text, otherwise in `body_base64`; `withheld` says why there is none. Headers that are
    not JSON are in `raw_headers`.
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
    if isinstance(message, BrowsedMessage) and message.withheld:
        return document | {"withheld": WITHHELD}
    text = as_text(message.body)
    if text is None:
        document["body_base64"] = base64.b64encode(message.body).decode()
    else:
        document["body"] = text
    return document
