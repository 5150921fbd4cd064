"""The error queue: list failed messages, retry, edit or discard them.

    errors = ErrorQueue(database)
    for failed in errors.list(Filter(failed_queue="Billing")):
        errors.retry(failed.row_version)

A message is identified by its row version, the first column of `rowpost errors list`. A retry is one transaction: it
removes the row from the error queue and inserts it into the queue of its header `NServiceBus.FailedQ`, with headers and
body unchanged. Rows that another session has locked or removed are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from rowpost.database.connection import Connection
from rowpost.errors import (
    CatalogueError,
    Deadlock,
    InvalidMessage,
    MessageError,
    MessageNotFound,
    PermissionDenied,
    QueueNotFound,
)
from rowpost.transport.changes import BATCH, Changed, FailureChange, Report
from rowpost.transport.directory import Directory, local_or_as_given
from rowpost.transport.failed_message import FailedMessage, edited_headers
from rowpost.transport.queue import Queue
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, FAILED_QUEUE
from rowpost.wire.message import BrowsedMessage, Headers, OutgoingMessage, encode_headers, parse_timestamp
from rowpost.wire.outgoing import Call

__all__ = ["ErrorQueue", "Filter"]

PAGE = 1000
DEADLOCKS = 2
#: errors for which one message stays, and the others are changed
REFUSALS = (CatalogueError, MessageError, PermissionDenied)

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects messages. All conditions that are given must match; case is ignored.

    Attributes:
        failed_queue: a queue's name or any spelling of its address.
        exception: part of the exception's type or text.
        message_type: part of a message type's name.
        since: only messages that failed then or later; with a time zone. A message that does not say when it failed
            does not match.
    """

    failed_queue: str | None = None
    exception: str | None = None
    message_type: str | None = None
    since: datetime | None = None

    def matches(self, message: FailedMessage, database: Connection) -> bool:
        """Return whether the message matches."""
        return (
            (self.failed_queue is None or _same_queue(self.failed_queue, message.failed_queue, database))
            and _holds(self.exception, f"{message.exception_type}: {message.exception_message}")
            and _holds(self.message_type, message.headers.get(ENCLOSED_MESSAGE_TYPES) or "")
            and (self.since is None or _failed_since(self.since, message))
        )


