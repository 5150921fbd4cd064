"""Large results out of PostgreSQL: a procedure's rows by COPY, which Apache's ADBC driver makes Arrow batches of.

A function in the select list hands its rows on one by one, as records; in FROM the server stores all of them first, but
for a function that runs as its caller: that one is planned as a part of the query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from rowpost.database.dialects.protocol import Statement
from rowpost.errors import SettingsError
from rowpost.version import install_command

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["copy_rows"]

#: functions that run as their caller
_INLINED = frozenset({"read_range"})
#: how a column is selected. Arrow counts microseconds since 1970, and readers of archives hold the years 1 to 9999:
#: what is outside of them, both infinities included, is the nearest of these times, as in a DistantTime
_SELECTED = {
    "uuid": "{0}.{1}::text AS {1}",
    "timestamp": (
        "CASE WHEN {0}.{1} IS NOT NULL THEN greatest(least({0}.{1}, '9999-12-31 23:59:59.999999'), '0001-01-01') END "
        "AS {1}"
    ),
}
_LOST = ("PQgetCopyData() failed", "FATAL:")
_WORDS = re.compile(r"(?:(?:ERROR|FATAL):\s+|PQgetCopyData\(\) failed: |Failed to connect: )(.+)")


def copy_rows(
    connection: psycopg.Connection, function: str, statement: Statement, arguments: dict[str, Any],
    columns: Sequence[str], chunk_bytes: int,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Yield some columns of a function's rows, in batches of about so many bytes; a longer row is a batch of its own.

    They come over a connection of their own, to where this one goes; a reader that stops closes it.

    Raises:
        psycopg.Error: what the server said, also in the middle.
        SettingsError: the driver is not installed.
    """
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise SettingsError(f"{error.name} is not installed: {install_command('spark')}") from error
    query = _query(connection, function, statement, arguments, columns)
    try:
        with dbapi.connect(_where(connection), autocommit=True) as reader, reader.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(chunk_bytes)})
            cursor.execute(query)
            yield from cursor.fetch_record_batch()
    except dbapi.Error as error:
        raise _kind(error.sqlstate)(_said(error)) from error
    except OSError as error:  # in the middle of the rows there is a text, and no code
        lost = any(sign in str(error) for sign in _LOST)
        raise (psycopg.OperationalError if lost else psycopg.DatabaseError)(_said(error)) from error


def _said(error: Exception) -> str:
    """Return the server's own words, or libpq's, out of what the driver tells."""
    found = _WORDS.search(str(error))
    return found[1] if found else str(error)


def _kind(sqlstate: str | None) -> type[psycopg.Error]:
    """psycopg's class for the server's code, which bears it; one without a code for what fails while connecting."""
    with suppress(KeyError):
        return psycopg.errors.lookup(sqlstate or "")
    return (
        psycopg.OperationalError if sqlstate is None else type("Told", (psycopg.DatabaseError,), {"sqlstate": sqlstate})
    )


def _where(connection: psycopg.Connection) -> str:
    """Return what psycopg connected to, with the password, which it leaves out of what it shows."""
    return make_conninfo(connection.info.dsn, password=connection.info.password or None)


def _query(
    connection: psycopg.Connection,
    function: str,
    statement: Statement,
    arguments: dict[str, Any],
    columns: Sequence[str],
) -> str:
    """COPY takes no parameters: values are quoted by libpq."""
    given = sql.SQL(", ").join(
        sql.SQL("p_{} => {}").format(sql.SQL(name), sql.Literal(arguments[name]))
        for name, _ in statement.parameters
        if arguments.get(name) is not None
    )
    record, rows = (
        ("r", "{}({}) AS r") if statement.procedure.name in _INLINED else ("(r.row)", "(SELECT {}({}) AS row) AS r")
    )
    wanted = sql.SQL(", ").join(
        sql.SQL(_SELECTED.get(column.type, "{0}.{1}")).format(sql.SQL(record), sql.Identifier(column.name))
        for column in statement.procedure.result
        if column.name in columns
    )
    query = sql.SQL("SELECT {} FROM " + rows).format(wanted, sql.SQL(function), given)
    with suppress(psycopg.ProgrammingError):
        return query.as_string(connection)
    raise psycopg.DataError(f"{statement.procedure.name}: a value cannot be written as text")
