"""Choose the dialect of an engine or of a driver's connection."""

from __future__ import annotations

from functools import cache
from typing import Any

from rowpost.database.dialects.protocol import Dialect
from rowpost.errors import SettingsError

__all__ = ["dialect_for", "dialect_of"]

#: how to get such a connection from what belongs to other packages
_HINTS = {
    "psycopg2": ". psycopg2 is its predecessor, and another package",
    "asyncpg": ", which is not asynchronous",
    "sqlalchemy": (
        ": a Session has it as session.connection().connection.driver_connection, with SQLAlchemy's driver "
        "postgresql+psycopg or mssql+pyodbc"
    ),
    "django": ": Django's own has it as connection.connection within atomic()",
}


@cache
def dialect_for(engine: str) -> Dialect:
    """Return the dialect of "postgresql" or "sqlserver". A dialect imports its driver when it opens a connection.

    Raises:
        SettingsError: the engine is unknown.
    """
    if engine == "postgresql":
        from rowpost.database.dialects.postgresql.dialect import POSTGRESQL

        return POSTGRESQL
    if engine == "sqlserver":
        from rowpost.database.dialects.sqlserver.dialect import SQLServer

        return SQLServer()
    raise SettingsError(f"There is no engine {engine!r}. Use embedded, postgresql or sqlserver.")


def dialect_of(connection: Any) -> Dialect:
    """Return the dialect of a driver's connection: psycopg's or pyodbc's.

    Raises:
        SettingsError: it is neither.
    """
    module = type(connection).__module__.partition(".")[0]
    if module == "psycopg":
        return dialect_for("postgresql")
    if module == "pyodbc":
        return dialect_for("sqlserver")
    raise SettingsError(
        f"{module}'s {type(connection).__name__} is not a connection that rowpost can use. Give it a connection of "
        f"psycopg 3 (the package psycopg) or of pyodbc{_HINTS.get(module, '')}."
    )
