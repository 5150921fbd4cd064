"""What became of a received message."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple
from uuid import UUID

__all__ = ["Kind", "Outcome"]


class Kind(Enum):
    """What became of one receive."""

    HANDLED = "handled"
    EMPTY = "empty"
    FAILED = "failed"
    DELAYED = "delayed"
    MOVED_TO_ERROR = "moved_to_error"
    EXPIRED = "expired"
    POISON = "poison"
    # a deadlock victim on receive: try again, nothing is wrong (statement 39)
    DEADLOCKED = "victim"
    # it should have moved to the error queue and could not: somebody has to look (statement 69)
    UNMOVABLE = "stuck"


class Outcome(NamedTuple):
    """One receive. `attempts` counts failed attempts so far, `error` says in words what went wrong."""

    kind: Kind
    row_version: int | None = None
    id: UUID | None = None
    attempts: int = 0
    error: str | None = None
