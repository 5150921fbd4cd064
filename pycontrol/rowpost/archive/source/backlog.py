"""Measure how far a stream is behind its queue: in messages, and by the age of the oldest message that it has not read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from rowpost.database.connection import Connection
from rowpost.wire.headers import PROCESSING_ENDED, TIME_OF_FAILURE, TIME_SENT
from rowpost.wire.message import parse_timestamp

__all__ = ["MAX_LAG_MESSAGES", "Backlog", "age_s", "measure"]

MAX_LAG_MESSAGES = 100_000


@dataclass(frozen=True)
class Backlog:
    """What a stream has not read.

    Attributes:
        lag_messages: their number; MAX_LAG_MESSAGES means at least so many.
        lag_seconds: age of the oldest one; 0 if there is none, None if its headers have no time.
    """

    lag_messages: int
    lag_seconds: float | None

    def as_json(self) -> dict[str, object]:
        """Return the values for Spark's progress."""
        return asdict(self)


def measure(database: Connection, queue: str, above: int) -> Backlog:
    """Count the messages above a row version."""
    row = database.call("describe_backlog", queue, above=above, count=MAX_LAG_MESSAGES)[0]
    return Backlog(row.messages, age_s(row.first_headers, datetime.now(UTC)) if row.messages else 0.0)


def age_s(headers: str | None, now: datetime) -> float | None:
    """Return the seconds since a message was handled, failed or was sent. Returns None if its headers do not say it.

    >>> age_s('{"NServiceBus.TimeSent": "2026-01-01 12:00:00:000000 Z"}', datetime(2026, 1, 1, 12, 1, tzinfo=UTC))
    60.0
    """
    try:
        found = json.loads(headers or "{}")
    except ValueError:
        return None
    for name in (PROCESSING_ENDED, TIME_OF_FAILURE, TIME_SENT):
        try:
            return round(max((now - parse_timestamp(found[name])).total_seconds(), 0.0), 3)
        except (LookupError, TypeError, ValueError):
            continue
    return None
