"""How far a stream is behind its queue: in messages, by the age of the oldest one, and by the open transactions that
hold messages back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rowpost.archive.arrow_headers import headers_of
from rowpost.archive.source.watermark import Notes
from rowpost.database.connection import Connection
from rowpost.wire.headers import PROCESSING_ENDED, TIME_OF_FAILURE, TIME_SENT
from rowpost.wire.message import parse_timestamp

__all__ = ["MAX_COUNTED", "MAX_LAG_MESSAGES", "Held", "age_s", "backlog", "held_above", "holders"]

MAX_LAG_MESSAGES = 100_000
MAX_COUNTED = 1_000_000


def backlog(database: Connection, queue: str, above: int) -> dict[str, object]:
    """Return what a stream has not read, for its progress.

    Returns:
        lag_messages, the number of messages above a row version, of which MAX_LAG_MESSAGES means at least so many; and
        lag_seconds, the age of the oldest one: 0 if there is none, None if its headers have no time.
    """
    row = database.call("describe_backlog", queue, above=above, count=MAX_LAG_MESSAGES)[0]
    return {
        "lag_messages": row.messages,
        "lag_seconds": age_s(row.first_headers, datetime.now(UTC)) if row.messages else 0.0,
    }


def age_s(headers: str | None, now: datetime) -> float | None:
    """Return the seconds since a message was handled, failed or was sent. Returns None if its headers do not say it.

    >>> age_s('{"NServiceBus.TimeSent": "2026-01-01 12:00:00:000000 Z"}', datetime(2026, 1, 1, 12, 1, tzinfo=UTC))
    60.0
    """
    found = headers_of(headers) or {}
    for name in (PROCESSING_ENDED, TIME_OF_FAILURE, TIME_SENT):
        try:
            return round(max((now - parse_timestamp(found[name] or "")).total_seconds(), 0.0), 3)
        except (LookupError, ValueError):
            continue
    return None


@dataclass(frozen=True)
class Held:
    """Messages that are committed and that a run has not read.

    Attributes:
        waiting: their number, at most MAX_COUNTED.
        held_by: the transactions that held them back and are still open (see `holders`), the oldest first.
    """

    waiting: int = 0
    held_by: Sequence[Mapping[str, object]] = field(default_factory=list)

    @classmethod
    def of_all(cls, found: Sequence[Held]) -> Held:
        """Combine what several queues have. A transaction may write to several of them."""
        holders = {str(holder): holder for each in found for holder in each.held_by}
        return cls(sum(each.waiting for each in found), list(holders.values()))


def held_above(database: Connection, queue: str, offset: Mapping[str, Any]) -> Held:
    """Return what is above the offset of a tail, if transactions were open when it was read."""
    count = database.call("describe_backlog", queue, above=offset["row_version"], count=MAX_COUNTED)[0].messages
    return Held(count, holders(database, queue, offset["polls"])) if count else Held()


def holders(database: Connection, queue: str, notes: Notes) -> list[Mapping[str, object]]:
    """Return the open transactions among the writers of some polls, the oldest first.

    Each has `process`, the server's number of the session (None for a prepared transaction), `since`, when it began
    (UTC; None if the server does not show it), and `application`, the name that the session has given.
    """
    noted = {writer for _, writers in notes for writer in writers}
    return [
        {"process": row.process, "since": row.since and f"{row.since.isoformat()}Z", "application": row.program}
        for row in database.call("list_writers", queue) if row.writer in noted
    ]  # fmt: skip
