"""A queue split by a correlation value: messages of one value are handled one after the other, in their order.

    queues:
      Sales:
        partitions: {count: 8, by: Shop.OrderId}      # a header; or module:function, called with each Message
        worker: {handler: "shop.app:sales"}

One splitter of all processes moves messages from Sales to Sales.p1 … Sales.p8, each to the partition that its value hashes
to; each partition has one consumer of all processes. Both are claimed by a lock of the session that receives, which the
server releases when that session is over and its transaction rolled back: then the next one goes on where it ended.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta

from rowpost.database.connection import Connection
from rowpost.errors import Deadlock, MessageCorrupt
from rowpost.settings.environment import QueueSettings
from rowpost.transport.maintenance import queue_metrics
from rowpost.transport.queue import Queue
from rowpost.wire.message import Message, OutgoingMessage

__all__ = ["BATCH", "KeyOf", "partition_of", "split"]

#: the value by which a message is split; None where it has none
KeyOf = Callable[[Message], str | None]

BATCH = 500


def partition_of(value: str, count: int) -> int:
    """The partition of a value, from 0; the same in every process and release.

    >>> [partition_of(value, 8) for value in ("order-1", "order-2", "order-1")]
    [5, 3, 5]
    """
    return int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest()) % count


def split(database: Connection, queue: QueueSettings, key: KeyOf, warn: Callable[[str], None] = lambda text: None) -> int:
    """Moves up to 500 messages to their partitions, in one transaction; how many.

    Only one may do so at a time, or the order is lost. A message without a value goes by its id. What has expired is
    dropped; the rest of a time to be received moves along.
    """
    here = Queue(queue.name, database)
    with database.transaction():
        expires = {row.row_version: row.expires for row in here.browse(BATCH, max_body_bytes=1)}
        if not expires:
            return 0
        now = queue_metrics(database, queue.name).measured_at if any(expires.values()) else None
        received = here.receive(len(expires))
        if any(message.row_version not in expires for message in received):
            raise Deadlock(f"messages came into {queue.name} between two looks at it: look again")
        lots: defaultdict[int, list[OutgoingMessage]] = defaultdict(list)
        for message in received:
            if not message.expired:
                rest = _rest(expires.get(message.row_version), now)
                outgoing = OutgoingMessage(message.body, message.raw_headers, message.id, rest)
                lots[_place(message, key, len(queue.partitions), warn)].append(outgoing)
        for place, messages in lots.items():
            Queue(queue.partitions[place], database).send_many(messages)
    return len(received)


def _rest(expires: datetime | None, now: datetime | None) -> timedelta | None:
    if expires is None or now is None:
        return None
    return max(expires.replace(tzinfo=None) - now, timedelta(milliseconds=1))


def _place(message: Message, key: KeyOf, count: int, warn: Callable[[str], None]) -> int:
    value = None
    try:
        value = key(message)
    except MessageCorrupt:
        pass  # its partition's worker moves it to the error queue
    except Exception as error:  # noqa: BLE001 a user's function: its message must not stop the others
        warn(f"the partition of message {message.id} cannot be told: {type(error).__name__}: {error}")
    return partition_of(str(message.id) if value is None else str(value), count)


