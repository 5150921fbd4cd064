"""The hot path on PostgreSQL: prepared calls straight through libpq, in binary, one blocking wait a round trip.

psycopg's cursors wait without blocking, adapt every value by its type and keep books; around a durable commit that
costs a third of a one-by-one send (benchmarks, workload calls). The contract knows every type already, so that a call
here is: encode, PQexecPrepared, decode. Errors are psycopg's own.
"""

from __future__ import annotations

import select
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID, SafeUUID
from weakref import WeakKeyDictionary

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, PipelineStatus

from rowpost.database.moments import moment

__all__ = [
    "PreparedCall",
    "call",
    "call_all",
    "call_unconverted",
    "command",
    "forget_prepared",
    "keeps_prepared",
    "pack_array",
    "pack_bigint",
]

_INT4, _INT8 = struct.Struct("!i"), struct.Struct("!q")
_ARRAY_HEAD = struct.Struct("!iiIii").pack  # dimensions, has nulls, element's oid, length, lower bound
_EMPTY_ARRAY = struct.Struct("!iiI").pack  # without dimensions
_NULL = _INT4.pack(-1)
_TYPES = psycopg.postgres.types
_UNKNOWN = SafeUUID.unknown  # an enumeration looks its members up each time
_SUCCEEDED = (int(ExecStatus.COMMAND_OK), int(ExecStatus.TUPLES_OK))


