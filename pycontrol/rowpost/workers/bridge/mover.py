"""Move messages from the proxy queues of one database to the queues of another one, each exactly once.

A batch is two transactions. The source's receives the messages, and stays open. The target's records an identity of
each row and sends, and commits. Then the source's commits. If the process dies in between, the source delivers again,
and the target refuses the identity: then the message only has to be removed. The records are deleted after that, which
is safe because one session at a time moves in a direction: the lock of its election belongs to the connection that
sends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from rowpost.database.connection import Connection
from rowpost.errors import (
    AlreadyDispatched,
    DatabaseUnavailable,
    Deadlock,
    LoginRefused,
    MessageCorrupt,
    PermissionDenied,
    RowpostError,
    SchemaMissing,
)
from rowpost.recoverability.policy import Host
from rowpost.settings.bridge import BridgeEndpoint, BridgeSettings, BridgeSide
from rowpost.transport.directory import Directory
from rowpost.transport.dispatch import dispatch
from rowpost.transport.queue import BATCH_BYTES, Queue
from rowpost.wire.address import parse_address, queue_key
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES
from rowpost.wire.message import BrowsedMessage, Message, encode_headers
from rowpost.wire.outgoing import AddressedMessage, Call
from rowpost.workers.bridge.headers import AddressMap, failed_headers, is_subscription_message, transferred_headers

__all__ = ["MovedBatch", "Mover", "message_type"]

logger = logging.getLogger("rowpost")

#: errors that are not the message's: it stays in its queue until they are over
NOT_THE_MESSAGES = (DatabaseUnavailable, Deadlock, LoginRefused, PermissionDenied, SchemaMissing)
#: batches after which the proxy queue is read from its start again
CURSOR_BATCHES = 20
EXPIRED = "its time to be received was over before it crossed"
SUBSCRIPTION = "it asks for a subscription, which the bridge's file decides on"


@dataclass(slots=True)
class MovedBatch:
    """What became of one batch.

    Attributes:
        sent: messages that were sent now.
        repeated: messages that had been sent before this process received them.
        skipped: messages that ended without crossing, each with the reason.
        failed: messages that are in the error queue of the source, each with the error.
    """

    sent: int = 0
    repeated: int = 0
    skipped: list[tuple[Message, str]] = field(default_factory=list)
    failed: list[tuple[Message, RowpostError]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many messages left their queue."""
        return self.sent + self.repeated + len(self.skipped) + len(self.failed)


class _Crossing(NamedTuple):
    message: Message
    key: str
    addressed: AddressedMessage


