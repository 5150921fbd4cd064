"""Find the driver's connection within what SQLAlchemy and Django wrap around it, and join the wrapper's transaction.

    driver_connection(session)         # SQLAlchemy's Session and Connection, Django's connection
    await joined_on_loop(session)      # also AsyncSession and AsyncConnection, and connections of psycopg and asyncpg

A wrapper that begins its transaction with the first statement begins it here: otherwise it would not know that there is
something to commit, and roll back. No package is imported: who passes such an object has imported it.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from rowpost.errors import SettingsError

__all__ = ["OnLoop", "driver_connection", "joined_on_loop"]

_SESSIONS = {"Session", "scoped_session"}
_ASYNC_SESSIONS = {"AsyncSession", "async_scoped_session"}
_NO_CONNECTIONS = {
    "Engine": "Pass a connection of it: `with engine.begin() as connection`",
    "AsyncEngine": "Pass a connection of it: `async with engine.begin() as connection`",
    "sessionmaker": "Pass a session of it: `with sessions.begin() as session`",
    "async_sessionmaker": "Pass a session of it: `async with sessions.begin() as session`",
}
_ASYNC = "{} is asynchronous. Write `async with endpoint.open(…)`, or pass a connection that is not."


def driver_connection(given: Any) -> Any:
    """Return the driver's connection of a wrapper, in the wrapper's transaction; anything else as it is.

    Raises:
        SettingsError: it is asynchronous, or no connection.
    """
    package, names = _classes(given)
    if package == "django" and hasattr(given, "ensure_connection"):
        given.ensure_connection()
        return given.connection
    if package != "sqlalchemy":
        if package == "asyncpg" or (package == "psycopg" and "AsyncConnection" in names):
            raise SettingsError(_ASYNC.format(f"{package}'s {type(given).__name__}"))
        return given
    _check_sqlalchemy(given, names)
    if names & (_ASYNC_SESSIONS | {"AsyncConnection"}):
        raise SettingsError(_ASYNC.format(f"SQLAlchemy's {type(given).__name__}"))
    if names & _SESSIONS:
        given = given.connection()
    if "Connection" in _classes(given)[1]:
        if not given.in_transaction() and not getattr(given.connection.driver_connection, "autocommit", False):
            given.begin()
        given = given.connection
    return driver_connection(given.driver_connection) if hasattr(given, "driver_connection") else given


class OnLoop(NamedTuple):
    """A connection that code on an event loop has passed.

    Attributes:
        blocking: what another thread can use in the same session.
        lock: to be held meanwhile; None if there is none.
        own: the driver's connection for the event loop; None if it is no such connection.
    """

    blocking: Any
    lock: asyncio.Lock | None = None
    own: Any = None


async def joined_on_loop(given: Any) -> OnLoop:
    """Return how another thread uses what code on an event loop has passed, in the transaction of a wrapper.

    Raises:
        SettingsError: it is no connection.
    """
    package, names = _classes(given)
    if package == "sqlalchemy":
        _check_sqlalchemy(given, names)
        if names & (_ASYNC_SESSIONS | {"AsyncConnection"}):
            given = await _of_async_sqlalchemy(given, names)
            package, names = _classes(given)
    if package == "psycopg" and "AsyncConnection" in names:
        from rowpost.database.dialects.postgresql.asynchronous import blocking_view

        return OnLoop(blocking_view(given), given.lock, given)
    if package == "asyncpg":
        from rowpost.database.dialects.postgresql.loop_bound import LoopBound

        return OnLoop(LoopBound(given, asyncio.get_running_loop()), None, given)
    return OnLoop(given)


async def _of_async_sqlalchemy(given: Any, names: set[str]) -> Any:
    if names & _ASYNC_SESSIONS:
        given = await given.connection()
    pooled = await given.get_raw_connection()
    driver = pooled.driver_connection
    if not pooled.dbapi_connection.autocommit:
        if not given.in_transaction():
            await given.begin()
        if _classes(driver)[0] == "asyncpg" and not driver.is_in_transaction():
            from sqlalchemy import select

            await given.execute(select(1))  # SQLAlchemy begins asyncpg's transaction with a statement
    return driver


def _classes(given: Any) -> tuple[str, set[str]]:
    """Return the package of an object's class, or of the class that it derives from, and the names of these classes."""
    for kind in type(given).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in ("sqlalchemy", "django", "asyncpg", "psycopg"):
            return package, {each.__name__ for each in type(given).__mro__}
    return "", set()


def _check_sqlalchemy(given: Any, names: set[str]) -> None:
    for name, advice in _NO_CONNECTIONS.items():
        if name in names:
            raise SettingsError(f"SQLAlchemy's {type(given).__name__} is no connection. {advice}.")
