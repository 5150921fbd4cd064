"""Destinations of a write whose rows name them, in the column `queue`.

The messages of a task are staged under one attempt for each queue. The name of such an attempt has a hash of the queue's name, because
attempts have at most 100 characters. A job that is run again finds them without a list: the digest of its messages includes the queues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

from rowpost.database.connection import Connection
from rowpost.errors import QueueNotFound
from rowpost.wire.address import parse_address

__all__ = ["SEVERAL", "Destinations", "attempt_for", "queues_of"]

#: In place of the queue of a job: each row names its own.
SEVERAL = "*"


class _Destined(Protocol):
    @property
    def queues(self) -> frozenset[str]: ...


class Destinations:
    """The registered queues of a database, which are read once."""

    def __init__(self, database: Connection) -> None:
        self._database = database
        self._registered: set[str] | None = None

    def has(self, queue: str) -> bool:
        """Tell whether a queue exists. Raises InvalidQueueName for a name that no queue can have."""
        if self._registered is None:
            self._registered = {row.queue_name for row in self._database.call("list_queues") if row.kind != "external"}
        return self._database.local(parse_address(queue)).format() in self._registered

    def check(self, queues: Iterable[str]) -> None:
        """Raise QueueNotFound, which names all queues that do not exist."""
        missing = sorted(queue for queue in queues if not self.has(queue))
        if missing:
            raise QueueNotFound(
                f"Nothing was sent: the column queue names {', '.join(map(repr, missing))}, but no such queue is in this database. "
                "Create the queue, or leave its rows out. `rowpost queue list` shows the queues."
            )


def attempt_for(attempt: str, queue: str) -> str:
    """Return the name under which a task stages its messages for a queue."""
    return f"{attempt}:{hashlib.sha256(queue.encode()).hexdigest()[:12]}"


def queues_of(stored: Iterable[_Destined]) -> frozenset[str]:
    """Return the queues of all parts."""
    return frozenset().union(*(each.queues for each in stored))
