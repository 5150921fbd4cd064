"""Check the supervisor's queues once when it starts.

Each finding of `rowpost queue check` is a warning; nothing stops.
"""

from __future__ import annotations

from contextlib import suppress

from rowpost.database.connection import Connection
from rowpost.errors import QueueNotFound
from rowpost.settings.environment import Settings
from rowpost.workers import events
from rowpost.workers.tasks.periodic import Work, periodic_task

__all__ = ["make_startup_check"]


@periodic_task("rowpost start-up check", "check")
def make_startup_check(settings: Settings, emit: events.Emit) -> Work:
    """Return the check of the queues that have a worker, and of the error queue: once each, with a warning for each
    finding.
    """

    def check(database: Connection, queue: str) -> None:
        with suppress(QueueNotFound):  # each peek says so
            for found in database.call("check_queue", queue_name=queue):
                emit(
                    events.Warned(
                        queue=queue, text=f"{found.finding}: {found.detail.rstrip('.')}. Remedy: {found.remedy}"
                    )
                )

    names = [queue.name for queue in settings.queues if queue.worker is not None]
    if names and settings.supervisor.error_queue in {queue.name for queue in settings.queues} - set(names):
        names.append(settings.supervisor.error_queue)
    return names, check
