"""Build the copy of a failed message that is stored in the error queue or in the delayed table.

`FailedCopies` builds the copies for one queue. A copy must always be possible: a message that cannot be moved because
of the text of its error would be tried again and again, and would block its queue. So a copy whose headers cannot be
built is stored unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from rowpost.recoverability.discard import Discard
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import (
    Decision,
    Failure,
    Host,
    Treatment,
    delayed_headers,
    describe,
    failure_headers,
    in_words,
)
from rowpost.wire.address import endpoint_name
from rowpost.wire.headers import MESSAGE_ID
from rowpost.wire.message import Message, decode_headers, encode_headers
from rowpost.wire.outgoing import Call

__all__ = ["Copy", "FailedCopies"]

logger = logging.getLogger("rowpost")


class Copy(NamedTuple):
    """The copy of a failed message.

    Attributes:
        kind: the outcome of the message when the copy is stored.
        calls: what stores the copy; nothing if the message is dropped.
        discard: why it is dropped.
    """

    kind: Kind
    calls: tuple[Call, ...] = ()
    discard: Discard | None = None

    @property
    def call(self) -> Call:
        """What stores the copy of a message that is not dropped."""
        return self.calls[0]


class FailedCopies:
    """Builds the copies of failed messages.

    Args:
        queue: the queue in which the messages failed.
        address: its address in canonical form, by which others find it.
        error_queue: where messages go that are not retried.
        host: who handled them; None for the queue's endpoint on this machine.
    """

    def __init__(self, queue: str, address: str, error_queue: str, host: Host | None = None) -> None:
        self._queue, self._address, self._error_queue = queue, address, error_queue
        self._host = host or Host.here(endpoint_name(queue))

    def for_error_queue(self, message: Message, failure: Failure, error_queue: str | None = None) -> Copy:
        """Return the copy for an error queue, with headers that describe the failure. None: the usual one."""
        chosen = error_queue or self._error_queue

        def build() -> Call:
            at, own_id = datetime.now(UTC), str(message.id)
            original = decode_headers(message.raw_headers)
            message_id = original.get(MESSAGE_ID) or own_id
            row = {} if message_id == own_id else {"Transport message ID": own_id}
            describe(failure.error, {"Message ID": message_id, **row, "Pipeline canceled": "False"})
            headers = failure_headers(
                original, failure.error, queue=self._address, host=self._host, at=at, message_id=own_id
            )
            return Call("send_message", chosen, {"headers": encode_headers(headers), "body": message.body})

        return self._build(message, Kind.MOVED_TO_ERROR, build)

    def for_later(self, message: Message, failure: Failure, delay: timedelta) -> Copy:
        """Return the copy for the delayed table. It is retried after `delay`."""

        def build() -> Call:
            original = decode_headers(message.raw_headers)
            headers = delayed_headers(original, failure.delayed + 1, datetime.now(UTC), delay, str(message.id))
            content = {"headers": encode_headers(headers), "body": message.body}
            return Call("delay_message", self._queue, {**content, "delay_ms": -(delay // timedelta(milliseconds=-1))})

        return self._build(message, Kind.DELAYED, build)

    def treated(self, message: Message, failure: Failure, treatment: Treatment) -> Copy:
        """Return what is stored of a message that is not retried at once."""
        if treatment.decision is Decision.DELAY:
            return self.for_later(message, failure, treatment.delay)
        if treatment.discard is not None:
            return Copy(Kind.DISCARDED, discard=treatment.discard)
        return self.for_error_queue(message, failure, treatment.error_queue)

    def unchanged(self, message: Message) -> Copy:
        """Return the copy for the error queue with the original headers, the original body and the id of the message's
        row.
        """
        content = {"headers": message.raw_headers, "body": message.body, "id": message.id}
        return Copy(Kind.MOVED_TO_ERROR, (Call("send_message", self._error_queue, content),))

    def warn(self, message: Message, trouble: BaseException) -> None:
        """Log that a message moves unchanged, because the headers of its failure cannot be stored."""
        text = "Message %s of queue %r moves to %r without the headers of its failure, which cannot be stored: %s"
        logger.warning(text, message.id, self._queue, self._error_queue, in_words(trouble))

    def _build(self, message: Message, kind: Kind, build: Callable[[], Call]) -> Copy:
        """Return the copy that `build` makes, or the unchanged copy if it raises."""
        try:
            return Copy(kind, (build(),))
        except Exception as trouble:  # noqa: BLE001 headers, errors and delays come from users
            self.warn(message, trouble)
            return self.unchanged(message)
