"""A time in the past as people write it: so long ago, or a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

__all__ = ["parse_since"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"(?:\d{1,6}[smhd])+")
_PART = re.compile(r"(\d+)([smhd])")


def parse_since(text: str, now: datetime) -> datetime:
    """Return the time that a text means.

    >>> now = datetime(2026, 11, 24, 12, tzinfo=UTC)
    >>> parse_since("1d2h", now).isoformat(), parse_since("2026-11-24T08:30", now).isoformat()
    ('2026-11-23T10:00:00+00:00', '2026-11-24T08:30:00+00:00')

    Args:
        text: 90s, 30m, 2h, 1d or several of these: so long before `now`; or a time of ISO 8601, in UTC if it has no
            time zone.

    Raises:
        ValueError: it is neither.
    """
    plain = text.strip()
    if _SPAN.fullmatch(plain.lower()):
        return now - timedelta(seconds=sum(int(count) * _SECONDS[unit] for count, unit in _PART.findall(plain.lower())))
    try:
        at = datetime.fromisoformat(plain.replace("Z", "+00:00").replace("z", "+00:00"))
    except ValueError:
        raise ValueError(
            f"{text!r} is no time. Write how long ago, such as 30m, 2h or 1d, or a time such as 2026-12-24T18:00Z."
        ) from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
