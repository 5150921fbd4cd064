"""Pause, resume and limit queues in the database, for the supervisors of all hosts.

    pause(database, "Sales", "the shop is closed until Monday")
    list_controls(database)

A supervisor sees it with its next look at the queue. Messages in flight are handled to their end. Sends, and delayed
messages that become due, still arrive. Programs that receive without a supervisor, such as endpoints of NServiceBus, do
not stop.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from rowpost.database.connection import Connection
from rowpost.wire.address import parse_address

__all__ = ["QueueControl", "limit_workers", "list_controls", "pause", "resume"]


class QueueControl(NamedTuple):
    """What operators have set for a queue.

    Attributes:
        limit: how many workers; None: as the environments say.
        shared: whether the limit is for all supervisors together, and not for each.
        reason: as given; None if none was given.
        changed_by: the login that changed it last.
        changed_at: when, in UTC, without a time zone.
    """

    queue: str
    paused: bool
    limit: int | None
    shared: bool
    reason: str | None
    changed_by: str
    changed_at: datetime

    @property
    def text(self) -> str:
        """The state in words: paused, or the limit.

        >>> QueueControl("Sales", True, 4, True, None, "anna", datetime(2026, 11, 20)).text
        'paused, 4 workers in all supervisors together'
        """
        limited = (
            ""
            if self.limit is None
            else f"{self.limit} workers in {'all supervisors together' if self.shared else 'each supervisor'}"
        )
        return ", ".join(part for part in ("paused" if self.paused else "", limited) if part)


def list_controls(database: Connection) -> list[QueueControl]:
    """Return what operators have set, by queue.

    Queues that work as their environments say are left out. Raises PermissionDenied.
    """
    return [QueueControl(*row) for row in database.call("list_controls")]


def pause(database: Connection, queue: str, reason: str | None = None) -> None:
    """Let supervisors receive nothing new from a queue. Raises QueueNotFound, PermissionDenied."""
    database.call_atomically("control_queue", queue_name=_name(database, queue), is_paused=True, reason=reason)


def resume(database: Connection, queue: str, reason: str | None = None) -> None:
    """End the pause of a queue; a limit stays. Raises QueueNotFound, PermissionDenied."""
    database.call_atomically("control_queue", queue_name=_name(database, queue), is_paused=False, reason=reason)


def limit_workers(
    database: Connection, queue: str, limit: int | None, *, shared: bool = False, reason: str | None = None
) -> None:
    """Set how many workers a supervisor runs for a queue at most.

    Args:
        limit: 1 to 10,000; None: as the environments say.
        shared: the limit is divided among the supervisors that are alive.

    Raises:
        InvalidCount: the limit is out of its range.
        QueueNotFound, PermissionDenied: as `pause`.
    """
    database.call_atomically(
        "control_queue", queue_name=_name(database, queue), worker_limit=limit or 0, shared=shared, reason=reason
    )


def _name(database: Connection, queue: str) -> str:
    return parse_address(queue).short(database.engine).format()
