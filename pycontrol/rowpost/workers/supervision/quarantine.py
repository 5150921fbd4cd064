"""Which messages of a queue may kill a process: those that were in flight together when one died.

Nobody knows which of them was the cause, so that none is counted. Each is handled alone next, in a process of its own,
and no other worker of the queue receives until then. Only a death there counts as an attempt.
"""

from __future__ import annotations

from collections.abc import Iterable

from rowpost.workers import events
from rowpost.workers.supervision.handles import WorkerHandle

__all__ = ["Quarantine"]


class Quarantine:
    """The suspects of one queue.

    Args:
        queue: the queue's name.
        emit: called with each event.
    """

    def __init__(self, queue: str, emit: events.Emit) -> None:
        self._queue, self._emit = queue, emit
        self._row_versions: set[int] = set()
        self._by: WorkerHandle | None = None
        #: what that worker was given
        self._given: set[int] = set()

    def __bool__(self) -> bool:
        """Whether there are suspects."""
        return bool(self._row_versions)

    def to_try(self, handles: Iterable[WorkerHandle]) -> list[int]:
        """Return the row versions of the suspects that none of these workers handles, the oldest first."""
        return sorted(self._row_versions - _held(handles))

    def add(self, row_version: int) -> None:
        """Add a message that was in flight, with others, when a process died."""
        self._row_versions.add(row_version)

    def report(self, pid: int, count: int) -> None:
        """Emit the event that a process died with several messages."""
        if count > 1:
            self._emit(events.Quarantined(queue=self._queue, pid=pid, count=count))

    def begin(self, by: WorkerHandle, suspects: Iterable[int]) -> None:
        """Note which worker tries some of the suspects."""
        self._by, self._given = by, set(suspects)

    def is_tried_by(self, handle: WorkerHandle) -> bool:
        """Return whether a worker tries suspects, and has not tried all that it was given."""
        return handle is self._by and bool(self._given)

    def tried(self, row_version: int, by: WorkerHandle, others: Iterable[WorkerHandle]) -> None:
        """Note that a worker has tried a message, or did not find it, and its process lives.

        The message stays a suspect if one of the other workers has taken it before it was asked to exit.
        """
        self._given.discard(row_version)
        if row_version not in _held(each for each in others if each is not by):
            self.forget(row_version)
        if not self._row_versions:
            by.process.tried_all()

    def forget(self, row_version: int) -> None:
        """Remove a message that was treated."""
        self._row_versions.discard(row_version)


def _held(handles: Iterable[WorkerHandle]) -> set[int]:
    """Return the row versions of the messages that workers handle."""
    return {each.process.in_flight[1] for each in handles if each.process.in_flight is not None}
