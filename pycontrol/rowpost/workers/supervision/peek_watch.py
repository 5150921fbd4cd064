"""The peeks at one queue: whether one is unanswered or met a lock, and how long to wait after a slow one."""

from __future__ import annotations

from rowpost.errors import LockTimeout
from rowpost.workers import events
from rowpost.workers.concurrency import check_peek_delay

__all__ = ["PeekWatch"]

# After a peek that took t seconds, the next one starts at least this many times t later. With a million dead rows,
# which a long-running transaction keeps, each peek is slow.
PEEK_COST_FACTOR = 5
# In peek delays: the longest rest after a slow peek, how long a wake-up request holds, which covers this rest, and how
# long a peek may stay without an answer before an event reports it.
LONGEST_REST, WAKE_UP_TTL, SILENT_AFTER = 10.0, 14.0, 5.0


class PeekWatch:
    """Whether a peek was `asked`, and `silent_at`: when it will be reported as unanswered.

    Times are seconds by the supervisor's clock. `emit` is called with each event.

    Raises:
        SettingsError: the peek delay is too short.
    """

    def __init__(self, queue: str, peek_delay: float, emit: events.Emit) -> None:
        self._queue, self._peek_delay, self._emit = queue, peek_delay, emit
        self._warning = check_peek_delay(peek_delay)
        self.silent_at = float("inf")
        self._locked = False
        self.asked = False
        self.wake_up_ttl = WAKE_UP_TTL * peek_delay

    def begin(self, now: float, *, purging: bool) -> None:
        """Note that a peek is requested; if it purges the queue, it takes as long as the queue is deep."""
        self.asked = True
        if self._warning:
            self._emit(events.Warned(queue=self._queue, text=self._warning))
            self._warning = None
        if not purging:
            self.silent_at = now + SILENT_AFTER * self._peek_delay

    def end(self, error: BaseException | None) -> None:
        """Note that the peek is answered, perhaps with an error.

        Report once that a lock keeps peeks from the queue, until a peek succeeds.
        """
        self.asked, self.silent_at = False, float("inf")
        locked = isinstance(error, LockTimeout)
        if locked and not self._locked:
            self._emit(
                events.Trouble(
                    queue=self._queue,
                    error=f"Failed to peek {self._queue}: a lock on its table was not released in time. {error}",
                )
            )
        self._locked = locked or (self._locked and error is not None)

    def rest(self, seconds: float) -> float:
        """Return how long to wait after a peek that took `seconds`."""
        return min(PEEK_COST_FACTOR * seconds, LONGEST_REST * self._peek_delay)

    def report_silence(self, now: float) -> None:
        """Report once that the database has not answered: a silent network is an error only when TCP ends the
        connection.
        """
        if now >= self.silent_at:
            self.silent_at = float("inf")
            waited = f"The database has not answered a peek at {self._queue} for {SILENT_AFTER * self._peek_delay:g} s."
            self._emit(
                events.Trouble(
                    queue=self._queue,
                    error=f"{waited} The supervisor waits for the answer, or for TCP to end the connection.",
                )
            )
