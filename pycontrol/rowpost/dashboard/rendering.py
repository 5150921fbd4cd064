"""Templates, and how numbers, times and texts of messages look in them. Everything is escaped."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from rowpost.operations.documents import MessageDocument
from rowpost.wire.description import UNSAFE, visible
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, EXCEPTION_STACK_TRACE, TIME_SENT
from rowpost.wire.message_types import first_type, short_type

__all__ = ["ASSETS", "ENVIRONMENT", "editable_body", "pretty"]

STATIC = files("rowpost.dashboard") / "static"
#: the files that pages load, with their types
ASSETS = {
    name: ((STATIC / name).read_bytes(), kind)
    for name, kind in (
        ("dashboard.css", "text/css"),
        ("dashboard.js", "text/javascript"),
        ("icon.svg", "image/svg+xml"),
    )
}
VERSION = hashlib.sha256(b"".join(content for content, _ in ASSETS.values())).hexdigest()[:12]
MINUTE, HOUR, DAY, KILO = 60, 3600, 86400, 1024


def age(milliseconds: int | None) -> str:
    """Return a time span in the two largest units that it has.

    >>> age(None), age(900), age(61_000), age(90_000_000)
    ('–', '0.9 s', '1 min 1 s', '1 d 1 h')
    """
    if milliseconds is None:
        return "–"
    seconds = milliseconds / 1000
    if seconds < MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004
    units = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1, "s"))
    place = next(number for number, (size, _) in enumerate(units) if seconds >= size)
    (large, name), (small, other) = units[place], units[place + 1]
    rest = int(seconds % large // small)
    return f"{int(seconds // large):,} {name}" + (f" {rest} {other}" if rest else "")


def count(value: float | None) -> str:
    """Return a number with separators; a dash if it is unknown."""
    return "–" if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return a rate per second: with a decimal if it is small."""
    if value is None:
        return "–"
    return "0" if value == 0 else f"{value:,.1f}" if value < 10 else f"{value:,.0f}"  # noqa: PLR2004


def size(value: int | None) -> str:
    """Return a size in the unit that fits."""
    if value is None:
        return "–"
    number, units = float(value), ["B", "KB", "MB", "GB"]
    while number >= KILO and len(units) > 1:
        number /= KILO
        units.pop(0)
    return f"{number:,.0f} {units[0]}" if units[0] == "B" or number >= 10 else f"{number:,.1f} {units[0]}"  # noqa: PLR2004


def moment(text: str | None) -> str:
    """Return an ISO time without its fractions, in UTC; a text that is none stays as it is."""
    try:
        found = datetime.fromisoformat(text or "")
        return (found.astimezone(UTC) if found.tzinfo else found).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):  # also a time that is in UTC outside of Python's calendar
        return visible(text or "–")


def pretty(text: str | None) -> str:
    """Return JSON with one value a line; any other text as it is."""
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return text or ""
    return json.dumps(found, indent=2, ensure_ascii=False) if isinstance(found, dict | list) else text or ""


def editable_body(message: MessageDocument) -> str | None:
    """Return the body if a browser's form gives it back as it is; None for binary data, control characters and mixed
    ends of lines.
    """
    body = message.body
    if body is None or body.count("\r\n") not in (0, body.count("\n")) or UNSAFE.search(body.replace("\r\n", "\n")):
        return None
    return body


def shown(value: Any) -> str:
    """Return a text of a message with its control characters escaped."""
    return visible("" if value is None else str(value))


ENVIRONMENT = Environment(
    loader=PackageLoader("rowpost.dashboard"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {
    "age": age,
    "count": count,
    "rate": rate,
    "size": size,
    "moment": moment,
    "pretty": pretty,
    "shown": shown,
    "json_line": lambda value: json.dumps(value, ensure_ascii=False),
    "path": lambda text: quote(str(text), safe="@[]"),
    "first_type": first_type,
    "short_type": short_type,
    "json": lambda value: UNSAFE.sub(
        lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, indent=2, ensure_ascii=False)
    ),
}
HEADERS = {"types": ENCLOSED_MESSAGE_TYPES, "sent": TIME_SENT, "stack_trace": EXCEPTION_STACK_TRACE}
ENVIRONMENT.globals |= {"assets": VERSION, "header": HEADERS}
