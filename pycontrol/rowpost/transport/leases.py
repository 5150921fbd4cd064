"""The messages that handlers hold by a lease, as operators see them.

for each in leased_messages(database, "Sales"):
    print(each.owner, each.since, each.progress)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import MessageCorrupt, PermissionDenied, QueueNotFound
from rowpost.wire.headers import MESSAGE_ID
from rowpost.wire.message import Headers, decode_headers

__all__ = ["PAGE", "LeasedMessage", "leased_messages", "progress_in_words", "progress_of_rows"]

#: leases of each queue that are read, the oldest ones
PAGE = 1000


@dataclass(frozen=True, slots=True)
class LeasedMessage:
    """A message that a handler holds by a lease.

    Attributes:
        queue: the queue to which it returns if the lease expires.
        id: the id of its row.
        row_version: its place in the queue.
        owner: the host, the process and the slot that hold it.
        since: when it was leased, in UTC.
        due: when the lease expires if it is not renewed, in UTC.
        progress_percent: how far the handler is, 0 to 100; None if it has not said it.
        progress_text: what it works on; None if it has not said it.
        headers: empty if they cannot be read.
        body_bytes: the length of its body.
    """

    queue: str
    id: str
    row_version: int
    owner: str
    since: datetime
    due: datetime
    progress_percent: int | None
    progress_text: str | None
    headers: Headers
    body_bytes: int

    @property
    def message_id(self) -> str:
        """The id of the message."""
        return self.headers.get(MESSAGE_ID) or self.id

    @property
    def progress(self) -> str:
        """How far the handler is, in words; empty if it has not said it."""
        return progress_in_words(self.progress_percent, self.progress_text)


def leased_messages(database: Connection, queue: str) -> list[LeasedMessage]:
    """Return the messages of a queue that are leased, the oldest lease first.

    Raises:
        QueueNotFound: there is no such queue, or it has no table of leases.
        PermissionDenied: the login may not list them.
    """
    return [_leased(queue, row) for row in database.call("list_leases", queue, count=PAGE)]


def progress_of_rows(database: Connection, queues: Iterable[str]) -> dict[str, LeasedMessage]:
    """Return the leased messages of these queues by the ids of their rows.

    Queues without leases, and those that the login may not read, are left out.
    """
    wanted = set(queues)
    found: dict[str, LeasedMessage] = {}
    try:
        rows = database.call("list_queues") if wanted else []
    except PermissionDenied:
        return found
    for row in rows:
        if row.lease and row.queue_name in wanted:
            try:
                found |= {each.id: each for each in leased_messages(database, row.queue_name)}
            except (PermissionDenied, QueueNotFound):
                continue
    return found


def progress_in_words(percent: int | None, text: str | None) -> str:
    """Return how far a handler is, in words.

    >>> progress_in_words(40, "page 4"), progress_in_words(40, ""), progress_in_words(None, None)
    ('40 %, page 4', '40 %', '')
    """
    return ", ".join(([] if percent is None else [f"{percent} %"]) + ([text] if text else []))


def _leased(queue: str, row: Any) -> LeasedMessage:
    try:
        headers = decode_headers(row.headers)
    except MessageCorrupt:
        headers = {}
    return LeasedMessage(
        queue,
        str(row.id),
        row.row_version,
        row.owner,
        row.leased_at.replace(tzinfo=UTC),
        row.due.replace(tzinfo=UTC),
        row.progress_percent,
        row.progress_text,
        headers,
        row.body_bytes,
    )
