"""Times that the database holds and Python does not: `infinity`, `-infinity`, and years outside 1 to 9999.

PostgreSQL stores a timestamp as microseconds since 2000, from the year 4713 BC to 294276, and both infinities. Other
programs write such values: .NET's `DateTime.MaxValue` becomes `infinity`. `moment` converts any of them:

    moment(0)            # datetime(2000, 1, 1)
    str(moment(2**63 - 1))    # 'infinity'

A `DistantTime` is a `datetime`, so that a reader which compares, sorts or stores times needs no special case. It has
the value of `datetime.max` or `datetime.min`, and every text of it is the database's value.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import Any, Self

__all__ = ["DistantTime", "moment"]

_EPOCH = datetime(2000, 1, 1)
_INFINITE = {2**63 - 1: "infinity", -(2**63): "-infinity"}
#: the calendar repeats itself after so many years, which are so many microseconds
_CYCLE_YEARS, _CYCLE_US = 400, 146_097 * 86_400_000_000


def moment(microseconds: int) -> datetime:
    """Return PostgreSQL's timestamp, in microseconds since 2000, without a time zone; a `DistantTime` if Python has no
    such time.
    """
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return DistantTime.of(microseconds)


class DistantTime(datetime):
    """The first or the last time of Python's calendar, in place of one that is outside of it.

    Attributes:
        text: the database's value in ISO 8601, with the suffix ` BC` before the year 1; `infinity` or `-infinity`.
    """

    text: str

    @classmethod
    def of(cls, microseconds: int) -> DistantTime:
        """Return the time so many microseconds after 2000, which must be outside of Python's calendar."""
        bound = datetime.max if microseconds > 0 else datetime.min
        return cls._made(bound, _INFINITE.get(microseconds) or _written(microseconds))

    @classmethod
    def _made(cls, bound: datetime, text: str) -> DistantTime:
        made = cls(
            bound.year, bound.month, bound.day, bound.hour, bound.minute, bound.second, bound.microsecond, bound.tzinfo
        )
        made.text = text
        return made

    def isoformat(self, *_: Any, **__: Any) -> str:
        """Return the database's value; no arguments change it."""
        return self.text

    def strftime(self, _format: str, /) -> str:
        """Return the database's value, with a space between date and time, whatever the format is."""
        return self.text.replace("T", " ")

    def __format__(self, _format: str, /) -> str:
        return self.strftime(_format)

    def __str__(self) -> str:
        return self.text

    def replace(self, *fields: Any, **named: Any) -> datetime:  # type: ignore[override]
        """As datetime.replace; it stays the database's value if only the time zone is replaced."""
        changed = datetime.replace(datetime.combine(self.date(), self.timetz()), *fields, **named)
        return self._made(changed, self.text) if named.keys() == {"tzinfo"} and not fields else changed

    def astimezone(self, tz: tzinfo | None = None) -> Self:
        """Return the same value: Python cannot shift the first and the last time."""
        return self

    def __reduce_ex__(self, _protocol: Any, /) -> tuple[Any, ...]:
        return DistantTime._made, (datetime.combine(self.date(), self.timetz()), self.text)


def _written(microseconds: int) -> str:
    """Return a time outside of Python's calendar, found one or more cycles of 400 years nearer."""
    cycles = microseconds // _CYCLE_US
    near = _EPOCH + timedelta(microseconds=microseconds - cycles * _CYCLE_US)
    year = near.year + cycles * _CYCLE_YEARS
    rest = near.isoformat()[4:]
    return f"{year:04}{rest}" if year > 0 else f"{1 - year:04}{rest} BC"