class ErrorQueue:
    """The error queue of a database.

    All methods raise QueueNotFound if the error queue does not exist.
    """

    def __init__(self, database: Connection, name: str = "error") -> None:
        self.database = database
        self.queue = Queue(name, database)
        self._directory = Directory()

    # -------------------------------------------------------------- read
    def list(
        self, wanted: Filter | None = None, *, limit: int | None = None, after: int | None = None
    ) -> Iterator[FailedMessage]:
        """Yield the messages that match, oldest first, without their bodies; reads in pages, so that memory use is
        constant.

        Args:
            wanted: selects the messages; all by default.
            limit: maximum number of messages.
            after: only messages with a higher row version.
        """
        found = 0
        for message in self._pages(after):
            if wanted is None or wanted.matches(message, self.database):
                yield message
                found += 1
                if found == limit:
                    return

    def _pages(self, after_row_version: int | None) -> Iterator[FailedMessage]:
        more = True
        while more:
            page = self.queue.browse(PAGE, after_row_version, 0)
            for message in page:
                yield FailedMessage(message, self.name_here)
                after_row_version = message.row_version
            more = len(page) == PAGE

    def find(self, key: str | int, *, max_body_bytes: int | None = None) -> FailedMessage:
        """Return one message with its body, unless the login may not read bodies (`browsed.withheld`).

        Args:
            key: the row version, which is fast, or the row's or the message's id, which scans the queue.
            max_body_bytes: as for `Queue.show`; 0: without the body.

        Raises:
            MessageNotFound: the message does not exist, or another session has locked it.
        """
        text = str(key)
        if text.isascii() and text.isdigit():
            return self._at(int(text), max_body_bytes)
        row = next((m for m in self._pages(None) if text.lower() in (str(m.id), m.message_id.lower())), None)
        if row is None:
            raise self._missing(text)
        return self._at(row.row_version, max_body_bytes)

    def _at(self, row_version: int, max_body_bytes: int | None) -> FailedMessage:
        for message in self.queue.show(1, row_version - 1, max_body_bytes):
            if message.row_version == row_version:
                return FailedMessage(message, self.name_here)
        raise self._missing(str(row_version))

    def _missing(self, key: str) -> MessageNotFound:
        return MessageNotFound(
            f"No message {key} in {self.queue.name!r}: it was retried or discarded, or another session has locked it. "
            "`rowpost errors list` shows the messages in the error queue."
        )

    def name_here(self, address: str) -> str:
        """Return the name by which this database knows the queue of an address; the address itself if it cannot be
        read.
        """
        return local_or_as_given(self.database, address)

    # -------------------------------------------------------------- change
    def retry(self, row_version: int, to: str | None = None) -> str:
        """Move one message back to the queue where it failed, or to the queue `to`; return that queue's name.

        Raises:
            MessageNotFound: the message does not exist, or another session has locked it.
            QueueNotFound: the destination does not exist; the message stays in the error queue.
            InvalidMessage: the headers do not name the queue where it failed, and `to` is not given.
        """
        with self.database.transaction():
            failed, body = self._take(row_version)
            destination = to or self._destination(failed)
            self.database.call_all([self._send(destination, failed.browsed.raw_headers, body, failed.id)])
        return self.name_here(destination)

    def retry_all(self, wanted: Filter | None = None, *, progress: Progress | None = None) -> Changed:
        """Retry all messages that match, in batches that commit one by one.

        Messages that fail again meanwhile are not retried a second time.

        Args:
            progress: called after each batch with the number of messages processed so far.
        """
        rows, done = [message.row_version for message in self.list(wanted)], Changed()
        for start in range(0, len(rows), BATCH):
            done = sum(self.change_all(rows[start : start + BATCH], FailureChange("retry")), done)
            if progress:
                progress(min(start + BATCH, len(rows)))
        return done

    def change_all(self, rows: Sequence[int], change: FailureChange, report: Report | None = None) -> Iterator[Changed]:
        """Change messages in parts, and yield what became of each part when it is committed.

        Messages that cannot be changed stay.

        Args:
            rows: their row versions, as `list` found them.
            report: called in the transaction of each part; what it raises undoes the part and ends the change.

        Raises:
            DatabaseUnavailable, Deadlock: the parts before are committed.
        """
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            try:
                yield self._change(batch, change, report)
            except REFUSALS:  # a destination does not exist, for example; one by one shows which one
                for row in batch:
                    yield self._change_or_refuse(row, change, report)

    def check_destination(self, queue: str) -> None:
        """Make sure that messages can be moved to a queue. Raises QueueNotFound: it is not registered."""
        if not self._directory.find(self.database, queue).registered:
            raise QueueNotFound(
                f"There is no queue {queue!r} to which messages could be moved. `rowpost queue list` shows the queues."
            )

    def _change_or_refuse(self, row: int, change: FailureChange, report: Report | None) -> Changed:
        try:
            return self._change([row], change, report)
        except REFUSALS as error:
            refused = Changed(refused=((row, str(error)),))
        with self.database.transaction():
            if report:
                report([row], refused)
        return refused

    def discard(self, row_version: int) -> None:
        """Remove a message for good. Raises MessageNotFound."""
        if self.queue.receive_one(row_version) is None:
            raise self._missing(str(row_version))

    def edit(
        self,
        row_version: int,
        *,
        body: bytes | None = None,
        headers: Headers | None = None,
        to: str | None = None,
    ) -> str:
        """Retry a message with another body or other headers; return the queue's name.

        The result is a new message with a new id. Its header `ServiceControl.EditOf` names the original message, as
        ServiceControl does it.

        Raises:
            MessageNotFound, QueueNotFound: as `retry`.
            InvalidMessage: as `retry`; or neither body nor headers are given, or the headers cannot be stored.
        """
        if body is None and headers is None:
            raise InvalidMessage("An edit needs a new body or new headers. To send the message unchanged, retry it.")
        with self.database.transaction():
            failed, old_body = self._take(row_version)
            if headers is None and failed.corrupt:
                raise InvalidMessage(
                    f"The headers of message {row_version} cannot be read. Give new headers for the edit."
                )
            destination = to or (headers or {}).get(FAILED_QUEUE) or self._destination(failed)
            edited = edited_headers(failed.headers if headers is None else headers, original=failed)
            content = encode_headers(edited), old_body if body is None else body
            self.database.call_all([self._send(destination, *content, uuid4())])
        return self.name_here(destination)

    # -------------------------------------------------------------- internals
    def _destination(self, failed: FailedMessage) -> str:
        if failed.failed_queue:
            return failed.failed_queue
        # what cannot be read stays out of the text, because the operation log keeps it; `errors show` shows it
        why = "its headers cannot be read" if failed.corrupt else f"it has no header {FAILED_QUEUE}"
        raise InvalidMessage(
            f"The queue where message {failed.row_version} failed is unknown: {why}. Name the destination with --to "
            "QUEUE."
        )

    def _take(self, row_version: int) -> tuple[FailedMessage, bytes | None]:
        """Remove a message from the error queue, within the caller's transaction."""
        rows = self.database.call("receive_message", self.queue.name, row_version=row_version)
        if not rows:
            raise self._missing(str(row_version))
        return _failed(rows[0]), rows[0][4]

    def _change(self, rows: Sequence[int], change: FailureChange, report: Report | None) -> Changed:
        """Change the rows in one transaction and a few round trips.

        A transaction that is the victim of a deadlock is repeated twice.
        """
        for _ in range(DEADLOCKS):
            try:
                return self._change_once(rows, change, report)
            except Deadlock:
                if self.database.in_transaction:  # the caller's is undone too
                    raise
        return self._change_once(rows, change, report)

    def _change_once(self, rows: Sequence[int], change: FailureChange, report: Report | None) -> Changed:
        with self.database.transaction():
            taken = self.database.call_all([("receive_message", self.queue.name, {"row_version": row}) for row in rows])
            found = [row for row, *_ in filter(None, taken)]
            by_destination: dict[str, list[OutgoingMessage]] = {}
            for row in found if change.kind != "discard" else ():
                failed = _failed(row)
                by_destination.setdefault(change.to or self._destination(failed), []).append(
                    _outgoing(failed, row[4], change)
                )
            for destination, messages in by_destination.items():
                self._send_many(destination, messages)
            done = Changed(len(found), len(rows) - len(found))
            if report:
                report(rows, done)
        return done

    def _send_many(self, destination: str, messages: Sequence[OutgoingMessage]) -> None:
        place = self._directory.find(self.database, destination)
        if place.registered:
            Queue(place.name, self.database).send_many(messages)
            return
        for message in messages:
            self.database.call_all([self._send(destination, message.raw_headers, message.body, message.id)])

    def _send(self, destination: str, raw_headers: str, body: bytes | None, row_id: UUID | None) -> Call:
        content = {"headers": raw_headers, "body": body, "id": row_id}
        return self._directory.find(self.database, destination).send(content)


