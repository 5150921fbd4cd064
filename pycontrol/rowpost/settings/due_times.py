"""Compute the due times of a schedule: a cron expression in a time zone, or a fixed interval. Performs no I/O.

`DueTimes` is a value. `after` returns the next tick, `first` and `latest` the ticks that have become due. A tick is a
due time, in UTC. Which ticks there are depends on nothing but the value, so that all hosts compute the same ones.

Cron expressions are those of `cronsim`, which follows Debian's cron at changes of the clock. A fixed local time that is
skipped is due at the next valid moment, and one that occurs twice is due the first time. An expression whose minute or
hour begins with `*` follows the time that passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from rowpost.errors import InvalidSchedule

__all__ = ["EPOCH", "MISSED", "DueTimes", "Missed"]

#: what becomes of ticks that nobody sent in time
Missed = Literal["skip", "once", "all"]
MISSED: tuple[Missed, ...] = ("skip", "once", "all")

#: from which intervals are counted
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHORTEST, LONGEST = timedelta(seconds=1), timedelta(days=36_525)
_FIELDS = 5
#: how far back `latest` looks at first
_WINDOW = timedelta(hours=1)


@dataclass(frozen=True)
class DueTimes:
    """When a schedule is due.

    Attributes:
        cron: five fields: minute, hour, day of the month, month, day of the week. None: there is an interval.
        interval: the time between two ticks, whole milliseconds from 1 s on. The ticks are multiples of it since
            1970-01-01T00:00Z, so that they do not depend on when the schedule was stored.
        zone: the time zone of `cron`, such as Europe/Berlin.

    Raises:
        InvalidSchedule: there are both or neither of them, one cannot be read, or nothing is ever due.
    """

    cron: str | None = None
    interval: timedelta | None = None
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.interval is None):
            raise InvalidSchedule("A schedule has either a cron expression or an interval. Give one of the two.")
        if self.interval is not None:
            self._check_interval(self.interval)
            return
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise InvalidSchedule(
                f"There is no time zone {self.zone!r} on this machine. Write a name such as Europe/Berlin. If the "
                "system has no time zones, install the package tzdata."
            ) from error
        if len(str(self.cron).split()) != _FIELDS:
            raise InvalidSchedule(
                f"The cron expression {self.cron!r} does not have five fields: minute, hour, day of the month, month, "
                "day of the week. Write for example 0 2 * * * for each day at two o'clock."
            )
        try:
            never = self.after(EPOCH) is None
        except CronSimError as error:
            raise InvalidSchedule(f"The cron expression {self.cron!r} cannot be read: {error}.") from error
        if never:
            raise InvalidSchedule(f"The cron expression {self.cron!r} is never due.")

    def _check_interval(self, interval: timedelta) -> None:
        if not SHORTEST <= interval <= LONGEST or interval.microseconds % 1000:
            raise InvalidSchedule(
                f"The interval {interval} is not a time of 1 second to 100 years in whole milliseconds."
            )
        if self.zone != "UTC":
            raise InvalidSchedule(f"An interval has no time zone. Leave {self.zone} out, or write a cron expression.")

    @property
    def interval_ms(self) -> int | None:
        """The interval in milliseconds; None with a cron expression."""
        return None if self.interval is None else self.interval // timedelta(milliseconds=1)

    @property
    def text(self) -> str:
        """The due times for people.

        >>> DueTimes("0 2 * * *", zone="Europe/Berlin").text, DueTimes(interval=timedelta(minutes=5)).text
        ('0 2 * * * (Europe/Berlin)', 'every 0:05:00')
        """
        return f"every {self.interval}" if self.cron is None else f"{self.cron} ({self.zone})"

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.zone)

    def after(self, moment: datetime) -> datetime | None:
        """Return the next tick after a moment; None if nothing is due in the next 50 years."""
        if self.interval is not None:
            return EPOCH + ((moment - EPOCH) // self.interval + 1) * self.interval
        for found in CronSim(str(self.cron), moment.astimezone(self._zone)):
            due = found.astimezone(UTC)
            if due > moment:  # within an hour that occurs twice, the iterator begins with the first one
                return due
        return None

    def following(self, moment: datetime) -> Iterator[datetime]:
        """Yield the ticks after a moment."""
        due = self.after(moment)
        while due is not None:
            yield due
            due = self.after(due)

    def first(self, after: datetime, until: datetime, count: int) -> tuple[datetime, ...]:
        """Return the first ticks after a moment that are due at another one, at most `count`."""
        found: list[datetime] = []
        for due in islice(self.following(after), count):
            if due > until:
                break
            found.append(due)
        return tuple(found)

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """Return the last tick after a moment that is due at another one; None if there is none."""
        if self.interval is not None:
            due = EPOCH + (until - EPOCH) // self.interval * self.interval
            return due if due > after else None
        window = _WINDOW
        while True:
            start = max(after, until - window)
            found: datetime | None = None
            for due in self.following(start):
                if due > until:
                    break
                found = due
            if found is not None or start == after:
                return found
            window *= 4
