"""What happens when everything fails: fewer attempts (reference I7). Pure.

After `limit` failed attempts in a row, of whatever messages, a queue keeps one worker, which waits `wait` seconds after
each further one; the first success ends it. A failing neighbour service gets a rest, and the error queue stays short.

>>> throttle = Throttle(limit=3, wait=1.0).after(2, succeeded=False)
>>> throttle.active, throttle.after(1, succeeded=False).active, throttle.after(5, succeeded=True).failures
(False, True, 5)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Throttle"]


@dataclass(frozen=True, slots=True)
class Throttle:
    """`limit` 0 is never. `failures` in a row so far."""

    limit: int = 0
    wait: float = 1.0
    failures: int = 0
    active: bool = False

    @property
    def pace(self) -> float:
        """Seconds to wait after a failed attempt."""
        return self.wait if self.active else 0.0

    def after(self, failures: int, *, succeeded: bool) -> Throttle:
        """So many failed attempts later, which followed upon a success or not."""
        total = failures if succeeded else self.failures + failures
        active = bool(self.limit) and (total >= self.limit or (self.active and not succeeded))
        return replace(self, failures=total, active=active)
