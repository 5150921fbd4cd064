"""The endpoint of the kind `ticks`: fifty schedules that are due each second, whose handler writes each tick."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rowpost.endpoint.endpoint import Endpoint
from rowpost.wire.headers import MESSAGE_ID, SCHEDULE, SCHEDULE_DUE
from rowpost.wire.message_types import message_type

__all__ = ["SCHEDULES", "Count", "ticking"]

SCHEDULES = 50

ticking = Endpoint("Ticking")


@message_type("Campaign.Count")
@dataclass(frozen=True)
class Count:
    due: datetime


def count(due: datetime) -> Count:
    return Count(due)


for number in range(SCHEDULES):
    ticking.every(timedelta(seconds=1), missed="all", name=f"schedule-{number}")(count)


@ticking.handles(Count)
def handle(message: Count, context) -> None:
    """Write the tick in the message's transaction."""
    headers = context.headers
    context.connection.execute(
        "INSERT INTO ticks (id, schedule, due) VALUES (%s, %s, %s)",
        (headers[MESSAGE_ID], headers[SCHEDULE], headers[SCHEDULE_DUE]),
    )
