"""Create, list and drop temporary databases on a PostgreSQL server. Each function opens a connection of its own."""

from __future__ import annotations

from contextlib import closing

from psycopg.sql import SQL, Identifier

from rowpost.database.dialects.postgresql.session import open_connection

__all__ = ["create_database", "databases_named", "drop_database"]

_APPLICATION = "rowpost temporary databases"


def databases_named(url: str, prefix: str) -> list[str]:
    """Return the names of the server's databases that begin with `prefix`."""
    with closing(open_connection(url, _APPLICATION)) as connection:
        rows = connection.execute("SELECT d.datname FROM pg_database AS d WHERE starts_with(d.datname, %s)", (prefix,))
        return [name for (name,) in rows.fetchall()]


def create_database(url: str, name: str) -> None:
    """Create an empty database."""
    with closing(open_connection(url, _APPLICATION)) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))


def drop_database(url: str, name: str) -> None:
    """Drop a database and end its sessions; do nothing if it does not exist."""
    with closing(open_connection(url, _APPLICATION)) as connection:
        connection.execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(name)))
