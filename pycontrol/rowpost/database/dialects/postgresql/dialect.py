"""PostgreSQL through psycopg 3: connections and errors are the driver's, calls go straight through its libpq."""

from __future__ import annotations

import datetime
import secrets
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, NoReturn
from uuid import UUID

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus

from rowpost.database.contract import Procedure
from rowpost.database.dialects.postgresql import asynchronous, libpq, pooling, session
from rowpost.database.dialects.postgresql import checks as server_checks
from rowpost.database.dialects.postgresql.copying import copy_rows
from rowpost.database.dialects.postgresql.errors import translate
from rowpost.database.dialects.postgresql.guarding import HandlerGuard
from rowpost.database.dialects.postgresql.session import open_connection
from rowpost.database.dialects.protocol import Begin, Commit, Statement, object_name, statement_of
from rowpost.errors import SettingsError, UnsupportedServer
from rowpost.settings.target import is_unambiguous, why_unreadable

__all__ = ["POSTGRESQL", "PostgreSQL"]

_TYPES = {
    "string": "text",
    "strings": "text[]",
    "text": "text",
    "binary": "bytea",
    "uuid": "uuid",
    "integer": "integer",
    "bigint": "bigint",
    "boolean": "boolean",
    "timestamp": "timestamp",
}
_MESSAGE_ARRAYS = ("text[]", "bytea[]", "uuid[]", "bigint[]")  # headers, bodies, ids, times to be received
# A cursor WITH HOLD is carried out at COMMIT, and this one fails: without CLOSE the transaction cannot be committed, by
# whatever way a COMMIT comes. CLOSE fails if another transaction was begun meanwhile, and if CLOSE ALL has removed the
# guard. The name is random, so that no handler makes another cursor of that name.
_GUARD = f"rowpost_guard_{secrets.token_hex(8)}"
_COMMIT_GUARD = (
    f"DECLARE {_GUARD} CURSOR WITH HOLD FOR SELECT pg_catalog.set_config("
    "'rowpost: a handler may not commit the transaction that it was lent', '', true)"
).encode()
_NO_CURSOR = "34000"
_BEGIN: dict[Begin, tuple[bytes, ...]] = {False: (), True: (b"BEGIN",), "commit_guarded": (b"BEGIN", _COMMIT_GUARD)}
_COMMIT: dict[Commit, tuple[bytes, ...]] = {
    False: (),
    True: (b"COMMIT",),
    "commit_guarded": (f"CLOSE {_GUARD}".encode(), b"COMMIT"),
}


