"""The periodic task that resolves transactions in doubt."""

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


#: seconds between two looks of a supervisor
RESOLVE_EVERY = 30.0


def make_in_doubt_resolver(
    settings: Settings, tell: Callable[[events.Event], None], breaker: CircuitBreaker | None = None, **options: Any
) -> PeriodicTask:
    """Looks, once in a while, after what is in doubt at the participants that the environment names."""
    names = dict(settings.participants) if settings.engine == "postgresql" else {}
    return PeriodicTask(
        settings,
        [", ".join(sorted(names))] if names else [],
        partial(_visit, participants=names),
        name="rowpost resolver",
        duty="resolve transactions in doubt of",
        tell=tell,
        breaker=breaker,
        **options,
    )


def _visit(database: Connection, _: str, *, participants: Mapping[str, str]) -> float:
    found = recover(database, participants)
    if found.unreachable:
        raise ParticipantFailed("; ".join(found.unreachable.values()))
    return RESOLVE_EVERY
