"""From operations to procedure calls: where each message goes, and all of them in one round trip.

A destination may be a name, or any spelling of an address that is found in a header. Registered queues are sent to by
their own procedures; addresses that nobody registered by one guarded INSERT; events by one fan-out on the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rowpost.address import Address, parse_address
from rowpost.database import Database
from rowpost.errors import DelayNotSupported
from rowpost.message import MESSAGE_ID, encode_headers
from rowpost.queue import legacy_values

if TYPE_CHECKING:
    from rowpost.context import Call, Operation
    from rowpost.endpoint import Endpoint

__all__ = ["Directory", "dispatch"]

FORWARD_DESTINATION = "NServiceBus.SqlServer.ForwardDestination"
_MILLISECOND = timedelta(milliseconds=1)


class Directory:
    """Which queues the registry has, remembered until somebody asks for one that it does not know."""

    def __init__(self) -> None:
        self._queues: dict[str, bool] | None = None

    def find(self, database: Database, address: Address) -> str | None:
        """The registered name of an address; None if nobody registered it."""
        name = database.local(address).format()
        if self._queues is None or name not in self._queues:
            self._read(database)
        return name if name in (self._queues or {}) else None

    def delays(self, name: str) -> bool:
        """Whether a registered queue has a delayed table."""
        return bool((self._queues or {}).get(name))

    def address_of(self, database: Database, name: str) -> str:
        """The canonical address of a queue of this database, as others may reply to it (reference A1, A7)."""
        return database.canonical(parse_address(name))

    def _read(self, database: Database) -> None:
        self._queues = {row[0]: bool(row[8]) for row in database.call("list_queues")}


def dispatch(
    database: Database,
    operations: Iterable[Operation | Call],
    directory: Directory,
    *,
    sender: Endpoint,
    begin: bool = False,
    commit: bool = False,
) -> None:
    """Calls and sends operations, each message id once to a destination (reference C4), in one round trip.

    An event whose subscribers are not all registered here takes a second one.

    Raises:
        QueueNotFound: a destination does not exist; nothing of the batch is stored.
    """
    calls: list[Call] = []
    events: list[tuple[int, Operation]] = []
    seen: set[tuple[str, str]] = set()
    for operation in operations:
        if isinstance(operation, tuple):
            calls.append(operation)
            continue
        if operation.topics:
            events.append((len(calls), operation))
            calls.append(_publish(operation))
            continue
        address = parse_address(operation.destination or "")
        key = (database.local(address).format(), operation.headers.get(MESSAGE_ID) or "")
        if key[1] and key in seen:
            continue
        seen.add(key)
        calls.append(_send(database, operation, address, directory, sender))
    if events:
        rows = database.call_all(calls, begin=begin)
        calls = [
            _unregistered(database.local(parse_address(row[0])).qualified(database.engine), operation)
            for place, operation in events
            for row in rows[place]
            if not row[1]
        ]
        begin = False
    if calls:
        database.call_all(calls, begin=begin, commit=commit)
    elif commit:
        database.commit()


def _send(database: Database, operation: Operation, address: Address, directory: Directory, sender: Endpoint) -> Call:
    name = directory.find(database, address)
    if operation.delay is not None:
        return _delay(database, operation, name, directory, sender)
    if name is None:
        return _unregistered(database.local(address).qualified(database.engine), operation)
    arguments = {**_content(operation), "time_to_be_received_ms": _whole(operation.time_to_be_received)}
    if database.legacy_columns:
        arguments["correlation_id"], arguments["reply_to_address"] = legacy_values(operation.headers)
    return ("send_message", name, arguments)


def _delay(database: Database, operation: Operation, name: str | None, directory: Directory, sender: Endpoint) -> Call:
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
