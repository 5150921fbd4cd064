"""Schedules: list them with their next due times, and pause, resume or run one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, ClassVar

from rowpost.database.connection import Connection
from rowpost.errors import FeatureMissing, InvalidSchedule, ScheduleNotFound
from rowpost.operations.documents import ScheduleDocument, Schedules, ScheduleTimes, document_of
from rowpost.operations.log import Noted, Operator
from rowpost.operations.operation import Operation, Result
from rowpost.operations.rights import Right
from rowpost.settings.due_times import DueTimes

__all__ = [
    "MOST_TIMES",
    "SCHEDULE_OPERATIONS",
    "PauseSchedule",
    "ResumeSchedule",
    "RunSchedule",
    "ScheduleChanged",
    "lateness",
    "next_times",
    "schedules",
]

#: due times of a schedule that are listed at most
MOST_TIMES = 1_000


class ScheduleChanged(Result, frozen=True):
    """A schedule that was paused or resumed, or whose tick was requested. `text` says what."""

    words = "{text}"
    schedule: str
    queue: str
    text: str


def schedules(database: Connection) -> Schedules:
    """Return all schedules, by name. Raises FeatureMissing."""
    return Schedules([_document(row) for row in _rows(database)])


def next_times(database: Connection, name: str, count: int) -> ScheduleTimes:
    """Return a schedule and its next due times, by the server's clock.

    Raises:
        ScheduleNotFound: no such schedule is stored.
        InvalidSchedule: this machine does not know its time zone.
    """
    row = _row(database, name)
    now = row.measured_at.replace(tzinfo=UTC)
    times = islice(_due_times(row).following(now), min(count, MOST_TIMES))
    return ScheduleTimes(_document(row), [each.isoformat() for each in times])


def lateness(database: Connection) -> dict[str, int]:
    """Return by how many milliseconds the latest schedule of each queue is late; without queues that have none."""
    try:
        rows = _rows(database)
    except FeatureMissing:
        return {}
    found: dict[str, int] = {}
    for row in rows:
        found[row.queue_name] = max(found.get(row.queue_name, 0), row.late_ms or 0)
    return found


def _rows(database: Connection) -> list[Any]:
    return sorted(database.call("list_schedules"), key=lambda row: str(row.schedule_name))


def _row(database: Connection, name: str) -> Any:
    for row in _rows(database):
        if row.schedule_name == name:
            return row
    raise ScheduleNotFound(
        f"No schedule named {name!r} is stored in this database. rowpost schedules list shows those that are."
    )


def _due_times(row: Any) -> DueTimes:
    interval = None if row.interval_ms is None else timedelta(milliseconds=row.interval_ms)
    return DueTimes(row.cron, interval, row.zone)


def _document(row: Any) -> ScheduleDocument:
    try:
        due = _due_times(row).text
    except InvalidSchedule:  # a time zone that this machine does not know
        due = f"{row.cron} ({row.zone})"
    return document_of(
        ScheduleDocument,
        row,
        schedule=row.schedule_name,
        queue=row.queue_name,
        due=due,
        paused=row.is_paused,
        last_due=_text(row.sent_due),
    )


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.replace(tzinfo=UTC).isoformat()


@dataclass(frozen=True, kw_only=True)
class _OnSchedule(Operation[ScheduleChanged]):
    """An operation on one schedule. The queue, whose supervisors send its messages, is looked up."""

    right = Right.CONTROL_SCHEDULE
    #: how it changes the schedule, and what a sentence says of that
    change: ClassVar[dict[str, Any]]
    words: ClassVar[str]
    schedule: str
    queue: str = ""

    def execute(self, database: Connection, operator: Operator) -> ScheduleChanged:
        """Execute the operation and record it, in one transaction.

        Raises:
            ScheduleNotFound: no such schedule is stored.
            PermissionDenied: the login is no operator. Nothing was changed.
        """
        return super(_OnSchedule, replace(self, queue=_row(database, self.schedule).queue_name)).execute(
            database, operator
        )

    def details(self) -> dict[str, Any]:
        return {"schedule": self.schedule}

    def perform(self, database: Connection, operator: Operator, noted: Noted) -> ScheduleChanged:
        noted.done = 0
        database.call(
            "control_schedule", schedule_name=self.schedule, reason=operator.signed(self.reason), **self.change
        )
        return ScheduleChanged(self.schedule, self.queue, self.words.format(self.schedule))


@dataclass(frozen=True, kw_only=True)
class PauseSchedule(_OnSchedule):
    """Let no supervisor send the messages of a schedule. What is due meanwhile is not sent afterwards either."""

    name = "pause-schedule"
    change: ClassVar[dict[str, Any]] = {"is_paused": True}
    words = "Paused the schedule {}."


@dataclass(frozen=True, kw_only=True)
class ResumeSchedule(_OnSchedule):
    """End the pause of a schedule. It goes on with the next tick."""

    name = "resume-schedule"
    change: ClassVar[dict[str, Any]] = {"is_paused": False}
    words = "Resumed the schedule {}. It goes on with its next due time."


@dataclass(frozen=True, kw_only=True)
class RunSchedule(_OnSchedule):
    """Let a supervisor send one message of a schedule now, also of a paused one. Its due times stay as they are."""

    name = "run-schedule"
    change: ClassVar[dict[str, Any]] = {"run_now": True}
    words = "Requested a message of the schedule {}. A supervisor of its queue sends it."


#: the operations by the words of a form and of the interface
SCHEDULE_OPERATIONS: dict[str, type[_OnSchedule]] = {
    "pause": PauseSchedule,
    "resume": ResumeSchedule,
    "run": RunSchedule,
}
