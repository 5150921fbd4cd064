"""Choose the dialect of an engine or of a driver's connection."""

from __future__ import annotations

from functools import cache
from typing import Any

from rowpost.database.dialects.protocol import Dialect
from rowpost.errors import SettingsError

__all__ = ["dialect_for", "dialect_of"]

#: what helps with those of other packages
_HINTS = {
    "psycopg2": ". psycopg2 is psycopg's predecessor, and another package. For SQLAlchemy, write postgresql+psycopg",
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
    """Return the dialect of a driver's connection: psycopg's or pyodbc's, or one that has it with it.

    Raises:
        SettingsError: it is neither.
    """
    module = type(connection).__module__.partition(".")[0]
    if module == "rowpost":
        own: Dialect = connection.dialect
        return own
    if module == "psycopg":
        return dialect_for("postgresql")
    if module == "pyodbc":
        return dialect_for("sqlserver")
    raise SettingsError(
        f"{module}'s {type(connection).__name__} is not a connection that rowpost can use. Give it a connection of "
        "psycopg 3 (the package psycopg) or of pyodbc, one of SQLAlchemy or Django with these drivers, or, with `async "
        f"with`, one of asyncpg{_HINTS.get(module, '')}."
    )
