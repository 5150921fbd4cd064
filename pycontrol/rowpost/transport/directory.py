"""Look up which queues are registered in a database, and which of them have a delayed table."""

from __future__ import annotations

from rowpost.database.connection import Connection
from rowpost.wire.address import Address

__all__ = ["Directory"]


class Directory:
    """The registered queues of one database.

    The registry is read once, and again when a name is asked for that it did not contain. A queue that was dropped stays
    known until then.
    """

    def __init__(self) -> None:
        self._queues: dict[str, bool] | None = None

    def find(self, database: Connection, address: Address) -> str | None:
        """Return the registered name of an address; None if it is not registered."""
        return self.find_name(database, database.local(address).format())

    def find_name(self, database: Connection, name: str) -> str | None:
        """Return `name`, which is an address in the form that the registry uses, if it is registered; else None."""
        if self._queues is None or name not in self._queues:
            self._queues = {row[0]: bool(row[8]) for row in database.call("list_queues")}
        return name if name in self._queues else None

    def delays(self, name: str) -> bool:
        """Return whether a registered queue has a delayed table."""
        return bool((self._queues or {}).get(name))