def _uuid(data: bytes) -> UUID:
    """UUID(bytes=data), which checks what the server has checked, in a third of its time."""
    made = object.__new__(UUID)
    object.__setattr__(made, "int", int.from_bytes(data, "big"))
    object.__setattr__(made, "is_safe", _UNKNOWN)
    return made


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
    "uuid": _uuid,
    "integer": lambda data: _INT4.unpack(data)[0],
    "bigint": lambda data: _INT8.unpack(data)[0],
    "boolean": lambda data: data == b"\x01",
    "timestamp": lambda data: moment(_INT8.unpack(data)[0]),
}
#: which statements a connection has prepared already
_prepared: WeakKeyDictionary[psycopg.Connection, set[bytes]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A statement with $1, $2, …, its (type in ENCODE, value or None) pairs, and the types in DECODE of its columns."""

    text: str
    parameters: Sequence[tuple[str, Any]]
    result_types: Sequence[str]
    make_row: Callable[[Iterable[Any]], Any]


def call(connection: psycopg.Connection, statement: PreparedCall, encoding: str = "utf-8") -> list[Any]:
    """Execute one statement, prepared at its first use on this connection, and return its rows.

    Args:
        encoding: Python's name of the encoding of the result's texts.

    Raises:
        psycopg.Error: what the server said; psycopg.DataError where a value does not fit its type.
    """
    values = _values(statement)
    with connection.lock:
        name = _prepare(connection, statement.text)
        formats = [1] * len(values)
        if name is None:
            result = connection.pgconn.exec_params(statement.text.encode(), values, None, formats, 1)
        else:
            result = connection.pgconn.exec_prepared(name, values, formats, 1)
        _check(connection.pgconn, result)
        return _rows(result, statement, encoding)


def call_unconverted(connection: psycopg.Connection, statement: PreparedCall, before: Sequence[bytes]) -> list[Any]:
    r"""Begin a transaction and execute a statement whose texts the server cannot convert to UTF-8; bytes that are no
    text become `\xfc`.

    Args:
        before: the commands that begin the transaction, which stays open.

    Raises:
        psycopg.Error: what the server said.
    """
    for text in before:
        command(connection, text)
    command(
        connection,
        b"SELECT pg_catalog.set_config('client_encoding', pg_catalog.current_setting('server_encoding'), true)",
    )
    encoding = connection.info.encoding
    rows = call(
        connection, statement, "utf-8" if encoding == "ascii" else encoding
    )  # SQL_ASCII holds what clients sent
    command(connection, b"SET LOCAL client_encoding TO 'UTF8'")
    return rows


def call_all(
    connection: psycopg.Connection,
    statements: Sequence[PreparedCall],
    *,
    before: Sequence[bytes] = (),
    after: Sequence[bytes] = (),
) -> list[list[Any]]:
    """Execute statements in one round trip and return the rows of each.

    `before` and `after` are commands around them, such as BEGIN and COMMIT. After an error nothing that follows it is
    executed, the COMMIT included: the transaction is left for the caller to roll back.

    Raises:
        psycopg.Error: what the server said of the first one that failed; its `failed_call` is that one's place.
    """
    encoded = [_values(statement) for statement in statements]
    with connection.lock:
        pgconn = connection.pgconn
        names: list[bytes | None] = []
        try:
            for statement in statements:
                names.append(_prepare(connection, statement.text))
        except psycopg.Error as error:
            error.failed_call = len(names)  # type: ignore[attr-defined]
            raise
        pgconn.enter_pipeline_mode()
        try:
            for text in before:
                pgconn.send_query_params(text, None)
            for statement, name, values in zip(statements, names, encoded, strict=True):
                formats = [1] * len(values)
                if name is None:
                    pgconn.send_query_params(statement.text.encode(), values, None, formats, 1)
                else:
                    pgconn.send_query_prepared(name, values, formats, 1)
            for text in after:
                pgconn.send_query_params(text, None)
            pgconn.pipeline_sync()
            results = _results(pgconn)
        finally:
            if pgconn.status == ConnStatus.OK:
                pgconn.exit_pipeline_mode()
        if not results:
            raise psycopg.OperationalError(pgconn.get_error_message() or "the connection is lost")
        for place, result in enumerate(results, start=-len(before)):
            if result.status not in _SUCCEEDED:
                failed = _error(pgconn, result)
                failed.failed_call = place  # type: ignore[attr-defined]
                raise failed
        return [_rows(r, s) for r, s in zip(results[len(before) :], statements, strict=False)]


def _results(pgconn: Any) -> list[Any]:
    """All results up to the end of the pipeline; libpq puts a None after each command's."""
    results = []
    while pgconn.status == ConnStatus.OK:
        _wait(pgconn)
        result = pgconn.get_result()
        if result is None:
            continue
        if result.status == ExecStatus.PIPELINE_SYNC:
            break
        results.append(result)
    return results


def _wait(pgconn: Any) -> None:
    """Until a result is here. get_result would wait too, but with the interpreter's lock: no other thread would run.

    psycopg's connections do not block: what the socket did not take at once is still to be sent.
    """
    while (unsent := pgconn.flush()) or pgconn.is_busy():
        try:
            _ready(pgconn.socket, writable=bool(unsent))
        except BaseException:  # Ctrl+C: what the server still sends has no reader any more
            pgconn.finish()
            raise
        try:
            pgconn.consume_input()
        except psycopg.OperationalError:
            if pgconn.status == ConnStatus.OK:
                raise
            return  # what the server said before it closed the connection is the next result


def _ready(socket: int, *, writable: bool) -> None:
    """Wait until the socket can be read from; with `writable`, or written to."""
    if sys.platform == "win32":
        select.select([socket], [socket] if writable else [], [])
        return
    poll = select.poll()  # select knows no descriptor above 1023
    poll.register(socket, select.POLLIN | (select.POLLOUT if writable else 0))
    poll.poll()


def _values(statement: PreparedCall) -> list[Any]:
    return [None if value is None else _encode(kind, value) for kind, value in statement.parameters]


def command(connection: psycopg.Connection, text: bytes) -> None:
    """Execute a statement without parameters or rows, such as COMMIT."""
    with connection.lock:
        _check(connection.pgconn, connection.pgconn.exec_(text))


def _encode(kind: str, value: Any) -> bytes:
    try:
        return ENCODE[kind](value)
    except struct.error as error:
        raise psycopg.errors.NumericValueOutOfRange(f"{value} does not fit the database's {kind}") from error
    except (TypeError, AttributeError, UnicodeEncodeError) as error:
        raise psycopg.DataError(f"{value!r:.60} is no {kind}: {error}") from error


def keeps_prepared(connection: psycopg.Connection) -> None:
    """Prepare the calls on this connection once, and keep them.

    For connections that rowpost opened: the driver must not prepare on its own there (prepare_threshold None), for
    after a rollback it would deallocate everything, ours included.
    """
    connection.prepare_threshold = None
    _prepared[connection] = set()


def forget_prepared(connection: psycopg.Connection) -> None:
    """Prepare each statement again, because all were deallocated."""
    if connection in _prepared:
        _prepared[connection].clear()


def _prepare(connection: psycopg.Connection, text: str) -> bytes | None:
    """Return the name under which a statement is prepared; None on a connection that was lent: there it is parsed each
    time.
    """
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise psycopg.ProgrammingError("The connection is inside psycopg's pipeline(): leave it before calling rowpost")
    names = _prepared.get(connection)
    if names is None:
        _check_encoding(connection.pgconn)
        return None
    name = b"rowpost_%x" % (hash(text) & 0xFFFFFFFFFFFFFFFF)
    if name in names:
        return name
    _check(connection.pgconn, connection.pgconn.prepare(name, text.encode()))
    names.add(name)
    return name


def _check_encoding(pgconn: Any) -> None:
    """Refuse a lent connection whose texts are not UTF-8, as rowpost's are: they would be stored as other characters,
    without an error.
    """
    encoding = (pgconn.parameter_status(b"client_encoding") or b"UTF8").decode()
    if encoding != "UTF8":
        raise psycopg.NotSupportedError(
            f"The lent connection has client_encoding {encoding}, and rowpost reads and writes UTF-8. Nothing was read "
            "or written. Open it with client_encoding=utf8, or execute on it: SET client_encoding TO 'UTF8'"
        )


def _check(pgconn: Any, result: Any) -> None:
    if result.status not in _SUCCEEDED:
        raise _error(pgconn, result)


def _error(pgconn: Any, result: Any) -> psycopg.Error:
    # libpq may call a connection intact although it could not send: every error of the server has a code, libpq's own
    # have none
    if result.error_field(DiagnosticField.SQLSTATE):
        return error_from_result(result)
    if pgconn.status == ConnStatus.BAD:  # begins with what the server said before it closed the connection
        return psycopg.OperationalError(pgconn.get_error_message() or result.get_error_message())
    return psycopg.OperationalError(result.get_error_message() or pgconn.get_error_message())


def _rows(result: Any, statement: PreparedCall, encoding: str = "utf-8") -> list[Any]:
    if not statement.result_types:
        return []
    get, rows = result.get_value, range(result.ntuples)
    columns = []
    for column, kind in enumerate(statement.result_types):
        decode = (
            DECODE[kind] if encoding == "utf-8" or DECODE[kind] is not bytes.decode else partial(_readable, encoding)
        )
        try:
            columns.append([None if (data := get(row, column)) is None else decode(data) for row in rows])
        except UnicodeDecodeError:  # of a column of texts: the others of its rows are readable
            columns.append([None if (data := get(row, column)) is None else _readable(encoding, data) for row in rows])
    return list(map(statement.make_row, zip(*columns, strict=True)))


def _readable(encoding: str, data: bytes) -> str:
    r"""Return a text whose bytes that are no character stand as `\xfc`.

    No JSON has this escape: such headers are corrupt.
    """
    return bytes(data).decode(encoding, "backslashreplace")


def pack_array(element: str, items: Sequence[bytes | None]) -> bytes:
    """Elements in their binary form as the binary form of an array of text, bytea, uuid or int8."""
    if not items:
        return _EMPTY_ARRAY(0, 0, _TYPES[element].oid)
    parts = [_ARRAY_HEAD(1, None in items, _TYPES[element].oid, len(items), 1)]
    pack = _INT4.pack
    for item in items:
        parts += (_NULL,) if item is None else (pack(len(item)), item)
    return b"".join(parts)


def pack_bigint(value: int | None) -> bytes | None:
    """One element of an array of int8."""
    return None if value is None else _encode("bigint", value)
