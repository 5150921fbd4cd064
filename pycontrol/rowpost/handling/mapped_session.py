"""SQLAlchemy's `Session` and `AsyncSession` in the transaction of a message.

    mapped = MappedSession(database)         # when a handler first asks for `context.session`
    mapped.session.add(Order(42))
    mapped.complete()                        # the handler has returned
    mapped.abandon()                         # it has failed

What SQLAlchemy takes for a transaction is a savepoint in the message's transaction: it is set where SQLAlchemy begins,
released where it commits, and gone back to where it rolls back. So `session.commit()`, `session.rollback()` and
`begin_nested()` mean to a handler what they always mean, and only the message's commit makes anything last.

One engine serves all messages of a process. Its pool keeps nothing: a connection is what the message's transaction lends.
"""  # noqa: E501

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import SettingsError

__all__ = ["MappedSession"]

_NAME = "rowpost_session"
#: SQLAlchemy's names of the engines, with rowpost's drivers
_URLS = {"postgresql": "postgresql+psycopg://", "sqlserver": "mssql+pyodbc://"}
_MISSING = "context.session needs the package sqlalchemy, version 2 or later. Run: pip install sqlalchemy"
_MISSING_ON_LOOP = (
    "context.session of an async handler needs the packages sqlalchemy, version 2 or later, and greenlet. Run: pip "
    "install 'sqlalchemy[asyncio]'"
)


class MappedSession:
    """The session of one handler.

    Args:
        database: the connection of the message's transaction.
        is_async: whether the handler runs on an event loop.

    Attributes:
        session: what the handler uses: a `Session`, or an `AsyncSession`.

    Raises:
        SettingsError: SQLAlchemy is not installed; no transaction is open; or it has no driver here for an event loop.
    """

    def __init__(self, database: Connection, *, is_async: bool = False) -> None:
        if is_async and database.engine != "postgresql":
            raise SettingsError(
                "context.session is not there for async handlers on SQL Server: pyodbc, whose connection has the "
                "message's transaction, has no async driver. Make the handler a plain function."
            )
        if database.guard is None or not database.in_transaction:
            raise SettingsError(
                "context.session works within the transaction of a message, and none is open here: the transaction "
                "mode is none, or this is not a handler. Open a session of your own."
            )
        engine = _engine(database.engine, is_async)
        if not is_async:
            _prepare(engine, database)
        _loan.set(_Loan(partial(database.lend_mapped, is_async=is_async)))
        if is_async:
            from sqlalchemy.ext.asyncio import AsyncSession

            self.session: Any = AsyncSession(engine, expire_on_commit=False)
        else:
            from sqlalchemy.orm import Session

            self.session = Session(engine, expire_on_commit=False)

    def complete(self) -> None:
        """Write what the handler has left in the session. It cannot be used any more."""
        try:
            self.session.commit()
        finally:
            self.abandon()

    async def complete_async(self) -> None:
        """Do the same on the event loop."""
        try:
            await self.session.commit()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Give the session up, without any SQL: the message's transaction is rolled back."""
        getattr(self.session, "sync_session", self.session).invalidate()


class _Loan:
    """What the message's transaction lends to one session.

    Args:
        lend: returns the driver's connection; called with the adapters of types that SQLAlchemy wants.
    """

    def __init__(self, lend: Callable[..., Any]) -> None:
        self._lend = lend
        self._lent: Any = None
        #: whether SQLAlchemy has begun what it takes for a transaction
        self.begun = False

    def connection(self, types: Any) -> Any:
        """Return the driver's connection, the same one each time."""
        if self._lent is None:
            self._lent = self._lend(types=types)
        return self._lent


_loan: ContextVar[_Loan] = ContextVar("rowpost_session")
_prepared: set[Any] = set()
_preparing = threading.Lock()


def _prepare(engine: Any, database: Connection) -> None:
    """Let SQLAlchemy ask the server what it can, before its first session, on another connection: a question that the
    server refuses would end the message's transaction on SQL Server.
    """
    with _preparing:
        if engine in _prepared or database.open_second is None:
            return
        second = database.open_second()
        try:
            _loan.set(_Loan(lambda types: second.raw_connection))
            engine.connect().close()
        finally:
            second.close()
        _prepared.add(engine)


@cache
def _engine(name: str, is_async: bool) -> Any:
    """Return the engine for all sessions of one kind. Raises SettingsError: SQLAlchemy is missing."""
    try:
        from sqlalchemy import create_engine
        from sqlalchemy.pool import NullPool
        from sqlalchemy.sql.elements import ReleaseSavepointClause, RollbackToSavepointClause, SavepointClause

        if is_async:
            import greenlet  # noqa: F401 -- a second import of SQLAlchemy's package succeeds without it
            from sqlalchemy.ext.asyncio import create_async_engine
    except ImportError as error:
        raise SettingsError(_MISSING_ON_LOOP if is_async else _MISSING) from error
    url = _URLS[name]

    def connection() -> Any:
        return _loan.get().connection(engine.dialect.create_connect_args(engine.url)[1].get("context"))

    async def async_connection() -> Any:
        return connection()

    engine: Any = (
        create_async_engine(url, poolclass=NullPool, async_creator=async_connection)
        if is_async
        else create_engine(url, poolclass=NullPool, creator=connection)
    )
    dialect: Any = engine.dialect
    savepoint, back, release = (
        str(clause(_NAME).compile(dialect=dialect))
        for clause in (SavepointClause, RollbackToSavepointClause, ReleaseSavepointClause)
    )
    released = [release] if name == "postgresql" else []  # SQL Server keeps savepoints until the transaction's end
    dialect.do_begin = partial(_execute, [savepoint], True)
    dialect.do_commit = partial(_execute, released, False)
    dialect.do_rollback = partial(_execute, [back, *released], False)
    dialect.do_close = dialect.do_terminate = _keep
    return engine


def _execute(commands: Sequence[str], begun: bool, connection: Any) -> None:
    loan = _loan.get()
    if loan.begun is begun:
        return  # SQLAlchemy's first connection rolls back what it has not begun
    loan.begun = begun
    cursor = connection.cursor()
    try:
        for command in commands:
            cursor.execute(command)
    finally:
        cursor.close()


def _keep(connection: Any) -> None:
    """Close nothing: the connection belongs to the message's transaction."""
