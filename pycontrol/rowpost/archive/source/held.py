"""Explain which messages a tail has not read because transactions are open, and whose transactions they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rowpost.archive.source.watermark import Notes
from rowpost.database.connection import Connection

__all__ = ["MAX_COUNTED", "Held", "Holder", "held_above", "holders"]

MAX_COUNTED = 1_000_000


@dataclass(frozen=True)
class Holder:
    """A transaction that writes to the queue.

    Attributes:
        process: the server's number of the session; None for a prepared transaction.
        since: when the transaction began (UTC); None if the server does not show it.
        application: the name that the session has given.
    """

    process: int | None
    since: datetime | None
    application: str | None

    def as_json(self) -> dict[str, object]:
        """Return the values for a report."""
        return {"process": self.process, "since": self.since and f"{self.since.isoformat()}Z", "application": self.application}


@dataclass(frozen=True)
class Held:
    """Messages that are committed and that a run has not read.

    Attributes:
        waiting: their number, at most MAX_COUNTED.
        held_by: the transactions that held them back and are still open, the oldest first.
    """

    waiting: int = 0
    held_by: tuple[Holder, ...] = ()

    @classmethod
    def of_all(cls, found: Iterable[Held]) -> Held:
        """Combine what several queues have."""
        found = list(found)
        return cls(sum(each.waiting for each in found), tuple(dict.fromkeys(holder for each in found for holder in each.held_by)))

    def as_json(self) -> dict[str, object]:
        """Return the values for a report."""
        return {"waiting": self.waiting, "held_by": [each.as_json() for each in self.held_by]}


def held_above(database: Connection, queue: str, offset: Mapping[str, Any]) -> Held:
    """Return what is above the offset of a tail, if transactions were open when it was read."""
    if not offset.get("polls"):
        return Held()
    count = database.call("describe_backlog", queue, above=offset["row_version"], count=MAX_COUNTED)[0].messages
    return Held(count, holders(database, queue, offset["polls"])) if count else Held()


def holders(database: Connection, queue: str, notes: Notes) -> tuple[Holder, ...]:
    """Return the open transactions among the writers of some polls, the oldest first."""
    noted = {writer for _, writers in notes for writer in writers}
    found = database.call("list_writers", queue)
    return tuple(Holder(row.process, row.since, row.program) for row in found if row.writer in noted)
