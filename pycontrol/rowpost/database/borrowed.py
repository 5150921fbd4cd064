"""A connection that is borrowed anew for each call: `BorrowedConnection`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Begin, Commit
from rowpost.database.pool import Connections
from rowpost.errors import SettingsError
from rowpost.wire.address import Address

__all__ = ["BorrowedConnection"]


class BorrowedConnection(Connection):
    """Stands for a connection where none is held. Each call borrows one from a pool and commits at its end.

    It has neither a transaction nor the driver's connection. Thread-safe.

    Args:
        connections: the pool.
        refusal: says why there is no driver's connection, and what to do instead.

    Raises:
        DatabaseUnavailable: no connection can be opened.
    """

    def __init__(self, connections: Connections, refusal: str) -> None:
        with connections.borrow() as database:
            self.dialect, self.engine, self.legacy_columns = (
                database.dialect,
                database.engine,
                database.legacy_columns,
            )
        self._connections, self._refusal = connections, refusal
        self._spelt = {}
        self.guard = None
        self.lent = self.handed_out = False

    @property
    def driver_connection(self) -> Any:
        """Refuse.

        Raises:
            SettingsError: always.
        """
        raise SettingsError(self._refusal)

    def call(self, procedure: str, /, queue: str | None = None, *, begin: Begin = False, **arguments: Any) -> list[Any]:
        """Call a procedure of the contract in a transaction of its own."""
        with self._connections.borrow() as database:
            return database.call_atomically(procedure, queue, **arguments)

    def call_atomically(self, procedure: str, /, queue: str | None = None, **arguments: Any) -> list[Any]:
        """Call a procedure of the contract in a transaction of its own."""
        return self.call(procedure, queue, **arguments)

    def call_all(
        self, calls: Sequence[tuple[str, str | None, dict[str, Any]]], *, begin: Begin = False, commit: Commit = False
    ) -> list[list[Any]]:
        """Call several procedures in one transaction."""
        with self._connections.borrow() as database:
            return database.call_all(calls, begin=True, commit=True)

    @contextmanager
    def aside(self) -> Iterator[Connection]:
        """Lend a connection of the pool for a block."""
        with self._connections.borrow() as database:
            yield database

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run a block in a transaction on a connection of the pool."""
        with self._connections.borrow() as database, database.transaction():
            yield database

    def cut(self) -> None:
        """Do nothing: the message is held by its lease, and whoever has lost that commits nothing."""

    @property
    def async_connection(self) -> Any:
        """Refuse.

        Raises:
            SettingsError: always.
        """
        raise SettingsError(self._refusal)

    def _local(self, address: Address) -> Address:
        with self._connections.borrow() as database:
            return database._local(address)

    def _canonical(self, address: Address) -> str:
        with self._connections.borrow() as database:
            return database._canonical(address)

    # -------------------------------------------------------------- no connection is held
    @property
    def closed(self) -> bool:
        """False: there is nothing to be closed."""
        return False

    @property
    def in_transaction(self) -> bool:
        """False: each call commits."""
        return False

    @property
    def left_open(self) -> bool:
        """False: each call commits."""
        return False

    def join(self) -> bool:
        """Return False: there is no transaction to join."""
        return False

    def begin(self) -> None:
        """Do nothing."""

    def commit(self) -> None:
        """Do nothing."""

    def rollback(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: the pool is closed by whoever made it."""
