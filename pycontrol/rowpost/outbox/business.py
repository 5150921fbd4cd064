"""The connection to the business database as a scope of handlers."""

from __future__ import annotations

from typing import Any

from rowpost.database.connection import Connection
from rowpost.transactions.scope import OneDatabase

__all__ = ["BusinessDatabase"]


class BusinessDatabase(OneDatabase):
    """The scope of a handler with an outbox: the connection to the business database.

    Args:
        name: the business database's name.
        mode: named in error messages.
    """

    def __init__(self, name: str, mode: str) -> None:
        super().__init__(mode)
        self._name = name
        #: the open connection, if any
        self.connection: Connection | None = None

    def business_connection(self, database: Connection) -> Connection:
        """Return the connection to the business database."""
        return self.connection or database

    def enlist(self, participant: Any, database: Connection) -> Any:
        """Return the connection to the business database if `participant` is its name.

        Raises:
            SettingsError: it is another name.
        """
        if participant == self._name and self.connection is not None:
            return self.connection.driver_connection
        return super().enlist(participant, database)