class PostgreSQL:
    """The dialect of PostgreSQL 14 and later."""

    name = "postgresql"

    translate = staticmethod(translate)
    encoding_limits = staticmethod(server_checks.encoding_limits)
    check_deployable = staticmethod(server_checks.check_encoding)
    checks = staticmethod(server_checks.checks)

    def __init__(self) -> None:
        #: URLs whose connections have a session each
        self._checked: set[str] = set()

    def connect(self, url: str, application_name: str) -> psycopg.Connection:
        if not is_unambiguous(
            url
        ):  # libpq's words would contain parts of it, and so would a search for the host's address
            raise SettingsError(why_unreadable(url))
        try:
            connection = open_connection(url, application_name)
        except psycopg.ProgrammingError:
            raise SettingsError(why_unreadable(url)) from None
        except psycopg.Error as error:
            raise self.translate(error) from error
        try:
            if url not in self._checked:
                if pooling.is_pooled(connection):
                    session.by_command(connection, url)
                    pooling.check_sessions(connection, lambda: open_connection(url, application_name))
                self._checked.add(url)
        except psycopg.Error as error:
            connection.close()
            raise self.translate(error) from error
        except UnsupportedServer:
            connection.close()
            raise
        libpq.keeps_prepared(connection)
        return connection

    def session(self, connection: psycopg.Connection) -> psycopg.Connection:
        """Return the connection itself: libpq keeps the names of prepared statements by it."""
        return connection

    def spell(self, procedure: Procedure, queue: str | None, key: str | None) -> Statement:
        types: list[str] = []
        for parameter in procedure.parameters_on(self.name):
            types += _MESSAGE_ARRAYS if parameter.type == "messages" else [_TYPES[parameter.type]]
        placeholders = ", ".join(f"${number}::{type_name}" for number, type_name in enumerate(types, 1))
        columns = ", ".join(column.name for column in procedure.result)
        call = f"{object_name(self, procedure, key)}({placeholders})"
        return statement_of(
            self.name, procedure, queue, key, f"SELECT {columns} FROM {call}" if columns else f"SELECT {call}"
        )

    def execute(
        self, session: psycopg.Connection, statement: Statement, arguments: dict[str, Any], begin: Begin
    ) -> list[Any]:
        try:
            if begin:
                return self.execute_all(session, [(statement, arguments)], begin, False)[0]
            self.join(session)
            rows = libpq.call(session, _call(statement, arguments))
        except (psycopg.errors.CharacterNotInRepertoire, psycopg.errors.UntranslatableCharacter):
            if not _reads_headers(session, statement, begin):
                raise
            rows = _read_unconverted(session, _call(statement, arguments), begin)
        if statement.order is not None:
            rows.sort(key=statement.order)
        return rows

    def execute_all(
        self,
        session: psycopg.Connection,
        calls: Sequence[tuple[Statement, dict[str, Any]]],
        begin: Begin,
        commit: Commit,
    ) -> list[list[Any]]:
        if begin:
            _check_not_nested(session)
        else:
            self.join(session)
        if commit:
            _check_committable(session)
        spelt = [_call(*each) for each in calls]
        found = libpq.call_all(session, spelt, before=_BEGIN[begin], after=_COMMIT[commit])
        for (statement, _), rows in zip(calls, found, strict=True):
            if statement.order is not None:
                rows.sort(key=statement.order)
        return found

    def stream(
        self,
        session: psycopg.Connection,
        statement: Statement,
        arguments: dict[str, Any],
        columns: Sequence[str],
        chunk_bytes: int,
    ) -> Iterator[Any]:
        return copy_rows(
            session, object_name(self, statement.procedure, statement.key), statement, arguments, columns, chunk_bytes
        )

    def script(self, connection: psycopg.Connection, text: str) -> list[tuple[Any, ...]]:
        cursor = connection.execute(text, prepare=False)
        return cursor.fetchall() if cursor.pgresult and cursor.pgresult.status == ExecStatus.TUPLES_OK else []

    def begin(self, connection: psycopg.Connection) -> None:
        _check_not_nested(connection)
        libpq.command(connection, b"BEGIN")

    def join(self, connection: psycopg.Connection) -> bool:
        if connection.autocommit:
            return False
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            connection.execute("SELECT 1")  # psycopg's BEGIN bears the isolation level and more
        return True

    def commit(self, connection: psycopg.Connection) -> None:
        _check_committable(connection)
        libpq.command(connection, b"COMMIT")

    def rollback(self, connection: psycopg.Connection) -> None:
        connection.rollback()

    def savepoint(self, connection: psycopg.Connection, name: str) -> None:
        connection.execute(f"SAVEPOINT {name}")

    def rollback_to(self, connection: psycopg.Connection, name: str) -> None:
        connection.execute(f"ROLLBACK TO SAVEPOINT {name}")

    def release(self, connection: psycopg.Connection, name: str) -> None:
        connection.execute(f"RELEASE SAVEPOINT {name}")

    def in_transaction(self, connection: psycopg.Connection) -> bool:
        return connection.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def left_open(self, connection: psycopg.Connection) -> bool:
        return self.in_transaction(connection)

    def is_intact(self, connection: psycopg.Connection, begin: Begin) -> bool:
        return connection.pgconn.transaction_status == TransactionStatus.INTRANS

    def found_no_transaction(self, error: BaseException | None) -> bool:
        return getattr(error, "sqlstate", None) == _NO_CURSOR and _GUARD in str(error)

    def was_replaced(self, connection: psycopg.Connection) -> bool:
        """Return whether the transaction is another one. One in which a statement failed cannot be asked."""
        try:
            if connection.pgconn.transaction_status == TransactionStatus.INTRANS:
                libpq.command(connection, _COMMIT["commit_guarded"][0])
        except psycopg.errors.InvalidCursorName:
            return True
        return False

    def is_closed(self, connection: psycopg.Connection) -> bool:
        return connection.closed or connection.broken

    def clock(self, connection: psycopg.Connection) -> float:
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        return 0.0 if row is None else float(row[0])

    def session_limits(self, connection: psycopg.Connection) -> list[str]:
        return [f"{found}: {advice}" for found, advice in server_checks.session_limits(connection)]

    def connection_limit(self, connection: psycopg.Connection) -> int:
        row = connection.execute(server_checks.CONNECTION_LIMIT, prepare=False).fetchone()
        return 0 if row is None else int(row[0])

    def was_started(self, connection: psycopg.Connection, seconds: float) -> bool:
        row = connection.execute(
            "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) < %s", (seconds,)
        ).fetchone()
        return row == (True,)

    def listen(self, connection: psycopg.Connection) -> bool:
        # the connection is rowpost's own: `pooling` has checked that it keeps its session
        connection.execute("LISTEN rowpost", prepare=False)
        return True

    def reset_session(self, connection: psycopg.Connection, changed: Collection[str]) -> None:
        if "prepared" in changed:
            libpq.forget_prepared(connection)
        if (
            connection.pgconn.transaction_status != TransactionStatus.INERROR
        ):  # the rollback resets what this transaction set
            session.reset(connection)

    def limit_lock_waits(self, connection: psycopg.Connection, milliseconds: int | None) -> None:
        connection.execute(
            "RESET lock_timeout" if milliseconds is None else f"SET lock_timeout = {milliseconds:d}", prepare=False
        )

    def limit_statements(self, connection: psycopg.Connection, milliseconds: int) -> None:
        connection.execute(f"SET statement_timeout = {milliseconds:d}", prepare=False)

    def executable(self, connection: psycopg.Connection, procedures: Sequence[str]) -> set[str]:
        return {name for (name,) in connection.execute(server_checks.EXECUTABLE, (list(procedures),)).fetchall()}

    def heard(self, connection: psycopg.Connection) -> list[str]:
        pgconn = connection.pgconn
        with connection.lock:
            pgconn.consume_input()
            found: dict[str, None] = {}  # many senders may notify of one queue
            while (notify := pgconn.notifies()) is not None:
                found[notify.extra.decode()] = None
        return list(found)

    def driver_error(self) -> type[Exception]:
        return psycopg.Error

    def guard(
        self,
        connection: psycopg.Connection,
        refuse: Callable[[str], NoReturn] | None,
        refuse_late: Callable[[Any], NoReturn],
    ) -> HandlerGuard:
        return HandlerGuard(connection, refuse, refuse_late)

    def cut(self, connection: psycopg.Connection) -> None:
        with (
            suppress(OSError, psycopg.Error),
            socket.fromfd(connection.pgconn.socket, socket.AF_INET, socket.SOCK_STREAM) as duplicate,
        ):
            duplicate.shutdown(socket.SHUT_RDWR)

    def asynchronous(self, connection: psycopg.Connection) -> psycopg.AsyncConnection:
        return asynchronous.view(connection)

    def database_name(self, connection: psycopg.Connection) -> str:
        return connection.info.dbname

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def literal(self, value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, str | UUID | datetime.datetime):
            return "'" + str(value).replace("'", "''") + "'"
        raise TypeError(f"no literal for {type(value)}")

    def script_call(self, procedure: Procedure, arguments: Sequence[tuple[str, Any]]) -> str:
        given = ", ".join(f"p_{name} => {self.literal(value)}" for name, value in arguments)
        return f"SELECT {object_name(self, procedure, None)}({given});"


