"""Subscribe and Unsubscribe messages, with which endpoints without native publish and subscribe ask a publisher for its
events.

They are control messages of NServiceBus, see its `MessageDrivenSubscriptions`. `take_subscription` does what such a
message asks. An endpoint that does not take them refuses them with `subscription_refused`: a sender would wait for
events in vain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from rowpost.database.connection import Connection
from rowpost.errors import CatalogueError, SubscriptionRefused
from rowpost.wire.address import Address, parse_address
from rowpost.wire.headers import (
    CONTROL_MESSAGE,
    MESSAGE_INTENT,
    REPLY_TO_ADDRESS,
    SUBSCRIBER_ADDRESS,
    SUBSCRIBER_ENDPOINT,
    SUBSCRIPTION_MESSAGE_TYPE,
)
from rowpost.wire.message_types import split_enclosed_types

__all__ = ["asks_for_subscription", "subscription_refused", "take_subscription"]

logger = logging.getLogger("rowpost")

_ENDS = {"Subscribe": False, "Unsubscribe": True}

Headers = Mapping[str, str | None]


def asks_for_subscription(headers: Headers) -> bool:
    """Return whether a message is a Subscribe or an Unsubscribe message."""
    return headers.get(CONTROL_MESSAGE) == "True" and headers.get(MESSAGE_INTENT) in _ENDS


def subscription_refused(receiver: str, headers: Headers, how: str) -> SubscriptionRefused:
    """Return the error for a message that its receiver does not take.

    Args:
        receiver: who got the message.
        headers: of the message.
        how: what to do, so that it takes such messages.
    """
    return SubscriptionRefused(
        f"{receiver} takes no {headers.get(MESSAGE_INTENT)} messages, so that {_subscriber(headers)!r:.200} gets no "
        f"events of the type {headers.get(SUBSCRIPTION_MESSAGE_TYPE) or 'none'!r:.200} from it. {how} Then return the "
        "message from the error queue."
    )


def take_subscription(
    publisher: Address, database: Connection, headers: Headers, resolve: Callable[[str], str]
) -> None:
    """Subscribe the endpoint that sent a message, or end its subscription. This commits together with the message.

    Args:
        publisher: the address of the queue that the message was received from.
        database: the receiving connection.
        headers: of the message.
        resolve: gives a name without a schema the one that the environment means.

    Raises:
        SubscriptionRefused: the message names no type or no subscriber, or the login may not do what it asks.
    """
    topic = next(iter(split_enclosed_types(headers.get(SUBSCRIPTION_MESSAGE_TYPE))), None)
    subscriber = _subscriber(headers)
    for name, value in ((SUBSCRIPTION_MESSAGE_TYPE, topic), (SUBSCRIBER_ADDRESS, subscriber)):
        if not value:
            raise SubscriptionRefused(
                f"The {headers[MESSAGE_INTENT]} message cannot be followed: it has no header {name}."
            )
    try:
        address = parse_address(resolve(str(subscriber)))
        with database.transaction():
            database.call(
                "take_subscription",
                publisher=database.canonical(publisher),
                endpoint=headers.get(SUBSCRIBER_ENDPOINT) or address.table,
                topic=topic,
                queue_address=database.canonical(address),
                ends=_ENDS[headers[MESSAGE_INTENT] or ""],
            )
    except SubscriptionRefused:
        raise
    except CatalogueError as error:  # a retry has the same name, the same text and the same rights
        raise SubscriptionRefused(str(error)) from error
    logger.info("%s of %s to %s was recorded.", headers[MESSAGE_INTENT], subscriber, topic)


def _subscriber(headers: Headers) -> str | None:
    """Return the address that gets the events.

    Endpoints of NServiceBus before version 6 name only where they want replies.
    """
    return headers.get(SUBSCRIBER_ADDRESS) or headers.get(REPLY_TO_ADDRESS)
