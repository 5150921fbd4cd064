"""Choose the procedure call that stores a message at an address.

Registered queues have a send procedure of their own. Addresses that nobody registered are sent to by the general procedure
`send_unregistered`, with the caller's own right to the table.
"""

from __future__ import annotations

from typing import Any

from rowpost.database.connection import Connection
from rowpost.transport.directory import Directory
from rowpost.wire.address import Address, parse_address
from rowpost.wire.operation import Call

__all__ = ["send_call", "unregistered_call"]


def send_call(database: Connection, directory: Directory, destination: str, content: dict[str, Any]) -> Call:
    """Return the call that sends a message to a queue's name or to any spelling of its address.

    Args:
        content: the arguments that both procedures have: headers, body, and others by the contract's names.

    Raises:
        InvalidQueueName: not an address.
    """
    address = parse_address(destination)
    name = directory.find(database, address)
    if name is not None:
        return Call("send_message", name, content)
    return unregistered_call(database, address, content)


def unregistered_call(database: Connection, address: Address, content: dict[str, Any]) -> Call:
    """Return the call that sends a message to an address that nobody registered."""
    place = database.local(address).qualified(database.engine)
    names = {"schema_name": place.schema, "table_name": place.table}
    if place.catalog is not None:
        names["catalog_name"] = place.catalog
    return Call("send_unregistered", None, {**names, **content})
