"""One direction of a bridge: a thread with two connections that moves messages until it is asked to stop."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from rowpost.database.connection import Connection, connect
from rowpost.errors import RowpostError
from rowpost.outbox.cleanup import clean_dispatches
from rowpost.settings.bridge import BridgeEndpoint, BridgeSettings, BridgeSide
from rowpost.transport.delayed import move_due
from rowpost.transport.directory import Directory
from rowpost.workers import events
from rowpost.workers.bridge.mover import MovedBatch, Mover, message_type

__all__ = ["BridgeCounts", "Direction"]

MIN_PAUSE_S, MAX_PAUSE_S = 0.2, 15.0
CLEAN_INTERVAL_S = 60.0
ATTEMPTS = 1
PID = 0  # no worker process handles these messages


@dataclass(slots=True)
class BridgeCounts:
    """What a direction did with the messages of one proxy queue, since it started."""

    sent: int = 0
    repeated: int = 0
    discarded: int = 0
    failed: int = 0


class Direction(threading.Thread):
    """Moves messages from the side `here` to the endpoints of the side `there`.

    Attributes:
        counts: by the names of the endpoints.
        idle: whether the last round found nothing to move, or another process moves.
        failure: a defect that ended the thread.
    """

    def __init__(
        self, bridge: BridgeSettings, here: BridgeSide, there: BridgeSide, stopping: threading.Event, emit: events.Emit
    ) -> None:
        super().__init__(name=f"rowpost bridge {here.name} to {there.name}", daemon=True)
        self._bridge, self._here, self._there, self._stopping, self._emit = bridge, here, there, stopping, emit
        self.counts = {endpoint.name: BridgeCounts() for endpoint in there.endpoints}
        self.idle = False
        self.failure: BaseException | None = None
        self._pause, self._in_trouble = MIN_PAUSE_S, False
        self._directory = Directory()
        self._due: dict[str, float] = {}
        self._clean_at = 0.0

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._work()
                except RowpostError as error:
                    self._report_trouble(error)
        except BaseException as error:  # noqa: BLE001 -- raised again by Bridge.run
            self.failure = error
        self._report("stopped")

    def _work(self) -> None:
        name = f"rowpost bridge {self._bridge.name}"[:60]
        with connect(self._here.settings, name) as source, connect(self._there.settings, name) as target:
            source.check_schema()
            target.check_schema()
            mover = Mover(source, target, self._bridge, self._here, self._there)
            if not self._wait_for_election(mover):
                return
            self._report("moves messages")
            while not self._stopping.is_set():
                busy = self._round(source, mover)
                self._recover()
                if not busy:
                    mover.settle()
                    self._clean(target)
                    self._stopping.wait(self._bridge.poll_interval)
                self.idle = not busy
            mover.settle()

    def _wait_for_election(self, mover: Mover) -> bool:
        reported = False
        while not self._stopping.is_set():
            if mover.elect():
                return True
            self.idle = True
            if not reported:
                self._report("waits, because another process moves these messages")
                reported = True
            self._stopping.wait(max(self._bridge.poll_interval, MIN_PAUSE_S))
        return False

    def _round(self, source: Connection, mover: Mover) -> bool:
        """Move a batch of each queue in which messages wait. Return whether there were any."""
        endpoints = self._there.endpoints
        self._move_due(source)
        waiting = source.call_all([("peek_queue", each.proxy, {"count": 1}) for each in endpoints]) if endpoints else []
        busy = False
        for endpoint, rows in zip(endpoints, waiting, strict=True):
            if self._stopping.is_set():
                break
            if rows[0].waiting:
                moved = mover.move(endpoint)
                self._report_moved(endpoint, moved)
                busy = busy or moved.total > 0
        return busy

    def _move_due(self, source: Connection) -> None:
        """Move delayed messages that senders of this side stored for endpoints of the other one."""
        now = time.monotonic()
        for endpoint in self._there.endpoints:
            if now < self._due.get(endpoint.proxy, 0.0):
                continue
            place = self._directory.find(source, endpoint.proxy)
            lateness = self._here.settings.supervisor.delayed_lateness
            wait = lateness
            if place.delays:
                done = move_due(source, endpoint.proxy, error_queue=self._here.error_queue, directory=self._directory)
                wait = done.wait(lateness)
            self._due[endpoint.proxy] = now + wait

    def _clean(self, target: Connection) -> None:
        """Delete old records of messages whose removal no process has seen.

        Those of outboxes stay as long as these ask for.
        """
        now = time.monotonic()
        if now >= self._clean_at:
            self._clean_at = now + CLEAN_INTERVAL_S
            retention = max([self._bridge.retention, *(each.retention for each in self._there.settings.outboxes)])
            clean_dispatches(target, retention, lambda: not self._stopping.is_set())

    # -------------------------------------------------------------- report
    def _report(self, state: str) -> None:
        self._emit(events.BridgeChanged(source=self._here.name, target=self._there.name, state=state))

    def _report_moved(self, endpoint: BridgeEndpoint, moved: MovedBatch) -> None:
        counts, queue, here, there = self.counts[endpoint.name], endpoint.proxy, self._here.name, self._there.name
        counts.sent += moved.sent
        counts.repeated += moved.repeated
        counts.discarded += len(moved.skipped)
        counts.failed += len(moved.failed)
        if moved.sent:
            self._emit(events.Transferred(queue=queue, source=here, target=there, count=moved.sent))
        for message, reason in moved.skipped:
            kind = message_type(message)
            self._emit(
                events.Discarded(queue=queue, pid=PID, id=message.id, message_type=kind, reason=reason, expected=True)
            )
        for message, error in moved.failed:
            text = f"it cannot cross from {here} to {there}: {error}"
            self._emit(events.MovedToError(queue=queue, pid=PID, id=message.id, attempts=ATTEMPTS, error=text))

    def _report_trouble(self, error: RowpostError) -> None:
        self.idle = False
        self._in_trouble = True
        text = f"bridge from {self._here.name} to {self._there.name}: {error} It is tried again in {self._pause:g} s."
        self._emit(events.Trouble(error=text))
        self._stopping.wait(self._pause)
        self._pause = min(2 * self._pause, MAX_PAUSE_S)

    def _recover(self) -> None:
        self._pause = MIN_PAUSE_S
        if self._in_trouble:
            self._in_trouble = False
            self._emit(events.Recovered())
