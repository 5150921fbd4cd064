"""Reduce the number of attempts while every attempt fails. Pure: no clock, no I/O.

After `limit` failed attempts in a row, of whatever messages, a queue keeps one worker, and this worker waits `wait` seconds
after each further failure. The first success ends the throttling. This relieves a failing service that the handlers call,
and it keeps the error queue short. See the guide docs/guides/recoverability.md.

>>> throttle = Throttle(limit=3, wait=1.0).after(2, succeeded=False)
>>> throttle.active, throttle.after(1, succeeded=False).active, throttle.after(5, succeeded=True).failures
(False, True, 5)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Throttle"]


@dataclass(frozen=True, slots=True)
class Throttle:
    """Throttling state of one queue.

    Args:
        limit: failed attempts in a row that start the throttling; 0 turns it off.
        wait: seconds to wait after each failed attempt while it is active.
        failures: failed attempts in a row so far.
    """

    limit: int = 0
    wait: float = 1.0
    failures: int = 0
    active: bool = False

    @property
    def backoff(self) -> float:
        """Seconds to wait after a failed attempt."""
        return self.wait if self.active else 0.0

    def after(self, failures: int, *, succeeded: bool) -> Throttle:
        """Return the state after `failures` more failed attempts; `succeeded`: a success came before them."""
        total = failures if succeeded else self.failures + failures
        active = bool(self.limit) and (total >= self.limit or (self.active and not succeeded))
        return replace(self, failures=total, active=active)
