"""Decide how many worker processes of a queue bring throughput. Pure decisions: no clock, no I/O.

Many processes on few processors do less than fewer of them, because they wait for one another. The first eight workers
start at once. From then on, their number doubles as long as each step brings at least 5 % more messages a second.
Else the queue goes back to the number before, and tries again half a minute later.

>>> effect = Effect(limit=64)
>>> for now, handled in ((0.0, 0), (0.3, 300), (1.1, 1100)):
...     effect = effect.after(now, busy=8, handled=handled)
>>> effect.workers
16
>>> for now, handled in ((1.2, 1200), (1.5, 1500), (2.3, 2310)):  # 1,000 a second before, 1,012 now
...     effect = effect.after(now, busy=16, handled=handled)
>>> effect.workers
8
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["AT_ONCE", "HOLD_S", "SETTLE_S", "WINDOW_S", "Effect"]

#: so many workers start at once
AT_ONCE = 8
#: seconds from when all workers are busy until messages are counted, and for how long
SETTLE_S, WINDOW_S = 0.25, 0.75
#: twice the workers have to bring so much
GAIN = 1.05
#: so few messages of a window show nothing
FEW = 50
#: seconds until the next attempt to have more
HOLD_S = 30.0


@dataclass(frozen=True, slots=True)
class Effect:
    """How many workers a queue may have.

    Attributes:
        limit: how many at most.
        workers: how many now.
        before: how many before the last step, and the messages a second that they handled; None if that is unknown.
        busy_since: when all workers became busy; None while they are not.
        counted: when the messages of a window were counted first, and how many were handled by then.
        held_until: no step is made before.
    """

    limit: int
    workers: int = 0
    before: tuple[int, float] | None = None
    busy_since: float | None = None
    counted: tuple[float, int] | None = None
    held_until: float = float("-inf")

    def __post_init__(self) -> None:
        if not self.workers:
            object.__setattr__(self, "workers", min(self.limit, AT_ONCE))

    def after(self, now: float, busy: int, handled: int) -> Effect:
        """Return the state after an observation.

        Args:
            now: monotonic time in seconds.
            busy: how many workers receive.
            handled: how many attempts there were since the start.
        """
        if self.workers >= self.limit and self.before is None:
            return self
        if busy < self.workers:
            return self if self.busy_since is None else replace(self, busy_since=None, counted=None)
        if self.busy_since is None:
            return replace(self, busy_since=now)
        if self.counted is None:
            return self if now < self.busy_since + SETTLE_S else replace(self, counted=(now, handled))
        started, count = self.counted
        if now < started + WINDOW_S:
            return self
        return self._measured(now, handled - count, (handled - count) / (now - started))

    def _measured(self, now: float, count: int, rate: float) -> Effect:
        again = replace(self, busy_since=None, counted=None, before=None)
        if count >= FEW and self.before is not None and rate < self.before[1] * GAIN:
            return replace(again, workers=self.before[0], held_until=now + HOLD_S)
        if self.workers >= self.limit or now < self.held_until:
            return again
        before = (self.workers, rate) if count >= FEW else None
        return replace(again, workers=min(self.limit, 2 * self.workers), before=before)
