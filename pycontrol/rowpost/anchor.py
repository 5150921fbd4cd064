"""Where a worker's next receive begins: pure decisions; the caller tells the time.

Receives begin above the anchor, the last row version taken: dead rows below it, which a long transaction keeps from
going, cost nothing. But rows may still appear below: a sender that got its row version early commits late, a receiver rolls back.
So a worker also looks from the queue's start: once a second while there is work, and before it says that there is none.
Where such a look is dear, for there are a million dead rows, looks from the start take a twentieth of the time at most.

>>> anchor = Anchor().looked(10.0, seconds=0.0).took(7)
>>> anchor.begin(10.5), anchor.begin(11.0), anchor.looks_back(10.5)
(7, None, True)
>>> dear = anchor.looked(12.0, seconds=0.15)
>>> dear.looks_back(13.0), dear.begin(14.0), dear.looks_back(15.0)
(False, 7, True)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

__all__ = ["Anchor", "Frontier"]

EVERY = 1.0  # seconds
SHARE = 20  # looks from the start take one in so many seconds


class Frontier(Protocol):
    """The last row version that any worker of a queue received, in memory that they share: a hint, 0 at first.

    Below it lies what they hold: who steps over the rows of fifteen others, one by one, does little else.
    """

    value: int


@dataclass(frozen=True, slots=True)
class Anchor:
    """`at` the last row version taken, None before the first; the last look from the start ended at `looked_at`."""

    at: int | None = None
    looked_at: float = float("-inf")
    cost: float = 0.0

    def begin(self, now: float, frontier: int = 0) -> int | None:
        """Above which row version to receive; None: from the start. `frontier`: what others took last, and still hold."""
        if self.at is None or now - self.looked_at >= max(EVERY, SHARE * self.cost):
            return None
        return max(self.at, frontier)

    def looks_back(self, now: float) -> bool:
        """Whether a look from the start follows, when nothing was found above the anchor."""
        return now - self.looked_at >= SHARE * self.cost

    def looked(self, now: float, seconds: float) -> Anchor:
        """After a receive from the start, which took so long."""
        return replace(self, looked_at=now, cost=seconds)

    def took(self, row_version: int) -> Anchor:
        """After a message that will not come back. One that may leaves the anchor where it was: below it."""
        return replace(self, at=row_version)
