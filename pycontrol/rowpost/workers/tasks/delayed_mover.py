"""The periodic task that moves due delayed messages into their queues."""

from __future__ import annotations

from rowpost.database.connection import Connection
from rowpost.endpoint.hosting import host_of
from rowpost.settings.environment import Settings
from rowpost.transport.delayed import move_due
from rowpost.transport.directory import Directory
from rowpost.workers import events
from rowpost.workers.tasks.periodic import Work, periodic_task

__all__ = ["make_delayed_mover"]


def _with_delayed_table(database: Connection, queues: list[str]) -> list[str]:
    delayed = {row.queue_name for row in database.call("list_queues") if row.delayed}
    return [queue for queue in queues if queue in delayed]


@periodic_task("rowpost delayed mover", "move due messages of", select=_with_delayed_table)
def make_delayed_mover(settings: Settings, emit: events.Emit) -> Work:
    """Return the delayed mover of a process: for all queues that have a worker and a delayed table."""
    supervisor, directory = settings.supervisor, Directory()

    def move(database: Connection, queue: str) -> float:
        host = host_of(settings, queue)
        done = move_due(database, queue, error_queue=supervisor.error_queue, directory=directory, host=host)
        if done.moved or done.forwarded or done.failed:
            emit(events.DelayedMoved(queue=queue, count=done.moved, forwarded=done.forwarded, failed=done.failed))
        return done.wait(supervisor.delayed_lateness)

    return [queue.name for queue in settings.queues if queue.worker is not None and queue.delayed], move
