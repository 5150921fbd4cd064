"""Start the worker processes of one queue, later and later after workers that died."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rowpost.workers import events
from rowpost.workers.protocol import Assignment
from rowpost.workers.supervision.pool_members import State, WorkerHandle, WorkerHandles, respawn_delay

__all__ = ["Spawner"]


class Spawner:
    """Adds workers to the members of a pool.

    Args:
        queue: the queue's name.
        assign: returns the assignment of a worker; called with its number and whether it starts to receive at once.
        spawn: starts a process for an assignment. Raises OSError.
        emit: called with the kind and the fields of each event.
    """

    def __init__(
        self,
        queue: str,
        handles: WorkerHandles,
        assign: Callable[[int, bool], Assignment],
        spawn: Callable[[Assignment], Any],
        emit: Callable[..., None],
    ) -> None:
        self._queue, self._handles, self._assign, self._spawn, self._emit = queue, handles, assign, spawn, emit
        self._deaths = 0
        #: when the next worker may start, by the supervisor's clock
        self.next_at = float("-inf")

    def start(self, count: int, now: float, *, receive: bool, round: int) -> None:
        """Start workers, unless it is too early after one that died.

        Args:
            count: how many.
            receive: whether they receive at once.
            round: the number of their command to receive, 0 for none.
        """
        if now < self.next_at:
            return
        for _ in range(count):
            number = self._handles.next_number()
            try:
                process = self._spawn(self._assign(number, receive))
            except OSError as error:  # the system is out of processes or file descriptors
                self._emit(events.Trouble, error=f"Failed to start a worker for {self._queue}: {error}")
                self.delay(now)
                return
            self._handles.add(WorkerHandle(number, process, State.STARTING, now, now, round=round))

    def delay(self, now: float) -> float:
        """Let the next worker start later, because one has died. Return the seconds until then."""
        self._deaths += 1
        seconds = respawn_delay(self._deaths)
        self.next_at = now + seconds
        return seconds

    def worked(self) -> None:
        """Forget the deaths: a worker has received."""
        self._deaths = 0
