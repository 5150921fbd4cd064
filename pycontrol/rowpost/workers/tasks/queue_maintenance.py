"""The periodic task that maintains the tables of queues, and deletes old lines of the operation log."""

from __future__ import annotations

from rowpost.database.connection import Connection
from rowpost.database.contract import load_contract
from rowpost.deploy.grants import grant_execute
from rowpost.errors import LockTimeout, PermissionDenied
from rowpost.operations.log import KEPT_DAYS, clean_operation_log
from rowpost.settings.environment import Settings
from rowpost.transport.maintenance import maintain_queue
from rowpost.wire.address import parse_address, queue_key
from rowpost.workers import events
from rowpost.workers.tasks.periodic import Election, Work, periodic_task

__all__ = ["OPERATIONS", "make_queue_maintenance", "not_allowed"]

#: the unit of work that is not a queue: the operation log
OPERATIONS = "(operations)"
CLEAN_INTERVAL_S = 3600.0


class _Maintenance:
    """Maintains queues while its session is elected by the database; executes at most one statement per queue and
    interval.
    """

    def __init__(self, every: float, emit: events.Emit) -> None:
        self._every, self._emit = every, emit
        self._election = Election("maintenance")

    def __call__(self, database: Connection, queue: str) -> float | None:
        if queue == OPERATIONS:
            return self._clean_operation_log(database)
        try:
            if not self._election.won(database):
                return self._every
            steps = maintain_queue(database, queue, at_most=1)
        except PermissionDenied:
            self._warn(queue, not_allowed(database, queue))
            return None
        except (
            LockTimeout
        ):  # a busy table: each try makes senders and receivers wait up to a second, so the next one is a round later
            return self._every
        for step in steps:
            if step.state == "failed":
                self._warn(queue, f"maintenance: {step.action} failed: {step.error}")
            elif step.state == "done":
                self._emit(events.Maintained(queue=queue, action=step.action, text=step.reason))
        return self._every

    def _clean_operation_log(self, database: Connection) -> float | None:
        """Delete old lines once an hour, in whichever processes may: rows that another one has locked are skipped."""
        try:
            removed = clean_operation_log(database)
        except PermissionDenied:  # most logins of supervisors are not operators
            return None
        if removed:
            self._emit(
                events.Maintained(
                    action="operations", text=f"deleted {removed} operations that began more than {KEPT_DAYS} days ago"
                )
            )
        return CLEAN_INTERVAL_S

    def _warn(self, queue: str, text: str) -> None:
        self._emit(events.Warned(queue=queue, text=text))


def not_allowed(database: Connection, queue: str) -> str:
    """Return what a login without the rights may do, or have done: the smallest rights, or another login that maintains
    the queue.
    """
    contract, key = load_contract(), queue_key(parse_address(queue), database.engine)
    needed = ((contract.find("elect", "database"), None), (contract.find_template("maintain_queue"), key))
    grants = " ".join(grant_execute(database.dialect, procedure, of, "LOGIN") for procedure, of in needed)
    return (
        f"The login may not maintain the queue {queue}. Nothing is lost, but its table may become slow. Let another "
        f"login maintain it: a supervisor of an operator, or `rowpost queue maintain {queue}` every hour, and set "
        f"maintenance_every: 0 here. Or give this login the right: {grants}"
    )


@periodic_task("rowpost maintenance", "maintain")
def make_queue_maintenance(settings: Settings, emit: events.Emit) -> Work:
    """Return the maintenance task of a process. The database elects one of all processes to maintain queues.

    Off with maintenance_every: 0, and on an engine where the feature maintenance is neither declared nor in every
    deployment. Operations are deleted there too.
    """
    every = settings.supervisor.maintenance_every
    on = every > 0 and (
        "maintenance" in settings.features or settings.engine in load_contract().features["maintenance"].always
    )
    queues = [queue.name for queue in settings.queues if queue.kind != "external"] if on else []
    return [*queues, OPERATIONS] if every > 0 else [], _Maintenance(every, emit)
