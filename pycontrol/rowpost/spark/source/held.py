"""Explain which messages a tail has not read because transactions are open, and whose transactions they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowpost.database.connection import Connection
from rowpost.spark.source.checkpoint import committed_offset, offsets_by_queue
from rowpost.spark.source.connection import in_environment
from rowpost.spark.source.options import read_options
from rowpost.spark.source.reconnect import PatientConnection
from rowpost.spark.source.watermark import Notes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MAX_COUNTED", "Held", "Holder", "holders", "what_is_held"]

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

    def as_json(self) -> dict[str, object]:
        """Return the values for a report."""
        return {"waiting": self.waiting, "held_by": [each.as_json() for each in self.held_by]}


def what_is_held(options: Mapping[str, str], checkpoint: str | Path, spark: SparkSession | None = None) -> Held:
    """Return what the last run of a tail could not read. The checkpoint says whether transactions were open.

    Raises:
        DatabaseUnavailable: the server was away for longer than connectRetrySeconds.
    """
    asked = in_environment(read_options(options, stream=True))
    offsets = offsets_by_queue(committed_offset(checkpoint, spark), asked.queue)
    connection = PatientConnection(asked)
    try:
        found = [connection.run(partial(_held, queue, offset)) for queue, offset in offsets.items() if offset.get("polls")]
    finally:
        connection.close()
    return Held(sum(each.waiting for each in found), tuple(dict.fromkeys(holder for each in found for holder in each.held_by)))


def _held(queue: str, offset: Mapping[str, Any], database: Connection) -> Held:
    waiting = database.call("describe_backlog", queue, above=offset["row_version"], count=MAX_COUNTED)[0].messages
    return Held(waiting, holders(database, queue, offset["polls"])) if waiting else Held()


def holders(database: Connection, queue: str, notes: Notes) -> tuple[Holder, ...]:
    """Return the open transactions among the writers of some polls, the oldest first."""
    noted = {writer for _, writers in notes for writer in writers}
    found = database.call("list_writers", queue)
    return tuple(Holder(row.process, row.since, row.program) for row in found if row.writer in noted)
