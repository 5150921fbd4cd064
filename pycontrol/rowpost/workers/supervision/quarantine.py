"""Which messages of a queue may kill a process: those that were in flight together when one died.

Nobody knows which of them was the cause, so that none is counted. Each is handled alone next, in a process of its own,
and no other worker of the queue receives until then. Only a death there counts as an attempt.
"""

from __future__ import annotations

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

    @property
    def suspects(self) -> list[int]:
        """Row versions of the messages that have to be handled alone, the oldest first."""
        return sorted(self._row_versions)

    def add(self, row_version: int) -> None:
        """Add a message that was in flight, with others, when a process died."""
        self._row_versions.add(row_version)

    def report(self, pid: int, count: int) -> None:
        """Emit the event that a process died with several messages."""
        if count > 1:
            self._emit(events.Quarantined(queue=self._queue, pid=pid, count=count))

    def begin(self, by: WorkerHandle) -> None:
        """Note which worker tries the suspects that are known by now."""
        self._by, self._given = by, set(self._row_versions)

    def is_tried_by(self, handle: WorkerHandle) -> bool:
        """Return whether a worker tries suspects, and has not tried all that it was given."""
        return handle is self._by and not self._given.isdisjoint(self._row_versions)

    def tried(self, row_version: int, by: WorkerHandle) -> None:
        """Note that a message was handled alone, and its process lives."""
        self.forget(row_version)
        if not self._row_versions:
            by.process.tried_all()

    def forget(self, row_version: int) -> None:
        """Remove a message that was treated."""
        self._row_versions.discard(row_version)
