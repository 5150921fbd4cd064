"""The error queue: what failed, why, and back to where it failed.

    errors = ErrorQueue(database)
    for failed in errors.list(Filter(failed_queue="Billing")):
        errors.retry(failed.row_version)

A message is known by its row version: the number that `rowpost errors list` shows first. A retry is one transaction: the
row leaves the error queue and enters the queue of its header NServiceBus.FailedQ, headers and body as they are
(statement 70). Rows that somebody else holds or took meanwhile are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseUnavailable, InvalidMessage, InvalidQueueName, MessageNotFound, RowpostError
from rowpost.recoverability.policy import FAILED_QUEUE
from rowpost.transport.directory import Directory
from rowpost.transport.failed_message import TYPES, FailedMessage, edited_headers
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.message import BrowsedMessage, Headers, OutgoingMessage, encode_headers
from rowpost.wire.operation import Call

__all__ = ["ErrorQueue", "Filter", "Retried"]

PAGE = 1000
#: how many messages one transaction of retry_all takes back
BATCH = 100
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages: all that is given has to match, case does not matter.

    `failed_queue` is a queue's name or any spelling of its address; `exception` and `message_type` are parts: of the
    exception's type or text, of the types' names.
    """

    failed_queue: str | None = None
    exception: str | None = None
    message_type: str | None = None

    def matches(self, message: FailedMessage, database: Connection) -> bool:
        """Whether the message is one of them."""
        return (
            (self.failed_queue is None or _same_queue(self.failed_queue, message.failed_queue, database))
            and _holds(self.exception, f"{message.exception_type}: {message.exception_message}")
            and _holds(self.message_type, message.headers.get(TYPES) or "")
        )


@dataclass(frozen=True, slots=True)
class Retried:
    """Outcome of retry_all: how many are back; how many somebody else had taken; and why the others stay."""

    retried: int = 0
    gone: int = 0
    refused: tuple[tuple[int, str], ...] = ()


