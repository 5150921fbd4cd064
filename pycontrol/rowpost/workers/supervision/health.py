"""Track whether a queue can be received from, and whether its handlers succeed.

Combines the circuit breaker for failing peeks and receives with the throttle for failing handlers, and reports their
changes as events.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from rowpost.errors import RowpostError
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker, arms_circuit_breaker
from rowpost.workers.supervision.throttle import Throttle

__all__ = ["Health"]


class Health:
    """The health of one queue.

    Args:
        report: called with an event's class and its fields.
        on_recovered: called when the queue can be worked without limits again.
    """

    def __init__(
        self,
        queue: str,
        breaker: CircuitBreaker,
        throttle: Throttle,
        report: Callable[..., Any],
        on_recovered: Callable[[], None],
    ) -> None:
        self._queue, self._breaker, self._throttle = queue, breaker, throttle
        self._report, self._on_recovered = report, on_recovered
        self._last_error = ""

    @property
    def critical(self) -> bool:
        """Whether receiving has failed for too long."""
        return self._breaker.triggered

    @property
    def throttled(self) -> bool:
        """Whether too many attempts in a row have failed."""
        return self._throttle.active

    @property
    def backoff(self) -> float:
        """Seconds that a worker waits after a failed attempt, now."""
        return self._throttle.backoff

    @property
    def wait(self) -> float:
        """Seconds to wait before the next try after a failure; 0 when nothing failed."""
        return self._breaker.wait

    @property
    def changes_at(self) -> float:
        """The time at which the breaker triggers without a further failure."""
        return self._breaker.triggers_at or float("inf")

    def allowed(self, limit: int) -> int:
        """Return how many workers may run now."""
        return 1 if self._throttle.active else self._breaker.concurrency(limit)

    def at(self, now: float) -> None:
        """Apply the passing of time."""
        self._apply(self._breaker.at(now))

    def record_failure(self, source: Hashable, action: str, error: BaseException | str, now: float) -> None:
        """Record that a peek or a receive failed; deadlocks are expected and are not counted.

        An exception that rowpost does not raise itself indicates a defect, so that it is reported as critical at once.
        """
        if isinstance(error, BaseException) and not arms_circuit_breaker(error):
            return
        unexpected = isinstance(error, BaseException) and not isinstance(error, RowpostError)
        text = f"{type(error).__name__}: {error}" if unexpected else str(error)
        self._last_error = f"Failed to {action} {self._queue}: {text}"
        if source not in self._breaker.failing:
            self._report(events.Critical if unexpected else events.Trouble, error=self._last_error)
        self._apply(self._breaker.after_failure(now, source))

    def record_success(self, source: Hashable) -> None:
        """Record that a peek or a receive succeeded."""
        self._apply(self._breaker.after_success(source))

    def forget(self, source: Hashable) -> None:
        """Remove a source that no longer exists; this is neither a failure nor a success."""
        self._breaker = self._breaker.without(source)

    def after_attempts(self, failures: int, *, succeeded: bool) -> bool:
        """Record attempts that failed in a row, after a success or not; return whether the backoff has changed."""
        was, self._throttle = self._throttle, self._throttle.after(failures, succeeded=succeeded)
        if was.active == self._throttle.active:
            return False
        if self._throttle.active:
            self._report(events.ThrottlingStarted, failures=self._throttle.failures, wait=self._throttle.wait)
        else:
            self._report(events.ThrottlingEnded)
            self._on_recovered()
        return True

    def _apply(self, breaker: CircuitBreaker) -> None:
        self._breaker = breaker
        if breaker.change == "triggered":
            self._report(events.Critical, error=self._last_error)
        elif breaker.change == "recovered":
            self._on_recovered()
            self._report(events.Recovered)
