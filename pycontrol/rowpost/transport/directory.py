"""Which queues the registry of a database has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowpost.database.connection import Connection
from rowpost.wire.address import Address, parse_address

if TYPE_CHECKING:
    pass

__all__ = ["Directory"]


class Directory:
    """Which queues the registry has, remembered until somebody asks for one that it does not know."""

    def __init__(self) -> None:
        self._queues: dict[str, bool] | None = None

    def find(self, database: Connection, address: Address) -> str | None:
        """The registered name of an address; None if nobody registered it."""
        name = database.local(address).format()
        if self._queues is None or name not in self._queues:
            self._read(database)
        return name if name in (self._queues or {}) else None

    def delays(self, name: str) -> bool:
        """Whether a registered queue has a delayed table."""
        return bool((self._queues or {}).get(name))

    def address_of(self, database: Connection, name: str) -> str:
        """The canonical address of a queue of this database, as others may reply to it (reference A1, A7)."""
        return database.canonical(parse_address(name))

    def _read(self, database: Connection) -> None:
        self._queues = {row.queue_name: bool(row.delayed) for row in database.call("list_queues")}
