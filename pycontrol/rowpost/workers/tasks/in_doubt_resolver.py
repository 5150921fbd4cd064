"""The periodic task that resolves in-doubt distributed transactions."""

from __future__ import annotations

from rowpost.database.connection import Connection
from rowpost.errors import ParticipantFailed
from rowpost.settings.environment import Settings
from rowpost.transactions.recovery import recover
from rowpost.workers import events
from rowpost.workers.tasks.periodic import Work, periodic_task

__all__ = ["make_in_doubt_resolver"]

RESOLVE_INTERVAL_S = 30.0


@periodic_task("rowpost in-doubt resolver", "resolve transactions in doubt of")
def make_in_doubt_resolver(settings: Settings, _: events.Emit) -> Work:
    """Return the task that resolves in-doubt transactions of the environment's participants (PostgreSQL only)."""
    names = dict(settings.participants) if settings.engine == "postgresql" else {}

    def resolve(database: Connection, _: str) -> float:
        found = recover(database, names)
        if found.unreachable:
            raise ParticipantFailed("; ".join(found.unreachable.values()))
        return RESOLVE_INTERVAL_S

    return [", ".join(sorted(names))] if names else [], resolve
