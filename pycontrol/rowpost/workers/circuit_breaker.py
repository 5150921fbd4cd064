"""A circuit breaker for failures that last. Pure: the caller passes the time.

The first failure arms the breaker, and a success disarms it. If it stays armed for `seconds` without a success, it
triggers once. While armed, a loop waits after each failure: `first_wait`, doubled up to `armed_wait`. While triggered,
it waits `triggered_wait` and runs one operation at a time. A deadlock is expected and does not arm the breaker.

>>> breaker = CircuitBreaker(seconds=30).after_failure(now=100.0)
>>> breaker.wait, breaker.at(130.0).change, breaker.at(130.0).concurrency(8), breaker.at(130.0).at(131.0).change
(0.05, 'triggered', 1, None)
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from rowpost.errors import Deadlock

__all__ = ["CircuitBreaker", "arms_circuit_breaker"]


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """State of a circuit breaker; all times are in seconds.

    `change` is what the last step did: armed, triggered, disarmed, recovered or None. "triggered" appears in exactly
    one step per outage, and "recovered" in exactly one step after it.

    `failures` counts those since the breaker was armed.

    If several sources share a breaker, each passes its name as `source`. The breaker disarms when all sources in
    `failing` have succeeded again, so that a peek that works does not hide a receive that fails.
    """

    seconds: float = 30.0
    first_wait: float = 0.05
    armed_wait: float = 1.0
    triggered_wait: float = 10.0
    armed_at: float | None = None
    triggered: bool = False
    change: str | None = None
    failing: frozenset[Hashable] = frozenset()
    failures: int = 0

    @property
    def armed(self) -> bool:
        return self.armed_at is not None

    @property
    def wait(self) -> float:
        """Seconds to wait after a failure; 0 when nothing failed."""
        if self.triggered:
            return self.triggered_wait
        return min(self.armed_wait, self.first_wait * 2.0 ** min(self.failures - 1, 30)) if self.armed else 0.0

    @property
    def triggers_at(self) -> float | None:
        """The time at which an armed breaker triggers, None when it is not armed or has triggered."""
        return None if self.armed_at is None or self.triggered else self.armed_at + self.seconds

    def concurrency(self, limit: int) -> int:
        """Return how many may run at a time: one while triggered."""
        return min(1, limit) if self.triggered else limit

    def after_failure(self, now: float, source: Hashable = None) -> CircuitBreaker:
        """Return the state after a failure: the first one arms, and one after `seconds` triggers."""
        counted = replace(self, failing=self.failing | {source}, failures=self.failures + 1)
        return replace(counted, armed_at=now, change="armed") if self.armed_at is None else counted.at(now)

    def after_success(self, source: Hashable = None) -> CircuitBreaker:
        """Return the state after a success: disarmed, unless another source is still failing."""
        failing = self.failing - {source}
        if self.armed_at is None or failing:
            return self._unchanged(failing)
        change = "recovered" if self.triggered else "disarmed"
        return replace(self, armed_at=None, triggered=False, change=change, failing=failing, failures=0)

    def without(self, source: Hashable) -> CircuitBreaker:
        """Return the state without a source that no longer exists; this is neither a failure nor a success."""
        return self._unchanged(self.failing - {source})

    def _unchanged(self, failing: frozenset[Hashable]) -> CircuitBreaker:
        if self.change is None and failing == self.failing:
            return self
        return replace(self, change=None, failing=failing)

    def at(self, now: float) -> CircuitBreaker:
        """Return the state at a time: an armed breaker triggers without a further failure."""
        due = self.triggers_at
        if due is not None and now >= due:
            return replace(self, triggered=True, change="triggered")
        return self._unchanged(self.failing)


def arms_circuit_breaker(error: BaseException) -> bool:
    """Return whether an error of a peek or a receive indicates a lasting problem; a deadlock does not."""
    return not isinstance(error, Deadlock)
