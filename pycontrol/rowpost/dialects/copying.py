"""Large results out of PostgreSQL: COPY of a procedure's rows, in binary, as chunks of memory instead of rows.

A function in the select list hands its rows on one by one; in FROM the server would store all of them first. So a
row comes as one composite value: the number of its columns, then for each its type, its length and its bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus

from rowpost.dialects import Chunk, Statement

__all__ = ["copy_rows"]

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # signature, flags, length of an extension
_TRAILER = 2  # bytes


def copy_rows(
    connection: psycopg.Connection, statement: Statement, arguments: dict[str, Any], chunk_bytes: int
) -> Iterator[Chunk]:
    """The rows of a procedure in chunks of about so many bytes; a longer row is a chunk of its own.

    Raises:
        psycopg.Error: what the server said, also in the middle.
    """
    pgconn = connection.pgconn
    result = pgconn.exec_(_copy(connection, statement, arguments).encode())
    if result.status != ExecStatus.COPY_OUT:
        raise error_from_result(result)
    try:
        yield from _chunks(pgconn, chunk_bytes)
    except GeneratorExit:  # the reader has enough: the rest is not worth its way
        connection.close()
        raise


def _chunks(pgconn: Any, chunk_bytes: int) -> Iterator[Chunk]:
    """This loop runs once a row: it does nothing that could be done once a chunk."""
    fetch = pgconn.get_copy_data
    buffer, used, starts = bytearray(chunk_bytes), 0, array("q")
    length, data = fetch(0)
    if length > 0:
        data = bytes(data).removeprefix(_HEADER)
        length = len(data)
    while length >= 0:
        end = used + length
        if end > chunk_bytes:
            if starts:
                yield Chunk(memoryview(buffer)[:used], starts)
                used, starts, end = 0, array("q"), length
            if length > chunk_bytes:
                yield Chunk(memoryview(data), array("q", [0]))
                length, data = fetch(0)
                continue
        if length > _TRAILER:
            buffer[used:end] = data
            starts.append(used)
            used = end
        length, data = fetch(0)
    _finish(pgconn)
    if starts:
        yield Chunk(memoryview(buffer)[:used], starts)


def _finish(pgconn: Any) -> None:
    """Reads how the COPY ended: an error in its middle comes now."""
    failed = None
    while (result := pgconn.get_result()) is not None:
        if result.status != ExecStatus.COMMAND_OK:
            failed = failed or result
    if failed is not None:
        raise error_from_result(failed)
    if pgconn.status == ConnStatus.BAD:
        raise psycopg.OperationalError(pgconn.get_error_message())


def _copy(connection: psycopg.Connection, statement: Statement, arguments: dict[str, Any]) -> str:
    """COPY takes no parameters: values are quoted by libpq."""
    function = statement.text.partition(" FROM ")[2].partition("(")[0]
    given = sql.SQL(", ").join(
        sql.SQL("p_{} => {}").format(sql.SQL(name), sql.Literal(arguments[name]))
        for name, _ in statement.parameters
        if arguments.get(name) is not None
    )
    query = sql.SQL("COPY (SELECT {}({})) TO STDOUT (FORMAT binary)").format(sql.SQL(function), given)
    with suppress(psycopg.ProgrammingError):
        return query.as_string(connection)
    raise psycopg.DataError(f"{statement.procedure.name}: a value cannot be written as text")
