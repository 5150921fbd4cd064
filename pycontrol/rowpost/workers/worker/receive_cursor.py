"""Compute the row version at which a worker's next receive starts.

Each receive scans from the last row version that this worker removed. This skips dead rows that a long-running
transaction keeps visible to vacuum. The workers of a queue share a high-water mark, and each worker advances it before
it receives. Without the mark, every worker would step over the rows that the other workers have locked.

The cursor is only a hint. Rows may appear below it: a sender that got its row version early may commit late, and a
receiver may roll back. A periodic scan from the start of the queue finds these rows. While there is work, one worker
scans once a second; a worker also scans before it reports that the queue is empty. If full scans are slow (for example,
with a million dead rows), they use at most 5 % of the time, but they are never more than 10 s apart.

The caller passes the current time in seconds, so that tests need no clock.

>>> cursor = ReceiveCursor()
>>> cursor.full_scan_ended(10.0, seconds=0.0)
>>> start = cursor.start(10.5, 500)
>>> cursor.removed(500, first=1, last=500)
>>> cursor.start(10.5, 500), cursor.start(11.0, 500)
(500, None)
>>> cursor.full_scan_ended(12.0, seconds=0.15)
>>> cursor.needs_full_scan(13.0), cursor.start(14.0, 500), cursor.needs_full_scan(15.0)
(False, 500, True)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rowpost.workers.protocol import SharedHighWaterMark

__all__ = ["ReceiveCursor"]

SCAN_INTERVAL_S = 1.0
# After a full scan that took t seconds, the next one starts at least this many times t later.
SCAN_COST_FACTOR = 20
# ... but no later than this, so that a scan that waited for a lock does not hide late commits for minutes.
LONGEST_SCAN_PAUSE_S = 10.0
# Assumed duration of a full scan that has not ended.
ASSUMED_SCAN_S = 0.1


@dataclass(slots=True)
class ReceiveCursor:
    """The receive cursor of one worker.

    `row_version`: the last row version that this worker removed. `behind_until`: free rows may lie between
    `row_version` and this row version, so that the worker continues from its own position instead of the shared mark.
    """

    shared: SharedHighWaterMark = field(default_factory=SharedHighWaterMark)
    row_version: int = 0
    behind_until: int = 0
    _requested: int = 0

    def start(self, now: float, count: int) -> int | None:
        """Return the row version above which to receive at most `count` messages; None means from the start of the
        queue.

        The shared mark advances by as many messages, so that other workers start above them.
        """
        start = None
        if not self._full_scan_is_due(now, SCAN_INTERVAL_S):
            behind = self.row_version < self.behind_until
            start = (self.row_version if behind else max(self.row_version, self.shared.row_version)) or None
        self._reserve(start, count)
        return start

    def start_scan(self, count: int) -> None:
        """Advance the shared mark before a receive of at most `count` messages from the start of the queue."""
        self._reserve(None, count)

    def _reserve(self, start: int | None, count: int) -> None:
        self._requested, others = count, self.shared.row_version
        if (start is None and others) or (start is not None and start >= others):
            self.shared.row_version = max(self.row_version, others) + count

    def needs_full_scan(self, now: float) -> bool:
        """Return whether to scan from the start after a receive above the cursor found nothing."""
        return self._full_scan_is_due(now, 0.0)

    def _full_scan_is_due(self, now: float, interval: float) -> bool:
        """Return whether a full scan is due; if so, record that this worker starts one, so that no other worker does.

        The recorded duration is an assumption until `full_scan_ended`, in case that the scan never ends.
        """
        due = now - self.shared.scanned_at >= max(
            interval, min(SCAN_COST_FACTOR * self.shared.scan_seconds, LONGEST_SCAN_PAUSE_S)
        )
        if due:
            self.full_scan_ended(now, ASSUMED_SCAN_S)
        return bool(due)

    def full_scan_ended(self, now: float, seconds: float) -> None:
        """Record a receive from the start of the queue and its duration."""
        self.shared.scanned_at, self.shared.scan_seconds = now, seconds

    def removed(self, count: int, first: int, last: int) -> None:
        """Record that `count` messages from row version `first` to `last` were removed for good."""
        if first <= self.row_version:  # they were committed late, and there may be more of them
            self.behind_until = max(self.behind_until, self.row_version)
        self.row_version = last
        if count < self._requested or last > self.shared.row_version:  # the end of the queue, or beyond the reservation
            self.shared.row_version = last

    def rolled_back(self) -> None:
        """Record that the received messages may be in the queue again."""
        self.behind_until = self.shared.row_version

    def found_nothing(self) -> None:
        """Record a receive without a row: the shared mark may lie beyond the end of the queue."""
        self.shared.row_version = self.behind_until = 0
