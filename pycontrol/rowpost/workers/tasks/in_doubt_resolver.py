"""The periodic task that resolves in-doubt distributed transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import ParticipantFailed
from rowpost.settings.environment import Settings
from rowpost.transactions.recovery import recover
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.tasks.periodic import PeriodicTask

__all__ = ["make_in_doubt_resolver"]

RESOLVE_INTERVAL_S = 30.0


def make_in_doubt_resolver(
    settings: Settings, emit: Callable[[events.Event], None], breaker: CircuitBreaker | None = None, **options: Any
) -> PeriodicTask:
    """Return the task that resolves in-doubt transactions of the environment's participants (PostgreSQL only)."""
    names = dict(settings.participants) if settings.engine == "postgresql" else {}
    return PeriodicTask(
        settings,
        [", ".join(sorted(names))] if names else [],
        partial(_resolve, participants=names),
        name="rowpost in-doubt resolver",
        activity="resolve transactions in doubt of",
        emit=emit,
        breaker=breaker,
        **options,
    )


def _resolve(database: Connection, _: str, *, participants: Mapping[str, str]) -> float:
    found = recover(database, participants)
    if found.unreachable:
        raise ParticipantFailed("; ".join(found.unreachable.values()))
    return RESOLVE_INTERVAL_S
