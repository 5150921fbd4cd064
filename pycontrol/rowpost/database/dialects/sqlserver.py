"""SQL Server (and engines that speak TDS) through pyodbc and Microsoft's ODBC driver.

The driver is looked for on the system (18, 17, FreeTDS) and then in the wheel mssql-python-odbc, so that pip alone
makes a working client. What has parameters runs as a procedure call of its own (sp_prepexec), which must end with as
many transactions as it began with, or the server raises error 266: BEGIN and COMMIT travel in one batch with the calls
between them where both are wanted, BEGIN with calls whose values are numbers (a receive), and alone otherwise.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from rowpost.database.contract import Parameter, Procedure
from rowpost.database.dialects import sqlserver_checks
from rowpost.database.dialects.odbc import find_driver, load_pyodbc
from rowpost.database.dialects.protocol import Begin, Check, Commit, NoGuard, Statement, row_maker, row_order
from rowpost.database.dialects.sqlserver_errors import translate
from rowpost.errors import RowpostError, UnsupportedServer

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
_OLDEST, _AZURE = 13, 12  # major versions
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


class SQLServer:
    """The dialect of SQL Server 2016 and later."""

    name = "sqlserver"

    def connect(self, url: str, application_name: str) -> pyodbc.Connection:
        pyodbc = load_pyodbc()
        text = url if re.search(r"(^|;)\s*driver\s*=", url, re.IGNORECASE) else f"Driver={{{find_driver()}}};{url}"
        if not re.search(r"(^|;)\s*app\s*=", text, re.IGNORECASE):
            text = f"{text.rstrip(';')};APP={{{application_name.replace('}', '}}')}}}"
        try:
            connection = pyodbc.connect(text, autocommit=True, timeout=_CONNECT_TIMEOUT)
        except pyodbc.Error as error:
            raise self.translate(error) from None  # the driver's own text may hold the connection string
        try:
            check_version(str(connection.getinfo(pyodbc.SQL_DBMS_VER)), lambda: _is_azure(connection))
        except UnsupportedServer:
            connection.close()
            raise
        return connection

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

    def execute(
        self, connection: pyodbc.Connection, statement: Statement, arguments: dict[str, Any], begin: Begin
    ) -> list[Any]:
        return self.execute_all(connection, [(statement, arguments)], begin, False)[0]

    def execute_all(
        self, connection: pyodbc.Connection, calls: Sequence[Call], begin: Begin, commit: Commit
    ) -> list[list[Any]]:
        batches = _batched(calls)
        undo = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; "
        if begin and len(batches) == 1 and (commit or _is_plain(batches[0])):
            return self._run(connection, batches[0], f"{_BEGIN[begin]};", _COMMIT[commit], undo)
        if begin:
            connection.execute(f"{_BEGIN[begin]};").close()
        # Where the transaction is over already, the first COMMIT fails (3902): nothing is sent outside of it.
        head = "IF @@TRANCOUNT = 0 COMMIT TRANSACTION;" if commit else ""
        results = [rows for batch in batches for rows in self._run(connection, batch, head)]
        if commit:
            connection.execute(_COMMIT[commit]).close()
        return results

    def _run(
        self, connection: pyodbc.Connection, calls: Sequence[Call], head: str, tail: str = "", undo: str = ""
    ) -> list[list[Any]]:
        """Calls in one round trip, between two statements; an error of any of them goes through `undo` and ends it."""
        plain = _is_plain(calls)
        text = " ".join([head, *(self._literally(*call) if plain else call[0].text for call in calls), tail])
        if head:
            # A call that finds no procedure, or no right to it, does not end a batch: without TRY the next would run.
            text = f"BEGIN TRY {text} END TRY BEGIN CATCH {undo}THROW; END CATCH;"
        with closing(connection.cursor()) as cursor:  # a cursor as a block would commit
            if plain:
                cursor.execute(text)
            else:
                cursor.setinputsizes([size for statement, _ in calls for size in statement.sizes])
                cursor.execute(text, [value for call in calls for value in _values(*call)])
            found = iter(_all_results(cursor))
        results = [list(map(each.make_row, next(found, []))) if each.procedure.result else [] for each, _ in calls]
        for (statement, _), rows in zip(calls, results, strict=True):
            if statement.order is not None:
                rows.sort(key=statement.order)
        return results

    def _literally(self, statement: Statement, arguments: dict[str, Any]) -> str:
        given = ((name, self.literal(arguments.get(name))) for name, _ in statement.parameters)
        return self._exec(statement.procedure, statement.key, given)

    def stream(
        self, connection: pyodbc.Connection, statement: Statement, arguments: dict[str, Any], columns: Sequence[str], chunk_bytes: int
    ) -> Iterator[list[tuple]]:
        with closing(connection.cursor()) as cursor:
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
            return [tuple(row) for row in (_all_results(cursor) or [[]])[-1]]

    def begin(self, connection: pyodbc.Connection) -> None:
        connection.execute(f"{_BEGIN[True]};").close()

    def join(self, connection: pyodbc.Connection) -> bool:
        if connection.autocommit:
            return False
        connection.execute("DECLARE @none int; SELECT @none = 1 FROM sys.schemas WHERE 1 = 0;").close()
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

    def checks(self, connection: pyodbc.Connection, schemas: Sequence[str]) -> Iterator[Check]:
        return sqlserver_checks.checks(connection, schemas)

    def listen(self, connection: pyodbc.Connection) -> bool:
        return False

    def heard(self, connection: pyodbc.Connection) -> list[str]:
        return []

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
    """Check that a server is SQL Server 2016 (13) or newer. Azure SQL (12) is new enough.

    `version` is the driver's, such as "13.00.5026"; `is_azure` is asked only of those that call themselves 12.
    """
    major = int(version.partition(".")[0] or 0)
    if major < _OLDEST and not (major == _AZURE and is_azure()):
        raise UnsupportedServer(
            f"The server is SQL Server {version}; rowpost needs SQL Server 2016 (13.0) or newer, or Azure SQL. "
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
    """Whether all values are numbers or null: such calls need no parameters, so that BEGIN may travel with them."""
    return all(value is None or isinstance(value, int) for _, arguments in calls for value in arguments.values())


def _all_results(cursor: pyodbc.Cursor) -> list[list[Any]]:
    """Return the driver's rows of every result. Reads to the end, so that an error that follows a row is raised."""
    results: list[list[Any]] = []
    while True:
        if cursor.description is not None:
            results.append(cursor.fetchall())
        if not cursor.nextset():
            return results
