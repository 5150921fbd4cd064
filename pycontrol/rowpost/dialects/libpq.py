"""The hot path on PostgreSQL: prepared calls straight through libpq, in binary, one blocking wait a round trip.

psycopg's cursors wait without blocking, adapt every value by its type and keep books; around a durable commit that
costs a third of a one-by-one send (benchmarks/queue.py). The contract knows every type already, so that a call here
is: encode, PQexecPrepared, decode. Errors are psycopg's own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus

__all__ = ["call", "command", "pack_array", "pack_bigint"]

_INT4, _INT8 = struct.Struct("!i"), struct.Struct("!q")
_ARRAY_HEAD = struct.Struct("!iiIii").pack  # dimensions, has nulls, element's oid, length, lower bound
_NULL = _INT4.pack(-1)
_EPOCH = datetime(2000, 1, 1)  # noqa: DTZ001 -- the columns hold UTC without saying so
_TYPES = psycopg.postgres.types

ENCODE: dict[str, Callable[[Any], bytes]] = {
    "string": str.encode,
    "text": str.encode,
    "binary": bytes,
    "uuid": lambda value: value.bytes,
    "integer": _INT4.pack,
    "bigint": _INT8.pack,
    "boolean": lambda value: b"\x01" if value else b"\x00",
    "array": bytes,
}
DECODE: dict[str, Callable[[bytes], Any]] = {
    "string": bytes.decode,
    "text": bytes.decode,
    "binary": bytes,
    "uuid": lambda data: UUID(bytes=data),
    "integer": lambda data: _INT4.unpack(data)[0],
    "bigint": lambda data: _INT8.unpack(data)[0],
    "boolean": lambda data: data == b"\x01",
    "timestamp": lambda data: _EPOCH + timedelta(microseconds=_INT8.unpack(data)[0]),
}
#: which statements a connection has prepared already
_prepared: WeakKeyDictionary[psycopg.Connection, set[bytes]] = WeakKeyDictionary()


def call(
    connection: psycopg.Connection,
    text: str,
    parameters: Sequence[tuple[str, Any]],
    result_types: Sequence[str],
    begin: bool = False,
) -> list[tuple]:
    """Executes a statement with $1, $2, … and returns its rows.

    Args:
        connection: psycopg's; used for this call alone while it runs.
        text: the statement, prepared at its first use on this connection.
        parameters: (type in ENCODE, value or None), in order.
        result_types: types in DECODE, one per column.
        begin: open a transaction in the same round trip.

    Raises:
        psycopg.Error: what the server said.
        psycopg.DataError: a number does not fit its type.
    """
    values = [None if value is None else _encode(kind, value) for kind, value in parameters]
    with connection.lock:
        pgconn = connection.pgconn
        if pgconn.pipeline_status != PipelineStatus.OFF:
            raise psycopg.ProgrammingError("The connection is inside psycopg's pipeline(): leave it before calling rowpost")
        name = _prepare(connection, text)
        formats = [1] * len(values)
        if begin:
            result = _begin_and_execute(pgconn, name, values, formats)
        else:
            result = pgconn.exec_prepared(name, values, formats, 1)
        return _rows(pgconn, result, result_types)


def command(connection: psycopg.Connection, text: bytes) -> None:
    """Executes a statement without parameters or rows, such as COMMIT."""
    with connection.lock:
        _check(connection.pgconn, connection.pgconn.exec_(text))


def _encode(kind: str, value: Any) -> bytes:
    try:
        return ENCODE[kind](value)
    except struct.error as error:
        raise psycopg.errors.NumericValueOutOfRange(f"{value} does not fit the database's {kind}") from error
    except (TypeError, AttributeError, UnicodeEncodeError) as error:
        raise psycopg.DataError(f"{value!r:.60} is no {kind}: {error}") from error


def _prepare(connection: psycopg.Connection, text: str) -> bytes:
    names = _prepared.get(connection)
    if names is None:
        names = _prepared[connection] = set()
    name = b"" if connection.prepare_threshold is None else b"rowpost_%x" % (hash(text) & 0xFFFFFFFFFFFFFFFF)
    if name and name in names:
        return name
    _check(connection.pgconn, connection.pgconn.prepare(name, text.encode()))
    names.add(name)
    return name


def _begin_and_execute(pgconn: Any, name: bytes, values: list[bytes | None], formats: list[int]) -> Any:
    """BEGIN and the statement leave together and are answered together."""
    pgconn.enter_pipeline_mode()
    try:
        pgconn.send_query_params(b"BEGIN", None)
        pgconn.send_query_prepared(name, values, formats, 1)
        pgconn.pipeline_sync()
        results = []
        while (result := pgconn.get_result()) is None or result.status != ExecStatus.PIPELINE_SYNC:
            if result is not None:
                results.append(result)
            elif pgconn.status == ConnStatus.BAD:
                break
    finally:
        if pgconn.status == ConnStatus.OK:
            pgconn.exit_pipeline_mode()
    if not results:
        raise psycopg.OperationalError(pgconn.get_error_message() or "the connection is lost")
    _check(pgconn, results[0])
    return results[-1]


def _check(pgconn: Any, result: Any) -> None:
    if result.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        return
    if pgconn.status == ConnStatus.BAD:
        raise psycopg.OperationalError(result.get_error_message() or pgconn.get_error_message())
    raise error_from_result(result)


def _rows(pgconn: Any, result: Any, types: Sequence[str]) -> list[tuple]:
    _check(pgconn, result)
    if not types:
        return []
    get = result.get_value
    decoders = [DECODE[kind] for kind in types]
    return [
        tuple(
            None if (data := get(row, column)) is None else decode(data) for column, decode in enumerate(decoders)
        )
        for row in range(result.ntuples)
    ]


def pack_array(element: str, items: Sequence[bytes | None]) -> bytes:
    """Elements in their binary form as the binary form of an array of text, bytea, uuid or int8."""
    parts = [_ARRAY_HEAD(1 if items else 0, None in items, _TYPES[element].oid, len(items), 1)]
    pack = _INT4.pack
    for item in items:
        parts += (_NULL,) if item is None else (pack(len(item)), item)
    return b"".join(parts)


def pack_bigint(value: int | None) -> bytes | None:
    """One element of an array of int8."""
    return None if value is None else _encode("bigint", value)
