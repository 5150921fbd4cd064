"""SQL Server (and engines that speak TDS) through pyodbc and Microsoft's ODBC driver.

The driver is looked for on the system (18, 17, FreeTDS) and then in the wheel mssql-python-odbc, so that pip alone
makes a working client. What has parameters runs as a procedure call of its own (sp_prepexec), which must end with as
many transactions as it began with, or the server raises error 266. Therefore BEGIN and COMMIT are in one batch with the calls
between them if both are needed. BEGIN is in one batch with calls that need no parameters, and is otherwise sent alone.

A text is the same for each call, or the server would compile and cache every one: row versions, texts and bodies are parameters.
Counts and flags have few values and are part of the text. Nulls are too: see `odbc_session`, which also keeps the statements.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from rowpost.database.contract import Parameter, Procedure
from rowpost.database.dialects import sqlserver_checks
from rowpost.database.dialects.odbc import connection_string, load_pyodbc
from rowpost.database.dialects.odbc_session import Session, all_results, prepare_connection
from rowpost.database.dialects.protocol import Begin, Check, Commit, NoGuard, Statement, row_maker, row_order
from rowpost.database.dialects.sqlserver_errors import translate
from rowpost.errors import DatabaseError, RowpostError, UnsupportedServer

if TYPE_CHECKING:
    import pyodbc

__all__ = ["SQLServer", "check_version"]

Call = tuple[Statement, dict[str, Any]]

#: the driver's type of each parameter, from the header sqlext.h: pyodbc has them too, but is imported at the connection only
_WVARCHAR, _VARBINARY, _GUID, _INTEGER, _BIGINT, _BIT = -9, -3, -11, 4, -5, -7
_SIZES = {
    "text": (_WVARCHAR, 0, 0),
    "binary": (_VARBINARY, 0, 0),
    "string": (_WVARCHAR, 0, 0),
    "strings": (_WVARCHAR, 0, 0),
    "uuid": (_GUID, 16, 0),
    "integer": (_INTEGER, 0, 0),
    "bigint": (_BIGINT, 0, 0),
    "boolean": (_BIT, 0, 0),
}
_CONNECT_TIMEOUT = 10  # seconds
_BATCH_TEXT, _BATCH_PARAMETERS = 3500, 2000  # characters (nvarchar holds 4000), and marks (the server takes 2100)
_CHUNK_ROWS = 5000
_OLDEST, _AZURE = (13, 0, 4001), 12  # 2016 SP1, the first with CREATE OR ALTER; Azure's major version
# Most providers of linked servers want XACT_ABORT for changes within a transaction. A COMMIT ends the innermost of two:
# one that is not ours ends nothing.
# A transaction that is open already was left open by mistake: going on would commit what nobody meant to commit.
_REFUSE_NESTED = (
    "IF @@TRANCOUNT > 0 BEGIN; THROW 50000, N'rowpost: a transaction was left open on this connection; nothing is begun in it', 1; END; "
)
_BEGIN: dict[Begin, str] = {
    True: f"{_REFUSE_NESTED}BEGIN TRANSACTION",
    "distributed": f"{_REFUSE_NESTED}SET XACT_ABORT ON; BEGIN DISTRIBUTED TRANSACTION",
    "commit_guarded": f"{_REFUSE_NESTED}BEGIN TRANSACTION; BEGIN TRANSACTION",
}
_COMMIT: dict[Commit, str] = {
    False: "",
    True: "COMMIT TRANSACTION;",
    "commit_guarded": "COMMIT TRANSACTION; COMMIT TRANSACTION;",
}


# With autocommit off, Microsoft's driver begins a transaction before the next statement, whatever it is. Other drivers set
# IMPLICIT_TRANSACTIONS ON: then a SELECT that reads a table begins one, and a SELECT of a value does not (SET IMPLICIT_TRANSACTIONS,
# Remarks). TOP (1) reads a row; a condition that never holds may be compiled to a plan that reads nothing.
_JOIN = "SELECT TOP (1) @@TRANCOUNT FROM sys.schemas AS s;"


class SQLServer:
    """The dialect of SQL Server 2016 and later."""

    name = "sqlserver"

    def connect(self, url: str, application_name: str) -> pyodbc.Connection:
        text = connection_string(url, application_name)
        pyodbc = load_pyodbc()
        try:
            connection = pyodbc.connect(text, autocommit=True, timeout=_CONNECT_TIMEOUT)
        except pyodbc.Error as error:
            raise self.translate(error) from None  # the driver's own text may hold the connection string
        try:
            check_version(str(connection.getinfo(pyodbc.SQL_DBMS_VER)), lambda: _is_azure(connection))
        except UnsupportedServer:
            connection.close()
            raise
        prepare_connection(connection)
        return connection

    def session(self, connection: pyodbc.Connection) -> Session:
        return Session(connection)

    def spell(self, procedure: Procedure, queue: str | None, key: str | None) -> Statement:
        parameters = procedure.parameters_on(self.name)
        physical = [each for parameter in parameters for each in _physical(parameter)]
        types_of_result = tuple(c.type for c in procedure.result)
        return Statement(
            text=self._exec(procedure, key, ((name, "?") for name, _ in physical)),
            procedure=procedure,
            queue=queue,
            parameters=tuple((p.name, p.type) for p in parameters),
            known=frozenset(p.name for p in procedure.parameters),
            result_types=types_of_result,
            make_row=row_maker(procedure.name, tuple(c.name for c in procedure.result), types_of_result),
            order=row_order(procedure),
            sizes=tuple(_SIZES[kind] for _, kind in physical),
            key=key,
        )

    def execute(self, session: Session, statement: Statement, arguments: dict[str, Any], begin: Begin) -> list[Any]:
        return self.execute_all(session, [(statement, arguments)], begin, False)[0]

    def execute_all(self, session: Session, calls: Sequence[Call], begin: Begin, commit: Commit) -> list[list[Any]]:
        batches = _batched(calls)
        undo = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; "
        if begin and len(batches) == 1 and (commit or _is_plain(batches[0])):
            return self._run(session, batches[0], f"{_BEGIN[begin]};", _COMMIT[commit], undo)
        if begin:
            session.run(f"{_BEGIN[begin]};")
        # Where the transaction is over already, the first COMMIT fails (3902): nothing is sent outside of it.
        head = "IF @@TRANCOUNT = 0 COMMIT TRANSACTION;" if commit else ""
        results = [rows for batch in batches for rows in self._run(session, batch, head)]
        if commit:
            session.run(_COMMIT[commit])
        return results

    def _run(self, session: Session, calls: Sequence[Call], head: str, tail: str = "", undo: str = "") -> list[list[Any]]:
        """Calls in one round trip, between two statements; an error of any of them goes through `undo` and ends it."""
        plain = _is_plain(calls)
        spoken = [(self._literally(*call), (), ()) if plain else self._with_parameters(*call) for call in calls]
        text = " ".join([head, *(each for each, _, _ in spoken), tail])
        if head:
            # A call that finds no procedure, or no right to it, does not end a batch: without TRY the next would run.
            text = f"BEGIN TRY {text} END TRY BEGIN CATCH {undo}THROW; END CATCH;"
        found = iter(session.run(text, [size for _, sizes, _ in spoken for size in sizes], [value for *_, values in spoken for value in values]))
        results = [list(map(each.make_row, next(found, []))) if each.procedure.result else [] for each, _ in calls]
        for (statement, _), rows in zip(calls, results, strict=True):
            if statement.order is not None:
                rows.sort(key=statement.order)
        return results

    def _literally(self, statement: Statement, arguments: dict[str, Any]) -> str:
        given = ((name, self.literal(arguments.get(name))) for name, _ in statement.parameters)
        return self._exec(statement.procedure, statement.key, given)

    def _with_parameters(self, statement: Statement, arguments: dict[str, Any]) -> tuple[str, Sequence[Any], Sequence[Any]]:
        """The text of a call with a mark for each value that is not null, the driver's types of these values, and the values."""
        values = _values(statement, arguments)
        if None not in values:
            return statement.text, statement.sizes, values
        names = [name for each in statement.procedure.parameters_on(self.name) for name, _ in _physical(each)]
        text = self._exec(statement.procedure, statement.key, zip(names, ("NULL" if value is None else "?" for value in values), strict=True))
        sizes = [size for size, value in zip(statement.sizes, values, strict=True) if value is not None]
        return text, sizes, [value for value in values if value is not None]

    def stream(
        self, session: Session, statement: Statement, arguments: dict[str, Any], columns: Sequence[str], chunk_bytes: int
    ) -> Iterator[list[tuple]]:
        with closing(session.connection.cursor()) as cursor:
            cursor.setinputsizes(list(statement.sizes))
            cursor.execute(statement.text, _values(statement, arguments))
            while cursor.description is None and cursor.nextset():
                pass
            rows, size = [], 0
            for row in cursor:
                rows.append(tuple(row))
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
                if size >= chunk_bytes or len(rows) >= _CHUNK_ROWS:
                    yield rows
                    rows, size = [], 0
            cursor.nextset()  # an error that follows the rows must surface
            if rows:
                yield rows

    def script(self, connection: pyodbc.Connection, text: str) -> list[tuple]:
        with closing(connection.cursor()) as cursor:  # a cursor as a block would commit
            cursor.execute(text)
            return [tuple(row) for row in (all_results(cursor) or [[]])[-1]]

    def begin(self, connection: pyodbc.Connection) -> None:
        connection.execute(f"{_BEGIN[True]};").close()

    def join(self, connection: pyodbc.Connection) -> bool:
        if connection.autocommit:
            return False
        if not connection.execute(_JOIN).fetchval():
            raise DatabaseError(
                "The lent connection has autocommit off, but no transaction: a COMMIT or ROLLBACK in T-SQL has probably ended the one "
                "that its driver had begun. Call commit() or rollback() of the connection instead of these statements, or lend a "
                "connection with autocommit=True."
            )
        return True

    def commit(self, connection: pyodbc.Connection) -> None:
        connection.execute(_COMMIT[True]).close()

    def rollback(self, connection: pyodbc.Connection) -> None:
        connection.execute("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;").close()

    def savepoint(self, connection: pyodbc.Connection, name: str) -> None:
        connection.execute(f"SAVE TRANSACTION {name};").close()

    def rollback_to(self, connection: pyodbc.Connection, name: str) -> None:
        connection.execute(f"ROLLBACK TRANSACTION {name};").close()

    def release(self, connection: pyodbc.Connection, name: str) -> None:
        """SQL Server has nothing to release."""

    def in_transaction(self, connection: pyodbc.Connection) -> bool:
        return connection.execute("SELECT @@TRANCOUNT;").fetchval() > 0

    def left_open(self, connection: pyodbc.Connection) -> bool:
        return False  # pyodbc does not know: BEGIN itself asks, in the round trip that it makes anyway

    def is_intact(self, connection: pyodbc.Connection, begin: Begin) -> bool:
        if connection.closed:  # by a handler
            return False
        return connection.execute("SELECT @@TRANCOUNT;").fetchval() == (2 if begin == "commit_guarded" else 1)

    def is_closed(self, connection: pyodbc.Connection) -> bool:
        return connection.closed

    def clock(self, connection: pyodbc.Connection) -> float:
        milliseconds = connection.execute("SELECT DATEDIFF_BIG(millisecond, '1970-01-01', SYSUTCDATETIME());").fetchval()
        return milliseconds / 1000

    def check_deployable(self, connection: pyodbc.Connection) -> None:
        sqlserver_checks.check_compatibility(connection.execute(sqlserver_checks.COMPATIBILITY).fetchval())

    def checks(self, connection: pyodbc.Connection, schemas: Sequence[str]) -> Iterator[Check]:
        return sqlserver_checks.checks(connection, schemas)

    def listen(self, connection: pyodbc.Connection) -> bool:
        return False

    def heard(self, connection: pyodbc.Connection) -> list[str]:
        return []

    def reset_session(self, connection: pyodbc.Connection, changed: Collection[str]) -> None:
        """Nothing: the guard does not see what a handler sets, and procedures set what they need themselves."""

    def limit_lock_waits(self, connection: pyodbc.Connection, milliseconds: int | None) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(f"SET LOCK_TIMEOUT {-1 if milliseconds is None else milliseconds:d};")

    def limit_statements(self, connection: pyodbc.Connection, milliseconds: int) -> None:
        connection.timeout = -(milliseconds // -1000)

    def executable(self, connection: pyodbc.Connection, procedures: Sequence[str]) -> set[str]:
        return {name for (name,) in connection.execute(sqlserver_checks.EXECUTABLE, json.dumps(list(procedures))).fetchall()}

    def driver_error(self) -> type[Exception]:
        return load_pyodbc().Error

    def guard(self, connection: pyodbc.Connection, refuse: Callable[[str], NoReturn]) -> NoGuard:
        """pyodbc's connections take no attributes: what a handler did wrong is found afterwards."""
        return NoGuard()

    def translate(self, error: Exception, statement: Statement | None = None) -> RowpostError:
        return translate(error, statement)

    def object_name(self, procedure: Procedure, key: str | None) -> str:
        """The procedure's quoted name, with its schema."""
        return f"rowpost.{procedure.name}" if key is None else f"rowpost.{self.quote(f'{procedure.name}:{key}')}"

    def database_name(self, connection: pyodbc.Connection) -> str:
        return connection.getinfo(load_pyodbc().SQL_DATABASE_NAME)

    def quote(self, name: str) -> str:
        return "[" + name.replace("]", "]]") + "]"

    def literal(self, value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, int):
            return str(int(value))
        if isinstance(value, str | UUID | datetime.datetime):
            return "N'" + str(value).replace("'", "''") + "'"
        raise TypeError(f"no literal for {type(value)}")

    def script_call(self, procedure: Procedure, arguments: Sequence[tuple[str, Any]]) -> str:
        return self._exec(procedure, None, ((name, self.literal(value)) for name, value in arguments))

    def _exec(self, procedure: Procedure, key: str | None, given: Iterable[tuple[str, str]]) -> str:
        return f"EXEC {self.object_name(procedure, key)} {', '.join(f'@{name} = {value}' for name, value in given)};"


def check_version(version: str, is_azure: Callable[[], bool]) -> None:
    """Check that a server is SQL Server 2016 SP1 (13.0.4001) or newer. Azure SQL (12) is new enough.

    `version` is the driver's, such as "13.00.5026"; `is_azure` is asked only of those that call themselves 12.
    """
    parts = tuple(int(part) for part in version.split(".")[:3] if part.isdecimal()) or (0,)
    if parts < _OLDEST and not (parts[0] == _AZURE and is_azure()):
        raise UnsupportedServer(
            f"The server is SQL Server {version}; rowpost needs SQL Server 2016 SP1 (13.0.4001) or newer, or Azure SQL. "
            "Nothing was changed: upgrade the server, or name another one in the environment's url."
        )


def _is_azure(connection: pyodbc.Connection) -> bool:
    """Azure SQL Database, Managed Instance and Babelfish all say version 12; SQL Server 2014 says so too."""
    edition, babelfish = connection.execute(
        "SELECT CAST(SERVERPROPERTY('EngineEdition') AS int), CAST(SERVERPROPERTY('babelfish') AS int);"
    ).fetchone()
    return babelfish == 1 or edition in (5, 8, 11, 12)


def _physical(parameter: Parameter) -> tuple[tuple[str, str], ...]:
    """One parameter of the contract as the procedure's own."""
    if parameter.type == "messages":
        return (("messages", "text"), ("bodies", "binary"))
    return ((parameter.name, parameter.type),)


def _message_block(messages: Sequence[Any]) -> list[Any]:
    """Rows as one JSON array, and their bodies as one block of bytes that it points into."""
    entries, bodies, start = [], [], 1
    for ordinal, message in enumerate(messages):
        entry: dict[str, Any] = {"ordinal": ordinal, "headers": message.raw_headers}
        if message.body is not None:
            entry["body_start"], entry["body_length"] = start, len(message.body)
            bodies.append(message.body)
            start += len(message.body)
        for name in ("id", "time_to_be_received_ms", "correlation_id", "reply_to_address"):
            value = getattr(message, name, None)
            if value is not None:
                entry[name] = str(value) if name == "id" else value
        entries.append(entry)
    return [json.dumps(entries, ensure_ascii=False, separators=(",", ":")), b"".join(bodies)]


def _values(statement: Statement, arguments: dict[str, Any]) -> list[Any]:
    values: list[Any] = []
    for name, kind in statement.parameters:
        value: Any = arguments.get(name)
        if kind == "messages":
            values += _message_block(value)
        elif kind == "strings":
            values.append(None if value is None else json.dumps(list(value), ensure_ascii=False))
        else:
            values.append(value)
    return values


def _batched(calls: Sequence[Call]) -> list[list[Call]]:
    """Calls by round trip: as many as the server's limit of parameters and a text of one page of nvarchar hold."""
    batches: list[list[Call]] = []
    text = marks = 0
    for call in calls:
        text, marks = text + len(call[0].text) + 1, marks + len(call[0].sizes)
        if not batches or text > _BATCH_TEXT or marks > _BATCH_PARAMETERS:
            batches.append([])
            text, marks = len(call[0].text) + 1, len(call[0].sizes)
        batches[-1].append(call)
    return batches


def _is_plain(calls: Sequence[Call]) -> bool:
    """Whether all values are null, counts or flags: such calls need no parameters, so that BEGIN can be in their batch."""
    return all(
        arguments.get(name) is None or kind in ("integer", "boolean") for each, arguments in calls for name, kind in each.parameters
    )
