"""How well a queue can be worked: the breaker for failing receives, the throttle for failing handlers, told as events."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker, arms_circuit_breaker
from rowpost.workers.throttle import Throttle

__all__ = ["Health"]


class Health:
    """One queue's. `tell` takes an event's class and its fields; `better` is called when a bad time is over."""

    def __init__(self, queue: str, breaker: CircuitBreaker, throttle: Throttle, tell: Callable[..., Any], better: Callable[[], None]) -> None:
        self._queue, self._breaker, self._throttle = queue, breaker, throttle
        self._tell, self._better = tell, better
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
    def pace(self) -> float:
        """Seconds that a worker waits after a failed attempt, now."""
        return self._throttle.pace

    @property
    def wait(self) -> float:
        """Seconds until somebody may try again after a failure; 0 when nothing failed."""
        return self._breaker.wait

    @property
    def changes_at(self) -> float:
        """When the breaker triggers without a further failure."""
        return self._breaker.triggers_at or float("inf")

    def allowed(self, limit: int) -> int:
        """How many workers may run now."""
        return 1 if self._throttle.active else self._breaker.concurrency(limit)

    def at(self, now: float) -> None:
        """Time has passed."""
        self._note(self._breaker.at(now))

    def record_failure(self, who: Hashable, doing: str, error: BaseException | str, now: float) -> None:
        """A receive or a peek failed; a deadlock victim is an everyday event."""
        if isinstance(error, BaseException) and not arms_circuit_breaker(error):
            return
        self._last_error = f"Failed to {doing} {self._queue}: {error}"
        if who not in self._breaker.failing:
            self._tell(events.Trouble, error=self._last_error)
        self._note(self._breaker.after_failure(now, who))

    def record_success(self, who: Hashable) -> None:
        """It works again."""
        self._note(self._breaker.after_success(who))

    def without(self, who: Hashable) -> None:
        """Somebody is gone: neither a failure nor a success."""
        self._breaker = self._breaker.without(who)

    def after_attempts(self, failures: int, *, succeeded: bool) -> bool:
        """Attempts that failed in a row, after a success or not (I7); returns whether the pace has changed."""
        was, self._throttle = self._throttle, self._throttle.after(failures, succeeded=succeeded)
        if was.active == self._throttle.active:
            return False
        if self._throttle.active:
            self._tell(events.ThrottlingStarted, failures=self._throttle.failures, wait=self._throttle.wait)
        else:
            self._tell(events.ThrottlingEnded)
            self._better()
        return True

    def _note(self, breaker: CircuitBreaker) -> None:
        self._breaker = breaker
        if breaker.change == "triggered":
            self._tell(events.Critical, error=self._last_error)
        elif breaker.change == "recovered":
            self._better()
            self._tell(events.Recovered)