def _failed(row: tuple[Any, ...]) -> FailedMessage:
    row_id, row_version, expired, raw_headers, body = row
    body = body or b""
    return FailedMessage(BrowsedMessage(row_id, row_version, bool(expired), None, raw_headers, body, len(body)))


def _outgoing(failed: FailedMessage, body: bytes | None, change: FailureChange) -> OutgoingMessage:
    """Return the message that is sent in place of a failed one. Raises InvalidMessage."""
    if change.kind != "edit":
        return OutgoingMessage(body, failed.browsed.raw_headers, failed.id)
    if failed.corrupt:
        raise InvalidMessage(
            f"The headers of message {failed.row_version} cannot be read. Edit it on its own, with new headers."
        )
    return OutgoingMessage(body, encode_headers(edited_headers(change.apply(failed.headers), original=failed)), uuid4())


def _holds(part: str | None, text: str) -> bool:
    return part is None or part.casefold() in text.casefold()


def _failed_since(since: datetime, message: FailedMessage) -> bool:
    try:
        return parse_timestamp(message.failed_at) >= since
    except ValueError:
        return False


def _same_queue(wanted: str, address: str | None, database: Connection) -> bool:
    if address is None:
        return False
    if wanted.casefold() == address.casefold():
        return True
    return local_or_as_given(database, wanted) == local_or_as_given(database, address)
