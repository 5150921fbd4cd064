"""Subscriptions of endpoints to events: list, add and remove them."""

from __future__ import annotations

from rowpost.database.connection import Connection
from rowpost.endpoint.provisioning import in_table
from rowpost.operations.documents import Subscription, Subscriptions
from rowpost.operations.operation import Result
from rowpost.wire.address import parse_address

__all__ = ["Subscribed", "Unsubscribed", "subscribe", "subscriptions", "subscriptions_page", "unsubscribe"]

#: subscriptions of a page
ROWS = 500


class Subscribed(Result, frozen=True):
    """A subscription that was added or moved; `queue`: the address that receives the events."""

    words = "Subscribed {endpoint} to {topic}; its queue is {queue}."
    topic: str
    endpoint: str
    queue: str


class Unsubscribed(Result, frozen=True):
    """A subscription that was removed."""

    words = "Removed the subscription of {endpoint} to {topic}."
    topic: str
    endpoint: str
    removed: bool = True


def subscriptions(database: Connection) -> list[Subscription]:
    """Return all subscriptions, by topic, endpoint and queue."""
    return [Subscription(*row) for row in sorted(tuple(row) for row in database.call("list_subscriptions"))]


def subscriptions_page(database: Connection, part: str = "", after: int = 0) -> Subscriptions:
    """Return up to 500 subscriptions whose topic, endpoint or queue contains a text, by topic."""
    wanted = part.casefold()
    found = [
        each
        for each in subscriptions(database)
        if any(wanted in text.casefold() for text in (each.topic, each.endpoint, each.queue))
    ]
    return Subscriptions(found[after : after + ROWS], after + ROWS if len(found) > after + ROWS else None)


def subscribe(database: Connection, endpoint: str, topic: str, queue: str, table: str) -> Subscribed:
    """Subscribe an endpoint to an event, or move its subscription to another queue.

    Args:
        table: the environment's table of subscriptions.

    Raises:
        QueueNotFound: the queue does not exist.
        PermissionDenied: the login may not subscribe.
    """
    address = database.canonical(parse_address(queue))
    database.call_atomically(
        "subscribe", endpoint=endpoint, topic=topic, queue_address=address, **in_table(table, database.engine)
    )
    return Subscribed(topic, endpoint, address)


def unsubscribe(database: Connection, endpoint: str, topic: str) -> Unsubscribed | None:
    """Remove a subscription; None if there is none. Raises PermissionDenied."""
    if not any((each.topic, each.endpoint) == (topic, endpoint) for each in subscriptions(database)):
        return None
    database.call_atomically("unsubscribe", endpoint=endpoint, topic=topic)
    return Unsubscribed(topic, endpoint)
