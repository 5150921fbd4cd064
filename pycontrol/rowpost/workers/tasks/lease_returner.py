"""The periodic task that returns messages whose leases have expired to their queues, as failed attempts.

A lease expires if its process was killed together with its supervisor, was stopped, or is cut off from the database. A
worker that dies alone is noticed by its supervisor, which returns its message at once.
"""

from __future__ import annotations

from functools import cache

from rowpost.database.connection import Connection
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.function import FunctionEndpoint
from rowpost.endpoint.hosting import host_of
from rowpost.endpoint.resolve import resolve_handler
from rowpost.errors import HandlerNotFound
from rowpost.pipeline.lease import LEASE_SECONDS
from rowpost.recoverability.leases import LeaseRetries
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.recoverability.policy import Recoverability
from rowpost.settings.environment import Settings
from rowpost.wire.address import parse_address, queue_key
from rowpost.workers import events
from rowpost.workers.tasks.periodic import Work, periodic_task

__all__ = ["make_lease_returner"]

_EVENTS = {
    Kind.FAILED: events.Failed,
    Kind.DELAYED: events.Delayed,
    Kind.MOVED_TO_ERROR: events.MovedToError,
}
#: the pause between two calls for a queue, as a part of the time of a lease, and its bounds in seconds
PART, SHORTEST_S, LONGEST_S = 0.25, 0.25, 10.0


def _with_leases(database: Connection, queues: list[str]) -> list[str]:
    leases = {row.queue_name for row in database.call("list_queues") if row.lease}
    return [queue for queue in queues if queue in leases]


@periodic_task("rowpost lease returner", "return expired leases of", select=_with_leases)
def make_lease_returner(settings: Settings, emit: events.Emit) -> Work:
    """Return the task of a process: for all queues that have a worker and a table of leases.

    The recoverability of the queue's endpoint decides about the messages. If the endpoint cannot be imported here, the
    defaults decide.
    """
    workers = {queue.name: queue.worker for queue in settings.queues if queue.worker is not None and queue.lease}

    @cache
    def endpoint_of(queue: str) -> Endpoint | None:
        worker, error_queue = workers[queue], settings.naming.explicit(settings.supervisor.error_queue)
        try:
            endpoint = resolve_handler(worker.handler, queue, retries=worker.retries, error_queue=error_queue)
        except HandlerNotFound:  # each worker says so
            return None
        if not isinstance(endpoint, FunctionEndpoint):
            endpoint.configure(settings)
        return endpoint

    def give_back(database: Connection, queue: str) -> float:
        endpoint = endpoint_of(queue)
        address = parse_address(queue)
        retries = LeaseRetries(
            queue,
            queue_key(address, database.engine),
            address=database.canonical(address),
            recoverability=Recoverability() if endpoint is None else endpoint.recoverability,
            error_queue=settings.supervisor.error_queue if endpoint is None else endpoint.error_queue,
            host=host_of(settings, queue),
        )
        while (expired := retries.return_expired(database)) is not None:
            _report(queue, expired.owner, expired.outcome, emit)
        seconds = LEASE_SECONDS if endpoint is None else endpoint.lease_seconds
        return min(max(seconds * PART, SHORTEST_S), LONGEST_S)

    return workers, give_back


def _report(queue: str, owner: str, outcome: Outcome, emit: events.Emit) -> None:
    """Emit the events of an expired lease, and of the failed attempt."""
    emit(events.LeaseExpired(queue=queue, owner=owner, id=outcome.id))
    process_id = owner.split("/")[-2] if owner.count("/") > 1 else ""
    error = outcome.error or ""
    if outcome.kind is Kind.UNMOVABLE:
        emit(events.Critical(queue=queue, error=error))
        return
    emit(
        _EVENTS[outcome.kind](
            queue=queue,
            pid=int(process_id) if process_id.isdigit() else 0,
            id=outcome.id,
            message_id=outcome.message_id,
            attempts=outcome.attempts,
            error=error,
        )
    )
