"""SQL Server (and engines that speak TDS) through pyodbc and Microsoft's ODBC driver.

The driver is looked for on the system (18, 17, FreeTDS) and then in the wheel mssql-python-odbc, so that pip alone
makes a working client. What has parameters runs as a procedure call of its own (sp_prepexec), which must end with as
many transactions as it began with, or the server raises error 266. Therefore BEGIN and COMMIT are in one batch with the
calls between them if both are needed. BEGIN is in one batch with calls that need no parameters, and is otherwise sent
alone.

A text is the same for each call, or the server would compile and cache every one: row versions, texts and bodies are
parameters. Counts and flags have few values and are part of the text. Nulls are too: see `session`, which also keeps
the statements.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from rowpost.database.contract import Procedure
from rowpost.database.dialects.protocol import Begin, Commit, NoGuard, Statement, object_name, statement_of
from rowpost.database.dialects.sqlserver import checks as server_checks
from rowpost.database.dialects.sqlserver.errors import translate
from rowpost.database.dialects.sqlserver.odbc import connection_string, load_pyodbc
from rowpost.database.dialects.sqlserver.parameters import Call, batched, is_plain, physical, values_of
from rowpost.database.dialects.sqlserver.session import PyodbcSession, all_results, prepare_connection
from rowpost.database.dialects.sqlserver.transactions import (
    BEGIN,
    CHECK_OPEN,
    COMMIT,
    REPLACED,
    ROLL_BACK_REPLACED,
    STATE,
    SessionState,
    clean,
    is_whole,
    opening,
    restore,
)
from rowpost.errors import DatabaseError, DatabaseUnavailable, UnsupportedServer

if TYPE_CHECKING:
    import pyodbc

__all__ = ["SQLServer", "check_version"]

#: the driver's type of each parameter, from the header sqlext.h: pyodbc has them too, but is imported at the connection
#: only
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
_CHUNK_ROWS = 5000
_OLDEST, _AZURE = (13, 0, 4001), 12  # 2016 SP1, the first with CREATE OR ALTER; Azure's major version

# With autocommit off, Microsoft's driver begins a transaction before the next statement, whatever it is. Other drivers
# set IMPLICIT_TRANSACTIONS ON: then a SELECT that reads a table begins one, and a SELECT of a value does not (SET
# IMPLICIT_TRANSACTIONS, Remarks). TOP (1) reads a row; a condition that never holds may be compiled to a plan that
# reads nothing.
_JOIN = "SELECT TOP (1) @@TRANCOUNT FROM sys.schemas AS s;"


class SQLServer:
    """The dialect of SQL Server 2016 and later."""

    name = "sqlserver"

    translate = staticmethod(translate)
    checks = staticmethod(server_checks.checks)

    def connect(self, url: str, application_name: str) -> pyodbc.Connection:
        text = connection_string(url, application_name)
        pyodbc = load_pyodbc()
        try:
            connection = pyodbc.connect(text, autocommit=True, timeout=_CONNECT_TIMEOUT)
        except pyodbc.Error as error:
            raise self.translate(error) from None  # the driver's own text may hold the connection string
        try:
            check_version(str(connection.getinfo(pyodbc.SQL_DBMS_VER)), lambda: _is_azure(connection))
            prepare_connection(connection)
        except pyodbc.Error as error:
            connection.close()
            raise self.translate(error) from error
        except UnsupportedServer:
            connection.close()
            raise
        return connection

    def session(self, connection: pyodbc.Connection) -> PyodbcSession:
        return PyodbcSession(connection)

    def spell(self, procedure: Procedure, queue: str | None, key: str | None) -> Statement:
        own = [each for parameter in procedure.parameters_on(self.name) for each in physical(parameter)]
        text = self._exec(procedure, key, ((name, "?") for name, _ in own))
        return statement_of(self.name, procedure, queue, key, text, tuple(_SIZES[kind] for _, kind in own))

    def execute(
        self, session: PyodbcSession, statement: Statement, arguments: dict[str, Any], begin: Begin
    ) -> list[Any]:
        return self.execute_all(session, [(statement, arguments)], begin, False)[0]

    def execute_all(
        self, session: PyodbcSession, calls: Sequence[Call], begin: Begin, commit: Commit
    ) -> list[list[Any]]:
        batches = batched(calls)
        undo = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; "
        if begin and len(batches) == 1 and commit:
            return self._run(session, batches[0], f"{BEGIN[begin]};", COMMIT[commit], undo=undo)
        if begin and len(batches) == 1 and is_plain(batches[0]):
            return self._run(
                session,
                batches[0],
                opening(begin, session.first, reads_state=session.reads_state),
                undo=undo,
                reads_state=session.reads_state,
            )
        if begin:
            found = session.run(opening(begin, session.first, reads_state=session.reads_state))
            if session.reads_state:
                (state,) = found[0]
                _restore(session, SessionState(*state))
        head = CHECK_OPEN if commit else ""
        results = [rows for batch in batches for rows in self._run(session, batch, head)]
        if commit:
            session.run(COMMIT[commit])
        return results

    def _run(
        self,
        session: PyodbcSession,
        calls: Sequence[Call],
        head: str,
        tail: str = "",
        *,
        undo: str = "",
        reads_state: bool = False,
    ) -> list[list[Any]]:
        """Make calls in one round trip, between two statements; an error of any of them goes through `undo` and ends
        it.

        With `reads_state`, the first result is the session's state.
        """
        plain = is_plain(calls)
        spoken = [(self._literally(*call), (), ()) if plain else self._with_parameters(*call) for call in calls]
        text = " ".join([head, *(each for each, _, _ in spoken), tail])
        if head:
            # A call that finds no procedure, or no right to it, does not end a batch: without TRY the next would run.
            text = f"BEGIN TRY {text} END TRY BEGIN CATCH {undo}THROW; END CATCH;"
        found = iter(
            session.run(
                text,
                [size for _, sizes, _ in spoken for size in sizes],
                [value for *_, values in spoken for value in values],
            )
        )
        if reads_state:
            (state,) = next(found)
            _restore(session, SessionState(*state))
        results = [list(map(each.make_row, next(found, []))) if each.procedure.result else [] for each, _ in calls]
        for (statement, _), rows in zip(calls, results, strict=True):
            if statement.order is not None:
                rows.sort(key=statement.order)
        return results

    def _literally(self, statement: Statement, arguments: dict[str, Any]) -> str:
        given = ((name, self.literal(arguments.get(name))) for name, _ in statement.parameters)
        return self._exec(statement.procedure, statement.key, given)

    def _with_parameters(
        self, statement: Statement, arguments: dict[str, Any]
    ) -> tuple[str, Sequence[Any], Sequence[Any]]:
        """Return the text of a call with a mark for each value that is not null, the driver's types of these values,
        and the values.
        """
        values = values_of(statement, arguments)
        if None not in values:
            return statement.text, statement.sizes, values
        names = [name for each in statement.procedure.parameters_on(self.name) for name, _ in physical(each)]
        text = self._exec(
            statement.procedure,
            statement.key,
            zip(names, ("NULL" if value is None else "?" for value in values), strict=True),
        )
        sizes = [size for size, value in zip(statement.sizes, values, strict=True) if value is not None]
        return text, sizes, [value for value in values if value is not None]

    def stream(
        self,
        session: PyodbcSession,
        statement: Statement,
        arguments: dict[str, Any],
        columns: Sequence[str],
        chunk_bytes: int,
    ) -> Iterator[list[tuple[Any, ...]]]:
        with closing(session.connection.cursor()) as cursor:
            cursor.setinputsizes(list(statement.sizes))
            cursor.execute(statement.text, values_of(statement, arguments))
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

    def script(self, connection: pyodbc.Connection, text: str) -> list[tuple[Any, ...]]:
        with closing(connection.cursor()) as cursor:  # a cursor as a block would commit
            cursor.execute(text)
            return [tuple(row) for row in (all_results(cursor) or [[]])[-1]]

    def begin(self, connection: pyodbc.Connection) -> None:
        connection.execute(opening(True, None, reads_state=False)).close()

    def join(self, connection: pyodbc.Connection) -> bool:
        if connection.autocommit:
            return False
        if not connection.execute(_JOIN).fetchval():
            raise DatabaseError(
                "The lent connection has autocommit off, but no transaction: a COMMIT or ROLLBACK in T-SQL has "
                "probably ended the one that its driver had begun. Call commit() or rollback() of the connection "
                "instead of these statements, or lend a connection with autocommit=True."
            )
        return True

    def commit(self, connection: pyodbc.Connection) -> None:
        connection.execute(f"{ROLL_BACK_REPLACED} {COMMIT[True]}").close()

    def rollback(self, connection: pyodbc.Connection) -> None:
        connection.execute("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;").close()

    def savepoint(self, connection: pyodbc.Connection, name: str) -> None:
        connection.execute(f"SAVE TRANSACTION {name};").close()

    def rollback_to(self, connection: pyodbc.Connection, name: str) -> None:
        connection.execute(f"ROLLBACK TRANSACTION {name};").close()

    def release(self, connection: pyodbc.Connection, name: str) -> None:
        """Do nothing: SQL Server has nothing to release."""

    def in_transaction(self, connection: pyodbc.Connection) -> bool:
        return bool(connection.execute("SELECT @@TRANCOUNT;").fetchval() > 0)

    def left_open(self, connection: pyodbc.Connection) -> bool:
        return False  # pyodbc does not know: BEGIN itself asks, in the round trip that it makes anyway

    def is_intact(self, session: PyodbcSession, begin: Begin) -> bool:
        if session.connection.closed:  # by a handler
            return False
        if session.first is None or not session.lent:
            ((whole,),) = session.run(f"SELECT {is_whole(begin)};")[0]
            return bool(whole == 1)
        ((whole, *state),) = session.run(f"{clean(session.first)} SELECT {is_whole(begin)}, {STATE};")[0]
        return whole == 1 and _is_restored(session, session.first, SessionState(*state))

    def found_no_transaction(self, error: BaseException | None) -> bool:
        return "(3902)" in str(error)

    def was_replaced(self, connection: pyodbc.Connection) -> bool:
        return bool(connection.execute(f"SELECT CASE WHEN {REPLACED} THEN 1 ELSE 0 END;").fetchval() == 1)

    def is_closed(self, connection: pyodbc.Connection) -> bool:
        return bool(connection.closed)

    def clock(self, connection: pyodbc.Connection) -> float:
        milliseconds = connection.execute(
            "SELECT DATEDIFF_BIG(millisecond, '1970-01-01', SYSUTCDATETIME());"
        ).fetchval()
        return float(milliseconds) / 1000

    def session_limits(self, connection: pyodbc.Connection) -> list[str]:
        return []  # SQL Server lets a transaction be idle for as long as it likes

    def connection_limit(self, connection: pyodbc.Connection) -> int:
        return int(connection.execute("SELECT @@MAX_CONNECTIONS;").fetchval())

    def encoding_limits(self, connection: pyodbc.Connection) -> list[str]:
        return []  # nvarchar holds every character in every collation

    def was_started(self, connection: pyodbc.Connection, seconds: float) -> bool:
        """Each start makes tempdb, which Azure SQL Database does not show."""
        age = "SELECT DATEDIFF(second, d.create_date, GETDATE()) FROM sys.databases AS d WHERE d.name = N'tempdb';"
        found = connection.execute(age).fetchval()
        return found is not None and found < seconds

    def check_deployable(self, connection: pyodbc.Connection) -> None:
        server_checks.check_compatibility(connection.execute(server_checks.COMPATIBILITY).fetchval())

    def listen(self, connection: pyodbc.Connection) -> bool:
        return False

    def heard(self, connection: pyodbc.Connection) -> list[str]:
        return []

    def reset_session(self, session: PyodbcSession, changed: Collection[str]) -> None:
        """Let the next BEGIN, or the next check whether the transaction is intact, read the session's state and restore
        it.
        """
        session.lent = True

    def limit_lock_waits(self, connection: pyodbc.Connection, milliseconds: int | None) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(f"SET LOCK_TIMEOUT {-1 if milliseconds is None else milliseconds:d};")

    def limit_statements(self, connection: pyodbc.Connection, milliseconds: int) -> None:
        connection.timeout = -(milliseconds // -1000)

    def executable(self, connection: pyodbc.Connection, procedures: Sequence[str]) -> set[str]:
        return {
            name for (name,) in connection.execute(server_checks.EXECUTABLE, json.dumps(list(procedures))).fetchall()
        }

    def driver_error(self) -> type[Exception]:
        error: type[Exception] = load_pyodbc().Error
        return error

    def guard(
        self,
        connection: pyodbc.Connection,
        refuse: Callable[[str], NoReturn] | None,
        refuse_late: Callable[[Any], NoReturn],
    ) -> NoGuard:
        """pyodbc's connections take no attributes: what a handler did is found afterwards, and a use after its end is
        not.
        """
        return _AfterwardsGuard()

    def cut(self, connection: pyodbc.Connection) -> None:
        """Close it, unless a statement runs on it: then the session ends with the next one, or with the process."""
        with suppress(load_pyodbc().Error):
            connection.close()

    def asynchronous(self, connection: pyodbc.Connection) -> None:
        """pyodbc has nothing for an event loop."""

    def database_name(self, connection: pyodbc.Connection) -> str:
        return str(connection.getinfo(load_pyodbc().SQL_DATABASE_NAME))

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
        return f"EXEC {object_name(self, procedure, key)} {', '.join(f'@{name} = {value}' for name, value in given)};"


class _AfterwardsGuard(NoGuard):
    """Sees nothing of what a handler does, so that each one may have changed its session."""

    changed = frozenset({"session"})


def _restore(session: PyodbcSession, now: SessionState) -> None:
    """Set the session back to what it was before any handler had it. The first state that is read counts as that.

    Raises:
        DatabaseUnavailable: that cannot be done on this connection.
    """
    session.first = session.first or now
    if not _is_restored(session, session.first, now):
        raise DatabaseUnavailable(
            "A handler has changed its session, and what it changed cannot be set back, such as by EXECUTE AS with NO "
            "REVERT. The connection is given up, and the message is received on another one."
        )


def _is_restored(session: PyodbcSession, first: SessionState, now: SessionState) -> bool:
    """Set back what differs, in one round trip. Return whether nothing differs any more."""
    statements = restore(first, now)
    if not statements:
        return True
    ((state,),) = session.run(f"{statements} SELECT {STATE};")
    return not restore(first, SessionState(*state))


def check_version(version: str, is_azure: Callable[[], bool]) -> None:
    """Check that a server is SQL Server 2016 SP1 (13.0.4001) or newer. Azure SQL (12) is new enough.

    `version` is the driver's, such as "13.00.5026"; `is_azure` is asked only of those that call themselves 12.
    """
    parts = tuple(int(part) for part in version.split(".")[:3] if part.isdecimal()) or (0,)
    if parts < _OLDEST and not (parts[0] == _AZURE and is_azure()):
        raise UnsupportedServer(
            f"The server is SQL Server {version}; rowpost needs SQL Server 2016 SP1 (13.0.4001) or newer, or Azure "
            "SQL. Nothing was changed: upgrade the server, or name another one in the environment's url."
        )


def _is_azure(connection: pyodbc.Connection) -> bool:
    """Azure SQL Database, Managed Instance and Babelfish all say version 12; SQL Server 2014 says so too."""
    edition, babelfish = connection.execute(
        "SELECT CAST(SERVERPROPERTY('EngineEdition') AS int), CAST(SERVERPROPERTY('babelfish') AS int);"
    ).fetchone()
    return babelfish == 1 or edition in (5, 8, 11, 12)
