"""Connection connections whose operations fail on request, for tests of what a failure leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg

from rowpost.database.connection import Connection
from rowpost.database.dialects.choice import dialect_for

__all__ = ["Faults", "driver_errors"]

#: methods of a dialect that talk to the server on the way of a message
COUNTED = frozenset({"execute", "execute_all", "begin", "commit", "rollback", "savepoint", "rollback_to"})


class Faults:
    """Make operations fail: the `place`-th one after `arm`, and with `burst` those that follow it.

    A failing operation does nothing: a transaction that was open stays open, and what it has changed can still be
    committed. This is the worst case for code that does not roll back. Opening a connection is an operation too.
    `names` lists the operations that failed.

    Args:
        error: called with the driver's connection, or None while one is opened; returns what is raised.
    """

    def __init__(self, error: Callable[[Any], BaseException], place: int, burst: int = 1) -> None:
        self._error, self._places = error, range(place, place + burst)
        self._count: int | None = None
        self.names: list[str] = []

    def arm(self) -> None:
        """Count from now on; further calls do nothing."""
        if self._count is None:
            self._count = 0

    def pass_through(self, name: str, connection: Any = None) -> None:
        """Raise the error if it is this operation's turn."""
        if self._count is None:
            return
        self._count += 1
        if self._count in self._places:
            self.names.append(name)
            raise self._error(connection)

    def connect(self, connect: Callable[[], Connection]) -> Connection:
        """Open a connection whose operations can fail, and those of the connections that it opens."""
        try:
            self.pass_through("connect")
        except psycopg.Error as error:
            raise dialect_for("postgresql").translate(error) from error
        except Exception as error:
            if type(error).__module__ != "pyodbc":
                raise
            raise dialect_for("sqlserver").translate(error) from error
        real = connect()
        return Connection(
            real.driver_connection,
            _FaultyDialect(real.dialect, self, real.driver_connection),
            open_second=lambda: self.connect(connect),
        )


class _FaultyDialect:
    """A dialect that asks `faults` before each operation."""

    def __init__(self, dialect: Any, faults: Faults, connection: Any) -> None:
        self._dialect, self._faults, self._connection = dialect, faults, connection

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._dialect, name)
        if name not in COUNTED:
            return found

        def run(*arguments: Any, **options: Any) -> Any:
            calls = arguments[1] if name in ("execute", "execute_all") else ()
            spelt = [each[0] for each in calls] if name == "execute_all" else [calls] if name == "execute" else []
            self._faults.pass_through(" ".join([name, *(each.procedure.name for each in spelt)]), self._connection)
            return found(*arguments, **options)

        return run


#: SQLSTATEs of PostgreSQL, and states and numbers of SQL Server; None where the connection itself is lost
KINDS = {
    "connection lost": (None, ("08S01", 10054)),
    "reply that nobody can read": (None, ("08S01", 64)),
    "lock timeout": ("55P03", ("42000", 1222)),
    "deadlock": ("40P01", ("40001", 1205)),
    "serialisation failure": ("40001", ("42000", 3960)),
    "disk full": ("53100", ("42000", 1105)),
    "missing object": ("42P01", ("42S02", 208)),
    "refused login": ("28P01", ("28000", 18456)),
    "cancelled": ("57014", ("HY008", 0)),
    "read-only server": ("25006", ("42000", 3906)),
}


def driver_errors(engine: str) -> dict[str, Callable[[Any], BaseException]]:
    """Return, by name, what makes an error of the engine's driver; for the first two it closes the connection first."""
    make = _postgresql_error if engine == "postgresql" else _sqlserver_error
    return {name: partial(make, name) for name in KINDS}


def _postgresql_error(name: str, connection: Any) -> BaseException:
    state, _ = KINDS[name]
    if state is not None:
        return psycopg.errors.lookup(state)(f"injected: {name}")
    if connection is not None:
        connection.close()
    return psycopg.OperationalError(f"injected: {name}")


def _sqlserver_error(name: str, connection: Any) -> BaseException:
    import pyodbc

    lost, (state, number) = KINDS[name][0] is None, KINDS[name][1]
    if lost and connection is not None:
        connection.close()
    return pyodbc.Error(state, f"[{state}] [Microsoft][SQL Server]injected: {name}. ({number}) (SQLExecDirectW)")