class ErrorQueue:
    """The error queue of a database.

    Raises, all methods: QueueNotFound where there is no such error queue.
    """

    def __init__(self, database: Connection, name: str = "error") -> None:
        self.database = database
        self.queue = Queue(name, database)
        self._directory = Directory()

    # -------------------------------------------------------------- look
    def list(
        self, wanted: Filter | None = None, *, limit: int | None = None, after: int | None = None
    ) -> Iterator[FailedMessage]:
        """The messages that match, oldest first, without their bodies; read in pages, so that any depth will do."""
        found = 0
        for message in self._pages(after):
            if wanted is None or wanted.matches(message, self.database):
                yield message
                found += 1
                if found == limit:
                    return

    def _pages(self, anchor: int | None) -> Iterator[FailedMessage]:
        page: Sequence[BrowsedMessage] = ()
        first = True
        while first or len(page) == PAGE:
            first = False
            page = self.queue.browse(PAGE, anchor, 0)
            for message in page:
                yield FailedMessage(message)
            anchor = page[-1].row_version if page else anchor

    def find(self, key: str | int) -> FailedMessage:
        """One message with its body: by its row version, which is quick, or by its row's or its message's id.

        Raises:
            MessageNotFound: it is not there, or somebody holds it now.
        """
        text = str(key)
        if text.isascii() and text.isdigit():
            return self._at(int(text))
        row = next((m for m in self._pages(None) if text.lower() in (str(m.id), m.message_id.lower())), None)
        if row is None:
            raise self._missing(text)
        return self._at(row.row_version)

    def _at(self, row_version: int) -> FailedMessage:
        for message in self.queue.browse(1, row_version - 1):
            if message.row_version == row_version:
                return FailedMessage(message)
        raise self._missing(str(row_version))

    def _missing(self, key: str) -> MessageNotFound:
        return MessageNotFound(
            f"No message {key} in {self.queue.name!r}: it was retried or discarded, or somebody holds it right now. "
            "rowpost errors list shows those that are there."
        )

    # -------------------------------------------------------------- act
    def retry(self, row_version: int, to: str | None = None) -> str:
        """Brings one message back to the queue where it failed, or `to` another; returns that queue's address.

        Raises:
            MessageNotFound; QueueNotFound: the queue is gone, the message stays here.
            InvalidMessage: nobody wrote down where it failed, and `to` does not say it either.
        """
        with self.database.transaction():
            failed, body = self._take(row_version)
            destination = to or self._destination(failed)
            self.database.call_all([self._send(destination, failed.browsed.raw_headers, body, failed.id)])
        return destination

    def retry_all(
        self, wanted: Filter | None = None, *, progress: Progress | None = None, rows: Sequence[int] | None = None
    ) -> Retried:
        """Brings back all that match and are here now, in batches that commit one by one.

        What fails again meanwhile is not brought back a second time. `rows`: only these, as `list` found them.
        """
        rows = [message.row_version for message in self.list(wanted)] if rows is None else rows
        retried = gone = 0
        refused: list[tuple[int, str]] = []
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            try:
                back = self._retry_batch(batch)
                retried, gone = retried + back, gone + len(batch) - back
            except DatabaseUnavailable:
                raise
            except RowpostError:  # one of them has nowhere to go: which one, shows when they go one by one
                for row in batch:
                    try:
                        self.retry(row)
                        retried += 1
                    except MessageNotFound:
                        gone += 1
                    except DatabaseUnavailable:
                        raise
                    except RowpostError as error:
                        refused.append((row, str(error)))
            if progress:
                progress(min(start + BATCH, len(rows)))
        return Retried(retried, gone, tuple(refused))

    def discard(self, row_version: int) -> None:
        """Removes a message for good. Raises MessageNotFound."""
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
        """Brings a message back with another body or other headers; returns the queue's address.

        It is a new message with a new id, which says in ServiceControl.EditOf whose edit it is, as ServiceControl's own.

        Raises:
            As `retry`. InvalidMessage besides: neither body nor headers are given, or the headers cannot be stored.
        """
        if body is None and headers is None:
            raise InvalidMessage("An edit needs another body or other headers. Without either, retry the message.")
        with self.database.transaction():
            failed, old_body = self._take(row_version)
            if headers is None and failed.corrupt:
                raise InvalidMessage(
                    f"The headers of message {row_version} cannot be read: an edit has to bring new ones."
                )
            destination = to or (headers or {}).get(FAILED_QUEUE) or self._destination(failed)
            edited = edited_headers(failed.headers if headers is None else headers, original=failed)
            content = encode_headers(edited), old_body if body is None else body
            self.database.call_all([self._send(destination, *content, uuid4())])
        return destination

    # -------------------------------------------------------------- how
    def _destination(self, failed: FailedMessage) -> str:
        if failed.failed_queue:
            return failed.failed_queue
        why = (
            f"its headers cannot be read ({failed.corrupt})" if failed.corrupt else f"it bears no header {FAILED_QUEUE}"
        )
        raise InvalidMessage(
            f"Nobody wrote down where message {failed.row_version} failed: {why}. Name the queue it shall go to: --to QUEUE."
        )

    def _take(self, row_version: int) -> tuple[FailedMessage, bytes | None]:
        """Out of the error queue, within the caller's transaction."""
        rows = self.database.call("receive_message", self.queue.name, row_version=row_version)
        if not rows:
            raise self._missing(str(row_version))
        return _failed(rows[0]), rows[0][4]

    def _retry_batch(self, rows: Sequence[int]) -> int:
        """The rows in one transaction, a few round trips; returns how many were still there."""
        database = self.database
        with database.transaction():
            taken = database.call_all([("receive_message", self.queue.name, {"row_version": row}) for row in rows])
            found = [row for row, *_ in filter(None, taken)]
            by_destination: dict[str, list[OutgoingMessage]] = {}
            for row in found:
                failed = _failed(row)
                message = OutgoingMessage(row[4], failed.browsed.raw_headers, failed.id)
                by_destination.setdefault(self._destination(failed), []).append(message)
            for destination, messages in by_destination.items():
                self._send_many(destination, messages)
        return len(found)

    def _send_many(self, destination: str, messages: Sequence[OutgoingMessage]) -> None:
        name = self._directory.find(self.database, parse_address(destination))
        if name is not None:
            Queue(name, self.database).send_many(messages)
            return
        for message in messages:
            self.database.call_all([self._send(destination, message.raw_headers, message.body, message.id)])

    def _send(self, destination: str, raw_headers: str, body: bytes | None, row_id: UUID) -> Call:
        database = self.database
        address = parse_address(destination)
        content = {"headers": raw_headers, "body": body, "id": row_id}
        name = self._directory.find(database, address)
        if name is not None:
            return Call("send_message", name, content)
        place = database.local(address).qualified(database.engine)
        names = {"schema_name": place.schema, "table_name": place.table}
        if place.catalog is not None:
            names["catalog_name"] = place.catalog
        return Call("send_unregistered", None, {**names, **content})


def _failed(row: tuple) -> FailedMessage:
    row_id, row_version, expired, raw_headers, body = row
    body = body or b""
    return FailedMessage(BrowsedMessage(row_id, row_version, bool(expired), None, raw_headers, body, len(body)))


def _holds(part: str | None, text: str) -> bool:
    return part is None or part.casefold() in text.casefold()


def _same_queue(wanted: str, address: str | None, database: Connection) -> bool:
    if address is None:
        return False
    if wanted.casefold() == address.casefold():
        return True
    try:
        names = [database.local(parse_address(text)).format() for text in (wanted, address)]
    except InvalidQueueName:
        return False
    return names[0] == names[1]
