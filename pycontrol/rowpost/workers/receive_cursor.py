"""Where a worker's next receive begins; the caller tells the time.

Receives begin above the last row version taken: dead rows below it, which a long transaction keeps from going, cost
nothing. The workers of a queue share how far they are together, the frontier, and each moves it on before it receives: who
steps over the rows that fifteen others hold, one by one, does little else. It is a hint; what it is wrong about is found by a
look from the queue's start. One is due once a second while there is work, by any of them, and before a worker says that
there is nothing: rows may appear below, for a sender that got its row version early commits late, or a receiver rolls back.
Where such a look is dear, for there are a million dead rows, looks from the start take a twentieth of the time at most.

>>> anchor = ReceiveCursor()
>>> anchor.looked(10.0, seconds=0.0)
>>> anchor.claim(anchor.begin(10.5), 500)
>>> anchor.took(500, first=1, last=500)
>>> anchor.begin(10.5), anchor.begin(11.0)
(500, None)
>>> anchor.looked(12.0, seconds=0.15)
>>> anchor.looks_back(13.0), anchor.begin(14.0), anchor.looks_back(15.0)
(False, 500, True)
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

__all__ = ["ReceiveCursor", "SharedHighWaterMark"]

EVERY = 1.0  # seconds
SHARE = 20  # looks from the start take one in so many seconds
UNDER_WAY = 0.1  # seconds that a look is taken to cost which has not ended


class SharedHighWaterMark(ctypes.Structure):
    """What the workers of a queue share, in memory that all of them see; zeros at first.

    `at`: no row at or below it is free, as far as they know; 0: unknown. The last look from the start ended at
    `looked_at`, by the clock that the machine's processes share, and took `cost` seconds.
    """

    _fields_ = (("at", ctypes.c_int64), ("looked_at", ctypes.c_double), ("cost", ctypes.c_double))


@dataclass(slots=True)
class ReceiveCursor:
    """One worker's. `at`: the last row version that it took for good; `until`: up to there free rows lie below the frontier,
    and it goes on from its own place."""

    frontier: SharedHighWaterMark = field(default_factory=SharedHighWaterMark)
    at: int = 0
    until: int = 0
    _asked: int = 0

    def begin(self, now: float) -> int | None:
        """Above which row version to receive; None: from the start."""
        if self._look_is_due(now, EVERY):
            return None
        return (self.at if self.at < self.until else max(self.at, self.frontier.at)) or None

    def looks_back(self, now: float) -> bool:
        """Whether a look from the start follows, when nothing was found above the anchor."""
        return self._look_is_due(now, 0.0)

    def _look_is_due(self, now: float, every: float) -> bool:
        """If so, it begins: others need not look as well. Until it ends it is taken for a dear one, should it never end."""
        due = now - self.frontier.looked_at >= max(every, SHARE * self.frontier.cost)
        if due:
            self.looked(now, UNDER_WAY)
        return due

    def looked(self, now: float, seconds: float) -> None:
        """After a receive from the start, which took so long."""
        self.frontier.looked_at, self.frontier.cost = now, seconds

    def claim(self, begin: int | None, count: int) -> None:
        """Before a receive of `count` messages at most: others begin above what this one is going to take."""
        self._asked, others = count, self.frontier.at
        if (begin is None and others) or (begin is not None and begin >= others):
            self.frontier.at = max(self.at, others) + count

    def took(self, count: int, first: int, last: int) -> None:
        """After `count` messages that will not come back, from `first` to `last`."""
        if first <= self.at:  # they came late, and more may have come with them
            self.until = max(self.until, self.at)
        self.at = last
        if count < self._asked or last > self.frontier.at:  # it was all that there was; or it had to go further
            self.frontier.at = last

    def gave_back(self) -> None:
        """After messages that may come back."""
        self.until = self.frontier.at

    def found_nothing(self) -> None:
        """After a receive without a row: the frontier may be beyond what there is."""
        self.frontier.at = self.until = 0
