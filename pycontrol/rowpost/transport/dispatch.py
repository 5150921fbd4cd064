"""Send what handlers caused: find out where each message goes, and send all of them in one round trip.

`dispatch` takes outgoing messages and calls (of procedures) and turns them into calls:

    registered queue         one `send_message`, or `send_messages` for several messages to the same queue
    unregistered address     `send_unregistered`, one guarded INSERT
    topics of an event       `publish_message`, which copies the event to its subscribers on the server
    delayed message          `delay_message`, into the destination's delayed table or else into the sender's

A destination may be a queue's name, or an address in any spelling that occurs in headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Commit
from rowpost.errors import DelayNotSupported, RowpostError
from rowpost.recoverability.policy import Host
from rowpost.transport.directory import Directory, Place, local_or_as_given, send_unregistered
from rowpost.transport.duplicates import check_same
from rowpost.transport.queue import Row, legacy_values, split
from rowpost.transport.subscriber_copies import SubscriberCopies
from rowpost.wire.address import Address
from rowpost.wire.headers import FORWARD_DESTINATION, MESSAGE_ID
from rowpost.wire.message import encode_headers
from rowpost.wire.outgoing import AddressedMessage, Call, Outgoing

__all__ = ["dispatch"]

_MILLISECOND = timedelta(milliseconds=1)


def dispatch(
    database: Connection,
    groups: Iterable[Iterable[Outgoing]],
    directory: Directory,
    *,
    own_queue: str | None,
    error_queue: str | None = None,
    host: Host | None = None,
    begin: bool = False,
    commit: Commit = False,
    also: Iterable[Call] = (),
) -> None:
    """Send what one or several messages caused in one round trip.

    Within a group, each destination gets a message id once: the last message, in the place of the first one, or the
    copy of an event. Each queue receives its messages in the order of the group, but a message whose id is published
    too is stored last. That takes a second round trip, as does an event with a subscriber whose queue is not registered
    in this database.

    Args:
        database: the connection to send on.
        groups: the outgoing messages and calls that each handled message caused.
        directory: the registered queues of this database.
        own_queue: the sender's queue. Its delayed table keeps delayed messages to destinations that have none. None if
            the sender has no queue.
        error_queue: gets a subscriber's copy of an event if the subscriber's table is gone. If this is None or no
            registered queue, the event is refused.
        host: the sender, for a subscriber's copy in the error queue; None for the sender's queue on this machine.
        begin: open a transaction before the first call.
        commit: commit after the last call; "commit_guarded" if the transaction was begun so.
        also: calls that are made before all others, in the same transaction.

    Raises:
        QueueNotFound: a destination does not exist. No message of the batch is stored.
        DelayNotSupported: no delayed table can keep a delayed message.
        InvalidMessage: two messages of a group, which differ in type or body, have the same id and destination.
    """
    batch = _Batch(also)
    for group in groups:
        _add_group(batch, database, group, directory, own_queue)
    if batch.events:
        copies = SubscriberCopies(database, directory, own_queue=own_queue, error_queue=error_queue, host=host)
        _publish_and_send(database, batch, copies, begin, commit)
    elif batch.calls or commit == "commit_guarded":
        database.call_all(batch.calls, begin=begin, commit=commit)
    elif commit and not begin:
        database.commit()


def _add_group(
    batch: _Batch, database: Connection, group: Iterable[Outgoing], directory: Directory, own_queue: str | None
) -> None:
    found = [
        (None if isinstance(each, Call) or each.topics else directory.find(database, each.destination or ""), each)
        for each in group
    ]
    events: dict[str | None, AddressedMessage] = {}
    if len(found) > 1:
        found, events = _last_of_each_id(found)
    for place, outgoing in found:
        if isinstance(outgoing, Call):
            batch.add(outgoing)
        elif place is None:
            batch.publish(outgoing)
        elif events and (event := events.get(outgoing.headers.get(MESSAGE_ID))):
            batch.held.append((event, place, outgoing, _call(database, outgoing, place, directory, own_queue)))
        elif place.registered and outgoing.delay is None:
            batch.add_row(place.name, _row(database, outgoing))
        else:
            batch.add(_call(database, outgoing, place, directory, own_queue))


def _last_of_each_id(
    found: list[tuple[Place | None, Outgoing]],
) -> tuple[list[tuple[Place | None, Outgoing]], dict[str | None, AddressedMessage]]:
    """Return what is left of a group if each destination gets a message id once, and its events by id."""
    kept: dict[Any, tuple[Place | None, Outgoing]] = {}
    events: dict[str | None, AddressedMessage] = {}
    for number, (place, outgoing) in enumerate(found):
        message_id = None if isinstance(outgoing, Call) else outgoing.headers.get(MESSAGE_ID)
        key = (None if place is None else place.name, message_id) if message_id else number
        if key in kept:
            check_same(kept[key][1], outgoing)  # type: ignore[arg-type]  # calls have numbers
        kept[key] = place, outgoing
        if place is None and message_id:
            events[message_id] = outgoing  # type: ignore[assignment]
    return [*kept.values()], events


def _call(
    database: Connection, addressed: AddressedMessage, place: Place, directory: Directory, own_queue: str | None
) -> Call:
    if addressed.delay is not None:
        return _delay(database, addressed, place, directory, own_queue)
    if place.registered:
        return _send_one(place.name, _row(database, addressed))
    return _send_unregistered(place.table, addressed)


def _publish_and_send(
    database: Connection, batch: _Batch, copies: SubscriberCopies, begin: bool, commit: Commit
) -> None:
    """Make the calls of a batch with events, then send copies to the subscribers that the server could not reach."""
    rows = database.call_all(batch.calls, begin=begin)
    try:
        calls = [
            copies.copy(
                row[0],
                _content(addressed) | {"time_to_be_received_ms": _milliseconds(addressed.time_to_be_received)},
                addressed.headers,
            )
            for place, addressed in batch.events
            for row in rows[place]
            if not row[1]
        ]
        held = list(_not_published(database, batch, rows))
        if held or calls or commit == "commit_guarded":
            copies.warn(database.call_all([*held, *calls], commit=commit)[len(held) :])
        elif commit:
            database.commit()
    except RowpostError:
        if begin:
            database.rollback()
        raise


def _not_published(database: Connection, batch: _Batch, rows: Sequence[Sequence[Any]]) -> Iterator[Call]:
    """Yield the calls for held messages whose destinations are no subscribers of the event with their id."""
    for event, place, addressed, call in batch.held:
        (number,) = (number for number, each in batch.events if each is event)
        if place.name in {local_or_as_given(database, row[0]) for row in rows[number]}:
            check_same(event, addressed)
        else:
            yield call


class _Batch:
    """Calls in their order.

    Rows for the same queue are collected into one call. An event ends the collection, because its subscribers may be
    the same queues, and each queue must receive its messages in order.
    """

    def __init__(self, also: Iterable[Call]) -> None:
        #: events with the index of their call
        self.events: list[tuple[int, AddressedMessage]] = []
        #: messages whose ids are published too: the event, where the message goes, the message, and its call
        self.held: list[tuple[AddressedMessage, Place, AddressedMessage, Call]] = []
        self._calls: list[Call] = list(also)
        self._rows: dict[str, list[Row]] = {}

    def publish(self, event: AddressedMessage) -> None:
        self._flush()
        self.events.append((len(self._calls), event))
        time_ms = _milliseconds(event.time_to_be_received)
        expiring = {} if time_ms is None else {"time_to_be_received_ms": time_ms}
        self._calls.append(Call("publish_message", None, {**_content(event), "topics": event.topics, **expiring}))

    def add(self, call: Call) -> None:
        self._calls.append(call)

    def add_row(self, queue: str, row: Row) -> None:
        self._rows.setdefault(queue, []).append(row)

    @property
    def calls(self) -> list[Call]:
        self._flush()
        return self._calls

    def _flush(self) -> None:
        for queue, rows in self._rows.items():
            if len(rows) == 1:
                self._calls.append(_send_one(queue, rows[0]))
                continue
            for part in split(rows):
                call = Call("send_messages", queue, {"messages": part}) if len(part) > 1 else _send_one(queue, part[0])
                self._calls.append(call)
        self._rows = {}


def _row(database: Connection, addressed: AddressedMessage) -> Row:
    """Return the row that a message becomes in a registered queue."""
    legacy = legacy_values(addressed.headers) if database.legacy_columns else ()
    return Row(
        encode_headers(addressed.headers), addressed.body, None, _milliseconds(addressed.time_to_be_received), *legacy
    )


def _send_one(queue: str, row: Row) -> Call:
    headers, body, _, time_ms, correlation_id, reply_to_address = row
    arguments = {"headers": headers, "body": body, "time_to_be_received_ms": time_ms}
    if correlation_id is not None or reply_to_address is not None:
        arguments |= {"correlation_id": correlation_id, "reply_to_address": reply_to_address}
    return Call("send_message", queue, arguments)


def _delay(
    database: Connection, addressed: AddressedMessage, place: Place, directory: Directory, own_queue: str | None
) -> Call:
    """Store a message in the delayed table of its destination, or in the sender's, which forwards it when it is due."""
    arguments = {**_content(addressed), "delay_ms": _milliseconds(addressed.delay)}
    if place.delays:
        return Call("delay_message", place.name, arguments)
    own = None if own_queue is None else directory.find(database, own_queue)
    if own is None or not own.delays:
        sender = "the sender has no queue" if own_queue is None else f"the sender's queue {own_queue!r} has none either"
        raise DelayNotSupported(
            f"The delayed message to {addressed.destination!r} cannot be stored: the destination has no delayed table "
            f"in this database, and {sender}: write `delayed: true` at one of them below `queues:` in the "
            "environment's file and run rowpost apply, or send without a delay."
        )
    destination = database.canonical(place.table)  # also movers of .NET endpoints, with other defaults, read it
    headers = {**addressed.headers, FORWARD_DESTINATION: destination}
    return Call("delay_message", own.name, {**arguments, "headers": encode_headers(headers)})


def _send_unregistered(table: Address, addressed: AddressedMessage) -> Call:
    time_ms = _milliseconds(addressed.time_to_be_received)
    return send_unregistered(table, {**_content(addressed), "time_to_be_received_ms": time_ms})


def _content(addressed: AddressedMessage) -> dict[str, Any]:
    return {"headers": encode_headers(addressed.headers), "body": addressed.body}


def _milliseconds(time: timedelta | None) -> int | None:
    """Return milliseconds, rounded up."""
    return None if time is None else -(time // -_MILLISECOND)
