"""Look up where an address leads: to a registered queue of a database, or to a table that nobody registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import InvalidQueueName
from rowpost.wire.address import Address, parse_address
from rowpost.wire.outgoing import Call

__all__ = [
    "Directory",
    "Place",
    "canonical_or_as_given",
    "local_or_as_given",
    "names_of",
    "send_unregistered",
    "table_of",
]

REMEMBERED_PLACES = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """Where an address leads, seen from one database.

    Attributes:
        name: the address in the form that the registry uses; the queue's name if it is registered.
        registered: whether the database has a registered queue there.
        delays: whether that queue has a delayed table.
        table: the table, with its schema, and with its catalog if it lies in another database.
    """

    name: str
    registered: bool
    delays: bool
    table: Address

    def send(self, content: dict[str, Any]) -> Call:
        """Return the call that stores a message there.

        Registered queues have a send procedure of their own. Other tables are sent to by the general procedure
        `send_unregistered`, with the caller's own right to the table.

        Args:
            content: the arguments that both procedures have: headers, body, and others by the contract's names.
        """
        return Call("send_message", self.name, content) if self.registered else send_unregistered(self.table, content)


class Directory:
    """The registered queues of one database.

    The registry is read once, and again when a name is asked for that it did not contain. A queue that was dropped
    stays known until then.
    """

    def __init__(self) -> None:
        self._queues: dict[str, bool] | None = None
        #: by the address as it was spelt
        self._places: dict[str, Place] = {}

    def find(self, database: Connection, address: str) -> Place:
        """Return where a queue's name, or an address in any spelling that occurs in headers, leads.

        Raises:
            InvalidQueueName: the text is not an address.
        """
        place = self._places.get(address)
        if place is None or not place.registered:
            place = self._find(database, address)
            if len(self._places) >= REMEMBERED_PLACES:
                self._places.clear()
            self._places[address] = place
        return place

    def _find(self, database: Connection, text: str) -> Place:
        address = database.local(parse_address(text))
        name = address.format()
        if self._queues is None or name not in self._queues:
            self._queues = {row.queue_name: row.delayed for row in database.call("list_queues")}
            self._places.clear()
        registered, delays = name in self._queues, self._queues.get(name, False)
        return Place(name, registered=registered, delays=delays, table=address.qualified(database.engine))


def table_of(database: Connection, address: str) -> Address:
    """Return the table of an address, with its schema, and with its catalog if it lies in another database."""
    return database.local(parse_address(address)).qualified(database.engine)


def canonical_or_as_given(database: Connection, address: str) -> str:
    """Return an address in canonical form; as it is given if it cannot be read."""
    try:
        return database.canonical(parse_address(address))
    except InvalidQueueName:
        return address


def local_or_as_given(database: Connection, address: str) -> str:
    """Return the name by which a database knows the queue of an address; the address itself if it cannot be read."""
    try:
        return database.local(parse_address(address)).format()
    except InvalidQueueName:
        return address


def names_of(table: Address) -> dict[str, str | None]:
    """Return the arguments that name a table of `table_of` to the procedures that send to a table: schema_name,
    table_name, catalog_name.
    """
    names = {"schema_name": table.schema, "table_name": table.table}
    return names if table.catalog is None else {**names, "catalog_name": table.catalog}


def send_unregistered(table: Address, content: dict[str, Any]) -> Call:
    """Return the call of `send_unregistered` for a table of `table_of`; `content` as for `Place.send`."""
    return Call("send_unregistered", None, {**names_of(table), **content})
