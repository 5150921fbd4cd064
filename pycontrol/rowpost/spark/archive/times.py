"""Days and months in UTC, whatever the time zone of the session or of this process is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["day_of", "in_utc", "start_of"]

_DAY_S = 86_400


def day_of(time: Column) -> Column:
    """Return the day of a time in UTC. Spark's `to_date` uses the session's time zone."""
    return F.date_from_unix_date(F.floor(F.unix_seconds(time) / _DAY_S).cast("int"))


def start_of(unit: Literal["day", "month"], time: Column) -> Column:
    """Return the time at which the day or month of a time begins in UTC.

    Spark's `date_trunc` uses the session's time zone.
    """
    day = day_of(time)
    return F.timestamp_seconds(F.unix_date(F.trunc(day, unit) if unit == "month" else day).cast("long") * _DAY_S)


def in_utc(time: datetime) -> datetime:
    """Convert a time that PySpark has collected: it has no zone, and is in the zone of this process."""
    return time.astimezone(UTC)
