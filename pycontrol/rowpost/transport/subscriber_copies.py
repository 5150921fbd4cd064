"""Copies of an event for the subscribers that the server could not reach itself: whose queues are not registered, or
whose tables are gone.

A queue that is not registered, such as a .NET endpoint's, gets its copy by `send_to_subscriber`. If its table is gone,
the copy goes to the publisher's error queue, so that one lost subscriber stops neither the publisher nor the others.
FailedQ names the subscriber there: retried, the copy goes to it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from rowpost.database.connection import Connection
from rowpost.errors import InvalidQueueName, QueueNotFound
from rowpost.recoverability.policy import Host, failure_headers
from rowpost.transport.directory import Directory, canonical_or_as_given, names_of, table_of
from rowpost.wire.address import endpoint_name
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from rowpost.wire.message import encode_headers
from rowpost.wire.outgoing import Call

__all__ = ["SubscriberCopies"]

logger = logging.getLogger("rowpost")


class SubscriberCopies:
    """Builds the calls that store copies of events, and logs which of them went to the error queue.

    Args:
        own_queue: the publisher's queue, for the headers of a copy in the error queue. None if it has none.
        error_queue: gets the copies of subscribers whose tables are gone. If this is None or no registered queue, the
            calls raise QueueNotFound.
        host: the publisher; None for its queue on this machine.
    """

    def __init__(
        self,
        database: Connection,
        directory: Directory,
        *,
        own_queue: str | None,
        error_queue: str | None,
        host: Host | None = None,
    ) -> None:
        self._database, self._directory = database, directory
        self._own_queue, self._error_queue = own_queue, error_queue
        self._host = host
        #: subscriber and type of event, in the order of the calls
        self._made: list[tuple[str, str]] = []

    def copy(self, subscriber: str, content: dict[str, Any], headers: Mapping[str, str | None]) -> Call:
        """Return the call that stores a copy.

        Args:
            subscriber: the address in the subscription.
            content: the arguments that `send_to_subscriber` has: headers, body, time_to_be_received_ms.
            headers: the same headers, for the copy in the error queue.

        Raises:
            InvalidQueueName: the address cannot be read, and there is no error queue.
        """
        kind = (headers.get(ENCLOSED_MESSAGE_TYPES) or "no type").partition(";")[0]
        self._made.append((subscriber, kind))
        otherwise = self._otherwise(subscriber, headers)
        try:
            return Call(
                "send_to_subscriber", None, {**names_of(table_of(self._database, subscriber)), **content, **otherwise}
            )
        except InvalidQueueName:
            if not otherwise:
                raise
            return Call(
                "send_message",
                otherwise["otherwise_queue"],
                {"headers": otherwise["otherwise_headers"], "body": content["body"]},
            )

    def warn(self, results: Sequence[Sequence[Sequence[Any]]]) -> None:
        """Log the copies that the server stored in the error queue; `results` are the rows of the calls, in their
        order.
        """
        for (subscriber, kind), rows in zip(self._made, results, strict=True):
            if not rows or not rows[0][0]:
                logger.warning(
                    "There is no table of the subscriber %r: its copy of the event %s is in %r. When the table is "
                    "back, retry the copy with rowpost errors retry; or end the subscription with rowpost "
                    "subscriptions remove.",
                    subscriber, kind, self._error_queue,
                )  # fmt: skip

    def _otherwise(self, subscriber: str, headers: Mapping[str, str | None]) -> dict[str, Any]:
        place = None if self._error_queue is None else self._directory.find(self._database, self._error_queue)
        if place is None or not place.registered:
            return {}
        gone = QueueNotFound(f"There is no table of the subscriber {subscriber!r}.")
        failed = failure_headers(
            headers,
            gone,
            queue=canonical_or_as_given(self._database, subscriber),
            host=self._host or Host.here(endpoint_name(self._own_queue or place.name)),
            at=datetime.now(UTC),
            message_id=headers.get(MESSAGE_ID) or str(uuid4()),
        )
        return {"otherwise_queue": place.name, "otherwise_headers": encode_headers(failed)}
