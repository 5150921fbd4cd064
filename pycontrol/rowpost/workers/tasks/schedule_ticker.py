"""The periodic task that sends the messages of schedules when they are due.

Each supervisor looks at the schedules of its queues. A row in the database decides which of them sends a tick
(`transport.schedules`). Without schedules the task has no queue, and makes no statement.
"""

from __future__ import annotations

import time
from datetime import datetime

from rowpost.database.connection import Connection
from rowpost.endpoint.schedules import ScheduleSender, senders_of
from rowpost.errors import DatabaseUnavailable, Deadlock, RowpostError
from rowpost.settings.environment import Settings
from rowpost.transport.schedules import SeenSchedule, Ticked, watch
from rowpost.workers import events
from rowpost.workers.tasks.periodic import Work, periodic_task

__all__ = ["RETRY_S", "make_schedule_ticker"]

#: pause between two looks, so that a thread that waits for the transaction of another one does not spin
MIN_PAUSE_S = 0.02
#: seconds until a schedule is tried again whose message could not be made or sent; others go on meanwhile
RETRY_S = 10.0


class _Ticker:
    """Sends the messages of the schedules of each queue."""

    def __init__(self, settings: Settings, emit: events.Emit) -> None:
        self._senders = senders_of(settings)
        self._lateness, self._emit = settings.supervisor.delayed_lateness, emit
        #: by schedule: when to try again one that failed, and the next due time that an event has told
        self._failing: dict[str, float] = {}
        self._told: dict[str, datetime | None] = {}

    @property
    def queues(self) -> list[str]:
        return list(self._senders)

    def __call__(self, database: Connection, queue: str) -> float:
        wait, senders = self._lateness, self._senders[queue]

        def fail(name: str, error: RowpostError) -> None:
            if name in senders:
                self._fail(queue, name, error)

        for seen in watch(database, queue, fail):
            sender = senders.get(seen.name)  # another environment sends for the same queue
            if sender is not None and self._failing.get(seen.name, 0.0) <= time.monotonic():
                ticked = self._tick(database, queue, seen, sender)
                self._tell(queue, seen, ticked)
                if ticked.wait is not None:
                    wait = min(wait, max(ticked.wait, MIN_PAUSE_S))
        return wait

    def _tick(self, database: Connection, queue: str, seen: SeenSchedule, sender: ScheduleSender) -> Ticked:
        """Send what is due of one schedule. A failure that is not the database's delays only this schedule."""
        try:
            ticked = sender.tick(database, queue, seen)
        except (DatabaseUnavailable, Deadlock):
            raise
        except RowpostError as error:
            self._fail(queue, seen.name, error)
            return Ticked()
        self._failing.pop(seen.name, None)
        return ticked

    def _fail(self, queue: str, name: str, error: RowpostError) -> None:
        """Report a failure of a schedule once, and set when it is tried again."""
        if name not in self._failing:
            text = f"Failed to send the message of the schedule {name}: {error}"
            self._emit(events.Trouble(queue=queue, error=text))
        self._failing[name] = time.monotonic() + RETRY_S

    def _tell(self, queue: str, seen: SeenSchedule, ticked: Ticked) -> None:
        next_due = None if seen.is_paused else seen.next_due
        if ticked.sent or self._told.get(seen.name, seen.now) != next_due:
            self._told[seen.name] = next_due
            self._emit(
                events.ScheduleMoved(
                    queue=queue,
                    schedule=seen.name,
                    count=ticked.sent,
                    next_due=None if next_due is None else next_due.timestamp(),
                )
            )


@periodic_task("rowpost schedules", "send the messages of the schedules of")
def make_schedule_ticker(settings: Settings, emit: events.Emit) -> Work:
    """Return the task that sends the messages of the schedules whose queues have a worker in this process."""
    ticker = _Ticker(settings, emit)
    return ticker.queues, ticker
