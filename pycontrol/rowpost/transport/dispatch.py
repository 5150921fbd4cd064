"""From operations to procedure calls: where each message goes, and all of them in one round trip.

A destination may be a name, or any spelling of an address that is found in a header. Registered queues are sent to by
their own procedures; addresses that nobody registered by one guarded INSERT; events by one fan-out on the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Commit
from rowpost.errors import DelayNotSupported, RowpostError
from rowpost.transport.directory import Directory
from rowpost.transport.queue import Row, legacy_values, split
from rowpost.wire.address import Address, parse_address
from rowpost.wire.headers import FORWARD_DESTINATION, MESSAGE_ID
from rowpost.wire.message import encode_headers
from rowpost.wire.operation import Call

if TYPE_CHECKING:
    from rowpost.endpoint.endpoint import Endpoint
    from rowpost.wire.operation import Operation

__all__ = ["Call", "dispatch"]

_MILLISECOND = timedelta(milliseconds=1)


def dispatch(
    database: Connection,
    groups: Iterable[Iterable[Operation | Call]],
    directory: Directory,
    *,
    sender: Endpoint,
    begin: bool = False,
    commit: Commit = False,
    also: Iterable[Call] = (),
) -> None:
    """Sends what one or several messages caused, a group each, in one round trip, together with `also`.

    Within a group each message id goes once to a destination (reference C4). Every queue gets its messages in their
    order. An event whose subscribers are not all registered here takes a second round trip.

    Raises:
        QueueNotFound: a destination does not exist; nothing of the batch is stored.
    """
    batch = _Batch(also)
    for group in groups:
        seen: set[tuple[str, str]] = set()
        for operation in group:
            if isinstance(operation, tuple):
                batch.call(operation)
                continue
            if operation.topics:
                batch.publish(operation)
                continue
            address = parse_address(operation.destination or "")
            key = (database.local(address).format(), operation.headers.get(MESSAGE_ID) or "")
            if key[1] and key in seen:
                continue
            seen.add(key)
            batch.add(_send(database, operation, address, directory, sender))
    calls = batch.calls
    opened = False
    if batch.events:
        rows = database.call_all(calls, begin=begin)
        calls = [
            _unregistered(database.local(parse_address(row.queue_address)).qualified(database.engine), operation)
            for place, operation in batch.events
            for row in rows[place]
            if not row.stored
        ]
        begin, opened = False, begin
    if not calls and commit != "sealed":
        if commit and not begin:
            database.commit()
        return
    try:
        database.call_all(calls, begin=begin, commit=commit)
    except RowpostError:
        if opened:
            database.rollback()
        raise


class _Batch:
    """Calls in their order, but for the rows of a queue: they travel together, up to the next event, which may have
    the same subscribers."""

    def __init__(self, also: Iterable[Call]) -> None:
        self.events: list[tuple[int, Operation]] = []
        self._calls: list[Call] = list(also)
        self._rows: dict[str, list[Row]] = {}

    def call(self, call: Call) -> None:
        self._calls.append(call)

    def publish(self, operation: Operation) -> None:
        self._settle()
        self.events.append((len(self._calls), operation))
        self._calls.append(_publish(operation))

    def add(self, call: Call | tuple[str, Row]) -> None:
        if isinstance(call[1], Row):
            self._rows.setdefault(call[0], []).append(call[1])
        else:
            self._calls.append(call)

    @property
    def calls(self) -> list[Call]:
        self._settle()
        return self._calls

    def _settle(self) -> None:
        for queue, rows in self._rows.items():
            for some in split(rows):
                self._calls.append(("send_messages", queue, {"messages": some}) if some[1:] else _one(queue, some[0]))
        self._rows = {}


def _one(queue: str, row: Row) -> Call:
    headers, body, _, time, correlation_id, reply_to_address = row
    arguments = {"headers": headers, "body": body, "time_to_be_received_ms": time}
    if correlation_id is not None or reply_to_address is not None:
        arguments |= {"correlation_id": correlation_id, "reply_to_address": reply_to_address}
    return ("send_message", queue, arguments)


def _send(
    database: Connection, operation: Operation, address: Address, directory: Directory, sender: Endpoint
) -> Call | tuple[str, Row]:
    """How an operation leaves: a call, or a row of a registered queue."""
    name = directory.find(database, address)
    if operation.delay is not None:
        return _delay(database, operation, name, directory, sender)
    if name is None:
        return _unregistered(database.local(address).qualified(database.engine), operation)
    legacy = legacy_values(operation.headers) if database.legacy_columns else ()
    time = _whole(operation.time_to_be_received)
    return (name, Row(encode_headers(operation.headers), operation.body, None, time, *legacy))


def _delay(database: Connection, operation: Operation, name: str | None, directory: Directory, sender: Endpoint) -> Call:
    """Into the destination's delayed table; through the sender's where the destination is not ours (reference G2)."""
    arguments = {**_content(operation), "delay_ms": _whole(operation.delay)}
    if name is not None and directory.delays(name):
        return ("delay_message", name, arguments)
    own = None if sender.send_only else directory.find(database, parse_address(sender.name))
    if own is None or not directory.delays(own):
        raise DelayNotSupported(
            f"A delayed message to {operation.destination!r} needs a delayed table: the destination is not a queue of "
            f"this database that has one, and neither has the sender {sender.name!r}."
        )
    headers = {**operation.headers, FORWARD_DESTINATION: operation.destination}
    return ("delay_message", own, {**arguments, "headers": encode_headers(headers)})


def _publish(operation: Operation) -> Call:
    return ("publish_message", None, {**_content(operation), "topics": operation.topics})


def _unregistered(place: Address, operation: Operation) -> Call:
    names = {"schema_name": place.schema, "table_name": place.table}
    if place.catalog is not None:
        names["catalog_name"] = place.catalog
    time = _whole(operation.time_to_be_received)
    return ("send_unregistered", None, {**names, **_content(operation), "time_to_be_received_ms": time})


def _content(operation: Operation) -> dict[str, Any]:
    return {"headers": encode_headers(operation.headers), "body": operation.body}


def _whole(time: timedelta | None) -> int | None:
    """Milliseconds, rounded up."""
    return None if time is None else -(time // -_MILLISECOND)
