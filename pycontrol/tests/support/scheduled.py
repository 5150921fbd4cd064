"""An endpoint with schedules, whose handler writes the due time of each message into the table `ticks`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rowpost.endpoint.endpoint import Endpoint
from rowpost.wire.headers import MESSAGE_ID, SCHEDULE, SCHEDULE_DUE
from rowpost.wire.message_types import message_type

__all__ = ["Count", "reports"]

reports = Endpoint("Scheduled")


@message_type("Shop.Count")
@dataclass(frozen=True)
class Count:
    due: datetime


@reports.every(timedelta(seconds=1), missed="all", name="each-second")
def count(due: datetime) -> Count:
    return Count(due)


@reports.handles(Count)
def handle(message: Count, context) -> None:
    """Write the tick in the message's transaction."""
    headers = context.headers
    context.connection.execute(
        "INSERT INTO ticks (id, schedule, due) VALUES (%s, %s, %s)",
        (headers[MESSAGE_ID], headers[SCHEDULE], headers[SCHEDULE_DUE]),
    )
