"""Many messages to many queues in one go: all are stored, or none."""

from __future__ import annotations

from collections.abc import Iterable

from rowpost.address import parse_address
from rowpost.database import Database
from rowpost.message import MESSAGE_ID, OutgoingMessage
from rowpost.queue import Queue

__all__ = ["collapse", "dispatch"]

Operation = tuple[str, OutgoingMessage]


def collapse(operations: Iterable[Operation], engine: str) -> dict[str, list[OutgoingMessage]]:
    """Sorts operations by destination, in their order; the same message id to the same queue counts once.

    A publisher that reaches a subscriber through several of a message's types sends it one copy (reference C4,
    statement 17). Messages without the header NServiceBus.MessageId are all kept.

    Raises:
        InvalidQueueName: a destination is no address.
    """
    by_queue: dict[str, list[OutgoingMessage]] = {}
    seen: set[tuple[str, str]] = set()
    for destination, message in operations:
        queue = parse_address(destination).short(engine).format()
        message_id = None if isinstance(message.headers, str) else message.headers.get(MESSAGE_ID)
        if message_id is not None:
            if (queue, message_id) in seen:
                continue
            seen.add((queue, message_id))
        by_queue.setdefault(queue, []).append(message)
    return by_queue


def dispatch(database: Database, operations: Iterable[Operation]) -> int:
    """Sends operations of (destination, message) in one transaction, one round trip a queue; returns the rows stored.

    Raises:
        QueueNotFound: a destination does not exist: nothing of the batch is stored (reference C3, C5).
    """
    by_queue = collapse(operations, database.engine)
    if not by_queue:
        return 0
    with database.transaction():
        return sum(Queue(queue, database).send_many(messages) for queue, messages in by_queue.items())
