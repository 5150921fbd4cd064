"""Split a queue into partitions by a correlation value; messages with the same value are handled in order, one at a
time.

    queues:
      Sales:
        partitions: {count: 8, by: Shop.OrderId}      # a header; or module:function, called with each Message
        worker: {handler: "shop.app:sales"}

One splitter of all processes moves messages from Sales to Sales.p1 … Sales.p8, each to the partition that its value
hashes to. Each partition has a single active consumer of all processes. Splitter and consumers hold a lock of the
session that receives. The server releases the lock when that session has ended and its transaction is rolled back. Then
another session continues where the first one stopped. See docs/guides/contention.md.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from rowpost.database.connection import Connection
from rowpost.database.moments import DistantTime
from rowpost.errors import Deadlock, MessageCorrupt
from rowpost.settings.environment import QueueSettings
from rowpost.transport.maintenance import queue_metrics
from rowpost.transport.queue import Queue
from rowpost.wire.message import Message, OutgoingMessage

__all__ = ["BATCH", "KeyOf", "partition_of", "split"]

#: returns the value by which a message is partitioned; None if it has none
KeyOf = Callable[[Message], str | None]

BATCH = 500


def partition_of(value: str, count: int) -> int:
    """Return the partition of a value, starting from 0; the same in every process and release.

    >>> [partition_of(value, 8) for value in ("order-1", "order-2", "order-1")]
    [5, 3, 5]
    """
    return int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest()) % count


def split(
    database: Connection, queue: QueueSettings, key: KeyOf, warn: Callable[[str], None] = lambda text: None
) -> int:
    """Move up to 500 messages to their partitions in one transaction; return their number.

    Only one session may do so at a time, or the order is lost. A message without a value is partitioned by its id.
    Expired messages are removed; the remaining time to be received of the others is kept: a message that expires after
    the year 9999 does not expire.

    Raises:
        Deadlock: older messages were committed meanwhile; try again.
    """
    here = Queue(queue.name, database)
    with database.transaction():
        expires = {row.row_version: row.expires for row in here.browse(BATCH, max_body_bytes=0)}
        if not expires:
            return 0
        now = queue_metrics(database, queue.name).measured_at if any(expires.values()) else None
        received = here.receive(len(expires))
        if any(message.row_version not in expires for message in received):
            raise Deadlock(f"Older messages were committed to {queue.name} while it was split. Retry.")
        by_partition: defaultdict[int, list[OutgoingMessage]] = defaultdict(list)
        for message in received:
            if not message.expired:
                remaining = _remaining(expires.get(message.row_version), now)
                outgoing = OutgoingMessage(message.body, message.raw_headers, message.id, remaining)
                by_partition[_partition(message, key, len(queue.partitions), warn)].append(outgoing)
        for partition, messages in by_partition.items():
            Queue(queue.partitions[partition], database).send_many(messages)
    return len(received)


def _remaining(expires: datetime | None, now: datetime | None) -> timedelta | None:
    if expires is None or now is None or (isinstance(expires, DistantTime) and expires > now.replace(tzinfo=UTC)):
        return None
    return max(expires.replace(tzinfo=None) - now, timedelta(milliseconds=1))


def _partition(message: Message, key: KeyOf, count: int, warn: Callable[[str], None]) -> int:
    value = None
    try:
        value = key(message)
    except MessageCorrupt:
        pass  # the worker of its partition moves it to the error queue
    except Exception as error:  # noqa: BLE001 -- a user's function; its failure must not stop the other messages
        warn(
            f"The partition function failed for message {message.id}, which is partitioned by its id: "
            f"{type(error).__name__}: {error}"
        )
    return partition_of(str(message.id) if value is None else str(value), count)