#: every connection of the process uses this one, so that a pooler is examined once for each URL
POSTGRESQL = PostgreSQL()


def _reads_headers(connection: psycopg.Connection, statement: Statement, begin: Begin) -> bool:
    """Return whether a call that failed because of a character can be repeated: it returns headers, and no transaction
    was open before it.
    """
    returned = any(column.name == "headers" for column in statement.procedure.result)
    return (
        returned
        and not connection.broken
        and (bool(begin) or connection.pgconn.transaction_status == TransactionStatus.IDLE)
    )


def _read_unconverted(connection: psycopg.Connection, call: libpq.PreparedCall, begin: Begin) -> list[Any]:
    """Repeat a call without conversion, so that one row that is not UTF-8 does not hide the others.

    The transaction is open if `begin` says so.
    """
    connection.rollback()
    try:
        rows = libpq.call_unconverted(connection, call, _BEGIN[begin or True])
        if not begin:
            libpq.command(connection, b"COMMIT")
    except psycopg.Error:
        if not begin:
            connection.rollback()
        raise
    return rows


def _check_not_nested(connection: psycopg.Connection) -> None:
    """Close a connection on which somebody left a transaction open. PostgreSQL only warns of a BEGIN there, and the
    COMMIT that follows would commit what was left, for example the removal of a message whose handler failed."""
    if connection.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        connection.close()
        raise psycopg.errors.ActiveSqlTransaction(
            "A transaction cannot begin on a connection that has one open: the open one was not committed, and the "
            "connection is closed"
        )


def _check_committable(connection: psycopg.Connection) -> None:
    """Raise if a statement of the transaction has failed: a COMMIT would roll back without an error."""
    if connection.pgconn.transaction_status == TransactionStatus.INERROR:
        connection.rollback()
        raise psycopg.errors.InFailedSqlTransaction(
            "The transaction could not be committed: a statement in it had failed, and the error was not passed on"
        )


def _call(statement: Statement, arguments: dict[str, Any]) -> libpq.PreparedCall:
    parameters: list[tuple[str, Any]] = []
    for name, kind in statement.parameters:
        value: Any = arguments.get(name)
        if kind == "messages":
            parameters += _message_arrays(value)
        elif kind == "strings":
            packed = None if value is None else libpq.pack_array("text", [text.encode() for text in value])
            parameters.append(("array", packed))
        else:
            parameters.append((kind, value))
    return libpq.PreparedCall(statement.text, parameters, statement.result_types, statement.make_row)


def _message_arrays(messages: Sequence[Any]) -> list[tuple[str, bytes | None]]:
    """Rows turned into the function's arrays; an array that would be all null is left out."""
    ids = [m.id and m.id.bytes for m in messages]
    times = [libpq.pack_bigint(m.time_to_be_received_ms) for m in messages]
    return [
        ("array", libpq.pack_array("text", [m.raw_headers.encode() for m in messages])),
        ("array", libpq.pack_array("bytea", [m.body for m in messages])),
        ("array", libpq.pack_array("uuid", ids) if any(ids) else None),
        ("array", libpq.pack_array("int8", times) if any(times) else None),
    ]
