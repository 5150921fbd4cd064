"""Show a supervisor's events: as lines of text on a terminal, and as JSON documents."""

from __future__ import annotations

import logging
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.text import Text

from rowpost.cli.printing import visible
from rowpost.cli.session import Session
from rowpost.workers import events

__all__ = ["event_document", "event_line", "print_event"]

_BY_SEVERITY = ((logging.CRITICAL, "bold red"), (logging.ERROR, "red"), (logging.WARNING, "yellow"))
#: kinds whose colour is not that of their severity
_BY_KIND = {
    events.ThrottlingEnded: "green",
    events.Recovered: "green",
    events.Resumed: "green",
    events.Paused: "yellow",
}


def event_line(event: events.Event, *, plain: bool = False) -> Text:
    """Return the time and the text of an event on one line; `plain`: without colours."""
    style = (
        ""
        if plain
        else _BY_KIND.get(type(event)) or next((style for level, style in _BY_SEVERITY if event.severity >= level), "")
    )
    return Text(f"{datetime.fromtimestamp(event.at):%H:%M:%S} {visible(' '.join(str(event).split()))}", style=style)


def event_document(event: events.Event) -> dict[str, Any]:
    """Return an event as a JSON document."""
    at = datetime.fromtimestamp(event.at, UTC).isoformat()
    return {
        "event": type(event).__name__,
        **asdict(event),
        "at": at,
        "level": logging.getLevelName(event.severity).lower(),
    }


def print_event(
    session: Session, event: events.Event, *, as_json: bool, plain: bool = False, fold: bool = False
) -> None:
    """Print an event as a document or as a line; `fold`: a line that is longer than the terminal folds, as a live table
    needs it.
    """
    if as_json:
        session.document(event_document(event))
    else:
        session.out.print(event_line(event, plain=plain), soft_wrap=not fold)
