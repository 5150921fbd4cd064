"""Track whether a queue can be received from, and whether its handlers succeed.

Combines the circuit breaker for failing peeks and receives with the throttle for failing handlers, and reports their
changes as events.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from rowpost.errors import RowpostError
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker, arms_circuit_breaker

__all__ = ["Health", "Throttle"]


@dataclass(frozen=True, slots=True)
class Throttle:
    """Throttling state of one queue. Pure: no clock, no I/O.

    After `limit` failed attempts in a row, of any messages, a queue keeps one worker, and this worker waits `wait`
    seconds after each further failure. The first success ends the throttling. This relieves a failing service that the
    handlers call, and it keeps the error queue short. See the guide docs/guides/recoverability.md.

    >>> throttle = Throttle(limit=3, wait=1.0).after(2, succeeded=False)
    >>> throttle.active, throttle.after(1, succeeded=False).active, throttle.after(5, succeeded=True).failures
    (False, True, 5)

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


class Health:
    """The health of one queue.

    Attributes:
        breaker: the circuit breaker of its peeks and receives.
        throttle: the throttling of its attempts.

    Args:
        emit: called with each event.
        on_recovered: called when the queue can be worked without limits again.
    """

    def __init__(
        self,
        queue: str,
        breaker: CircuitBreaker,
        throttle: Throttle,
        emit: events.Emit,
        on_recovered: Callable[[], None],
    ) -> None:
        self._queue, self.breaker, self.throttle = queue, breaker, throttle
        self._emit, self._on_recovered = emit, on_recovered
        self._last_error = ""

    @property
    def changes_at(self) -> float:
        """The time at which the breaker triggers without a further failure."""
        return self.breaker.triggers_at or float("inf")

    def allowed(self, limit: int) -> int:
        """Return how many workers may run now."""
        return 1 if self.throttle.active else self.breaker.concurrency(limit)

    def at(self, now: float) -> None:
        """Apply the passing of time."""
        self._apply(self.breaker.at(now))

    def record_failure(self, source: Hashable, action: str, error: BaseException | str, now: float) -> None:
        """Record that a peek or a receive failed; deadlocks are expected and are not counted.

        An exception that rowpost does not raise itself indicates a defect, so that it is reported as critical at once.
        """
        if isinstance(error, BaseException) and not arms_circuit_breaker(error):
            return
        unexpected = isinstance(error, BaseException) and not isinstance(error, RowpostError)
        text = f"{type(error).__name__}: {error}" if unexpected else str(error)
        self._last_error = f"Failed to {action} {self._queue}: {text}"
        if source not in self.breaker.failing:
            kind = events.Critical if unexpected else events.Trouble
            self._emit(kind(queue=self._queue, error=self._last_error))
        self._apply(self.breaker.after_failure(now, source))

    def record_success(self, source: Hashable) -> None:
        """Record that a peek or a receive succeeded."""
        self._apply(self.breaker.after_success(source))

    def forget(self, source: Hashable) -> None:
        """Remove a source that no longer exists; this is neither a failure nor a success."""
        self.breaker = self.breaker.without(source)

    def after_attempts(self, failures: int, *, succeeded: bool) -> bool:
        """Record attempts that failed in a row, after a success or not; return whether the backoff has changed."""
        was, self.throttle = self.throttle, self.throttle.after(failures, succeeded=succeeded)
        if was.active == self.throttle.active:
            return False
        if self.throttle.active:
            self._emit(
                events.ThrottlingStarted(queue=self._queue, failures=self.throttle.failures, wait=self.throttle.wait)
            )
        else:
            self._emit(events.ThrottlingEnded(queue=self._queue))
            self._on_recovered()
        return True

    def _apply(self, breaker: CircuitBreaker) -> None:
        self.breaker = breaker
        if breaker.change == "triggered":
            self._emit(events.Critical(queue=self._queue, error=self._last_error))
        elif breaker.change == "recovered":
            self._on_recovered()
            self._emit(events.Recovered(queue=self._queue))