class Mover:
    """Moves messages of one direction. It must be the only one that does: see `elect`.

    Args:
        source: a connection to the side with the proxy queues.
        target: a connection to the side where the endpoints live.
        bridge: the bridge.
        here: the source's side.
        there: the target's side.
        step: called with the name of each step; tests kill the process there.
    """

    def __init__(
        self, source: Connection, target: Connection, bridge: BridgeSettings, here: BridgeSide, there: BridgeSide,
        *, step: Callable[[str], None] = lambda name: None,
    ) -> None:  # fmt: skip
        self._source, self._target, self._bridge, self._here = source, target, bridge, here
        self._transfer = f"{here.name}->{there.name}"
        self._name = f"bridge {bridge.name} {self._transfer}"
        self._translate = AddressMap(source, target, here, there)
        self._directory, self._step = Directory(), step
        #: records of messages that the source has removed
        self._settled: list[str] = []
        #: by proxy queue: the row version below which no row waits, and for how many batches that has been used
        self._cursors: dict[str, tuple[int, int]] = {}

    def elect(self) -> bool:
        """Return whether this session is the one that moves; it remains so as long as the target's connection lives."""
        return bool(self._target.call("elect", duty=self._name)[0].elected)

    def move(self, endpoint: BridgeEndpoint) -> MovedBatch:
        """Move a batch of the oldest messages from the endpoint's proxy queue to its queue.

        Raises:
            RowpostError: for a reason that is not one message's. Nothing is lost and nothing will be sent twice.
        """
        moved, rows = MovedBatch(), self._browse(endpoint.proxy)
        if not rows:
            return moved
        expires = {row.row_version: row.expires for row in rows}
        with self._source.transaction():
            receive = [Call("receive_message", endpoint.proxy, {"row_version": row.row_version}) for row in rows]
            messages = [Message.of_row(found[0]) for found in self._source.call_all(receive) if found]
            self._step("received")
            crossings = self._prepare(endpoint, messages, expires, moved)
            if crossings:
                self._dispatch_each(crossings, moved)
            self._step("sent")
            if moved.failed:
                self._source.call_all([self._copy(endpoint, *each) for each in moved.failed])
            self._step("copied")
        self._step("removed")
        failed = {id(message) for message, _ in moved.failed}
        self._settled += [each.key for each in crossings if id(each.message) not in failed]
        return moved

    def settle(self) -> None:
        """Delete the records of messages that the source has removed.

        A mover that has more to send does it together with that.
        """
        if self._settled:
            self._target.call_all(self._forget(), begin=True, commit=True)
            self._settled = []

    def _browse(self, proxy: str) -> list[BrowsedMessage]:
        """Return rows for one batch without their bodies. Only this call says when a row expires."""
        after, batches = self._cursors.get(proxy, (None, 0))
        found = Queue(proxy, self._source).browse(self._bridge.batch_size, after, 0)
        rows: list[BrowsedMessage] = []
        size = 0
        for row in found:
            size += row.body_bytes + len(row.raw_headers)
            if rows and size > BATCH_BYTES:
                break
            rows.append(row)
        full = len(found) == self._bridge.batch_size or len(rows) < len(found)
        self._cursors.pop(proxy, None)
        if full and batches < CURSOR_BATCHES:
            self._cursors[proxy] = (rows[-1].row_version, batches + 1)
        elif not found and after is not None:
            return self._browse(proxy)
        return rows

    def _dispatch_each(self, crossings: Sequence[_Crossing], moved: MovedBatch) -> None:
        """Send messages together; if that fails because of one of them, one by one, so that the others cross."""
        try:
            self._dispatch(crossings)
        except NOT_THE_MESSAGES:
            raise
        except RowpostError as error:
            if len(crossings) > 1:
                for each in crossings:
                    self._dispatch_each([each], moved)
            elif isinstance(error, AlreadyDispatched):
                moved.repeated += 1
            else:
                moved.failed.append((crossings[0].message, error))
        else:
            moved.sent += len(crossings)

    def _prepare(
        self,
        endpoint: BridgeEndpoint,
        messages: Sequence[Message],
        expires: Mapping[int, datetime | None],
        moved: MovedBatch,
    ) -> list[_Crossing]:
        now = self._now() if any(expires.values()) else None
        proxy = self._source.canonical(parse_address(endpoint.proxy))
        key = queue_key(parse_address(endpoint.proxy), self._source.engine)
        crossings = []
        for message in messages:
            until = expires.get(message.row_version)
            left = None if until is None or now is None else max(until - now, timedelta(milliseconds=1))
            try:
                if message.expired:
                    moved.skipped.append((message, EXPIRED))
                elif is_subscription_message(message.headers):
                    moved.skipped.append((message, SUBSCRIPTION))
                else:
                    headers = transferred_headers(
                        message.headers, self._translate, transfer=self._transfer, proxy=proxy,
                        reply_of_failed=self._bridge.translate_reply_of_failed,
                    )  # fmt: skip
                    addressed = AddressedMessage(headers, message.body, endpoint.queue, time_to_be_received=left)
                    # one message may be sent twice, with the same ids: only the row says which of the two this is
                    crossings.append(_Crossing(message, f"{key} {message.row_version} {message.id}", addressed))
            except RowpostError as error:
                moved.failed.append((message, error))
        return crossings

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._source.dialect.clock(self._source.driver_connection), UTC)

    def _dispatch(self, crossings: Sequence[_Crossing]) -> None:
        also = self._forget()
        also += [Call("record_dispatch", None, {"endpoint": self._name, "message_id": each.key}) for each in crossings]
        groups = [[each.addressed] for each in crossings]
        dispatch(self._target, groups, self._directory, own_queue=None, begin=True, commit=True, also=also)
        self._settled = []

    def _forget(self) -> list[Call]:
        return [Call("forget_dispatch", None, {"endpoint": self._name, "message_id": key}) for key in self._settled]

    def _copy(self, endpoint: BridgeEndpoint, message: Message, error: RowpostError) -> Call:
        """Return the call that stores a message in the error queue of the source; unchanged, if the headers of its
        failure cannot be stored.
        """
        try:
            headers = failed_headers(
                message.headers,
                error,
                proxy=self._source.canonical(parse_address(endpoint.proxy)),
                host=Host.here(self._name),
                at=datetime.now(UTC),
                message_id=str(message.id),
            )
            content: dict[str, Any] = {"headers": encode_headers(headers), "body": message.body}
        except RowpostError as trouble:  # it would block its queue
            if not isinstance(trouble, MessageCorrupt):
                text = (
                    "Message %s of queue %r moves to %r without the headers of its failure, which cannot be stored: %s"
                )
                logger.warning(text, message.id, endpoint.proxy, self._here.error_queue, trouble)
            content = {"headers": message.raw_headers, "body": message.body, "id": message.id}
        return Call("send_message", self._here.error_queue, content)


def message_type(message: Message) -> str | None:
    """Return the message's type as its headers name it; None if they do not."""
    try:
        return (message.headers.get(ENCLOSED_MESSAGE_TYPES) or "").partition(";")[0] or None
    except MessageCorrupt:
        return None
