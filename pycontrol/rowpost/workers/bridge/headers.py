"""The headers of messages that cross a bridge: addresses are those of the other side, all others stay.

The functions are pure.

Which addresses are translated in which messages, and the names of the headers, are those of NServiceBus's messaging
bridge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from rowpost.database.connection import Connection
from rowpost.errors import InvalidMessage, InvalidQueueName
from rowpost.recoverability.policy import Host, failure_headers
from rowpost.settings.bridge import BridgeSide
from rowpost.settings.yaml_node import did_you_mean
from rowpost.wire.address import parse_address
from rowpost.wire.headers import (
    BRIDGE_FAILED_QUEUE,
    BRIDGE_INFO,
    BRIDGE_TRANSFER,
    CALLBACK_QUEUE,
    EXCEPTION_INFO,
    FAILED_QUEUE,
    HOST_DISPLAY_NAME,
    HOST_ID,
    MESSAGE_INTENT,
    PROCESSING_ENDED,
    PROCESSING_ENDPOINT,
    PROCESSING_MACHINE,
    REPLY_TO_ADDRESS,
    RETRY_ACKNOWLEDGEMENT_QUEUE,
    RETRY_UNIQUE_MESSAGE_ID,
    TIME_OF_FAILURE,
)
from rowpost.wire.message import Headers, storable

__all__ = ["AddressMap", "failed_headers", "is_subscription_message", "transferred_headers"]

_REPLY = (REPLY_TO_ADDRESS, CALLBACK_QUEUE)
_PREFIX = "NServiceBus."
_PLACE = (PROCESSING_MACHINE, PROCESSING_ENDPOINT, HOST_ID, HOST_DISPLAY_NAME)


class AddressMap:
    """Translates addresses of the source into addresses of the target.

    An endpoint of the source is reached by its proxy queue on the target, an endpoint of the target by its own queue.
    """

    def __init__(self, source: Connection, target: Connection, here: BridgeSide, there: BridgeSide) -> None:
        self._source, self._target, self._side = source, target, here.name
        self._names = {each.queue: each.proxy for each in here.endpoints} | {
            each.proxy: each.queue for each in there.endpoints
        }

    def __call__(self, address: str) -> str:
        """Return the address in the target's canonical form.

        Raises:
            InvalidMessage: no endpoint of the bridge has this address.
        """
        try:
            name = self._source.local(parse_address(address)).format()
        except InvalidQueueName as error:
            raise InvalidMessage(f"The address {address!r} cannot be read: {error}") from error
        found = self._names.get(name)
        if found is None:
            raise InvalidMessage(
                f"The address {address!r} belongs to no endpoint of the bridge{did_you_mean(name, self._names) or '.'} "
                f"Add its endpoint to the side {self._side} of the bridge's file, run rowpost bridge install, and "
                "retry the message."
            )
        return self._target.canonical(parse_address(found))


def is_subscription_message(headers: Headers) -> bool:
    """Return whether a message asks a publisher for a subscription. The bridge's file decides on these instead."""
    return (headers.get(MESSAGE_INTENT) or "").casefold() in ("subscribe", "unsubscribe")


def transferred_headers(
    headers: Headers, translate: Callable[[str], str], *, transfer: str, proxy: str, reply_of_failed: bool = True
) -> dict[str, str | None]:
    """Return the headers that a message has on the other side.

    Args:
        headers: as it arrived.
        translate: returns the other side's address for one of this side.
        transfer: names both sides, for the header of the bridge.
        proxy: the canonical address of the queue from which the message was received.
        reply_of_failed: whether the reply address of failed messages and of their retries is translated too.

    Raises:
        InvalidMessage: an address is of no endpoint of the bridge.
    """
    result = _without_bridge_failure(headers, proxy)
    reply = _REPLY if reply_of_failed else ()
    if result.get(FAILED_QUEUE):
        names: tuple[str, ...] = (FAILED_QUEUE, *reply)
    elif PROCESSING_ENDED in result:
        names = ()  # audited: also if it was a retry
    elif RETRY_UNIQUE_MESSAGE_ID in result:
        names = (RETRY_ACKNOWLEDGEMENT_QUEUE, *reply)
    else:
        result[BRIDGE_TRANSFER] = transfer
        names = _REPLY
    for name in names:
        address = result.get(name)
        if address:
            result[name] = translate(address)
    return result


def failed_headers(
    headers: Headers, error: Exception, *, proxy: str, host: Host, at: datetime, message_id: str
) -> dict[str, str | None]:
    """Return the headers in the error queue of a message that cannot cross.

    A message that failed in an endpoint before keeps that failure, so that a retry returns it there. Of any other one,
    FailedQ is the proxy queue: retried, it tries to cross again.

    Args:
        proxy: the canonical address of the proxy queue.
        message_id: is used if the header is missing.
    """
    before = storable(_without_bridge_failure(headers, proxy))
    failed = failure_headers(before, error, queue=proxy, host=host, at=at, message_id=message_id)
    ours = {
        BRIDGE_INFO + name.removeprefix(_PREFIX): value
        for name, value in failed.items()
        if name in (FAILED_QUEUE, TIME_OF_FAILURE) or name.startswith(EXCEPTION_INFO)
    }
    if before.get(FAILED_QUEUE):
        return {**before, **ours}
    return {**failed, **{name: before[name] for name in _PLACE if name in before}, **ours}


def _without_bridge_failure(headers: Mapping[str, str | None], proxy: str) -> dict[str, str | None]:
    """Copy headers without what an earlier failure of the bridge has added."""
    if not headers.get(BRIDGE_FAILED_QUEUE):
        return dict(headers)
    ours = headers.get(FAILED_QUEUE) == proxy
    gone = {FAILED_QUEUE, TIME_OF_FAILURE, *(() if PROCESSING_ENDED in headers else _PLACE)} if ours else set()
    return {
        name: value
        for name, value in headers.items()
        if name not in gone and not name.startswith(BRIDGE_INFO) and not (ours and name.startswith(EXCEPTION_INFO))
    }
