"""Operations on a queue's workers: pause and resume the queue, and limit its workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import PermissionDenied
from rowpost.operations.log import Noted, Operator
from rowpost.operations.operation import Operation, Result
from rowpost.operations.rights import Right
from rowpost.transport.controls import limit_workers, pause, resume
from rowpost.transport.supervisors import supervisors_of

__all__ = ["Controlled", "LimitWorkers", "Pause", "Resume", "effect"]


class Controlled(Result, frozen=True):
    """A queue whose pause or limit was changed. `text` says how."""

    words = "{text}"
    queue: str
    text: str


@dataclass(frozen=True, kw_only=True)
class _OnWorkers(Operation[Controlled]):
    right = Right.CONTROL

    def perform(self, database: Connection, operator: Operator, noted: Noted) -> Controlled:
        noted.done = 0
        return Controlled(self.queue, self.set(database, operator.signed(self.reason)))

    def set(self, database: Connection, reason: str | None) -> str:
        """Change what is set for the queue, and return a sentence about it."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Pause(_OnWorkers):
    """Let the supervisors of all hosts receive nothing new from a queue."""

    name = "pause"

    def set(self, database: Connection, reason: str | None) -> str:
        pause(database, self.queue, reason)
        return f"Paused {self.queue}."


@dataclass(frozen=True, kw_only=True)
class Resume(_OnWorkers):
    """End the pause of a queue; a limit stays."""

    name = "resume"

    def set(self, database: Connection, reason: str | None) -> str:
        resume(database, self.queue, reason)
        return f"Resumed {self.queue}."


@dataclass(frozen=True, kw_only=True)
class LimitWorkers(_OnWorkers):
    """Limit the workers of each supervisor, or of all together (`shared`); None: as the environments say.

    Raises InvalidCount.
    """

    name = "limit"
    limit: int | None
    shared: bool = False

    def details(self) -> dict[str, Any]:
        return {"limit": self.limit, "shared": self.shared}

    def set(self, database: Connection, reason: str | None) -> str:
        limit_workers(database, self.queue, self.limit, shared=self.shared, reason=reason)
        if self.limit is None:
            return f"{self.queue} has as many workers as its environments say."
        return (
            f"{self.queue} has at most {self.limit} workers in "
            f"{'all supervisors together' if self.shared else 'each supervisor'}."
        )


def effect(database: Connection, queues: Iterable[str]) -> str:
    """Say which supervisors apply a change of these queues; empty if the login may not list them."""
    try:
        hosts = sorted(
            {
                each.host
                for each in supervisors_of(database)
                if not each.gone and not set(queues).isdisjoint(each.queues)
            }
        )
    except PermissionDenied:
        return ""
    return f"Effective within a peek delay on {', '.join(hosts)}." if hosts else "No supervisor receives from it now."
