"""Connection connections whose operations fail on request, for tests of what a failure leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rowpost.database.connection import Connection

__all__ = ["Faults"]

#: methods of a dialect that talk to the server on the way of a message
COUNTED = frozenset({"execute", "execute_all", "begin", "commit", "rollback", "savepoint", "rollback_to"})


class Faults:
    """Make operations fail: the `place`-th one after `arm`, and with `burst` those that follow it.

    A failing operation does nothing: a transaction that was open stays open, and what it has changed can still be
    committed. This is the worst case for code that does not roll back. Opening a connection is an operation too.
    `names` lists the operations that failed.
    """

    def __init__(self, error: Callable[[], BaseException], place: int, burst: int = 1) -> None:
        self._error, self._places = error, range(place, place + burst)
        self._count: int | None = None
        self.names: list[str] = []

    def arm(self) -> None:
        """Count from now on; further calls do nothing."""
        if self._count is None:
            self._count = 0

    def pass_through(self, name: str) -> None:
        """Raise the error if it is this operation's turn."""
        if self._count is None:
            return
        self._count += 1
        if self._count in self._places:
            self.names.append(name)
            raise self._error()

    def connect(self, connect: Callable[[], Connection]) -> Connection:
        """Open a connection whose operations can fail, and those of the connections that it opens."""
        self.pass_through("connect")
        real = connect()
        return Connection(real.driver_connection, _FaultyDialect(real.dialect, self), open_second=lambda: self.connect(connect))


class _FaultyDialect:
    """A dialect that asks `faults` before each operation."""

    def __init__(self, dialect: Any, faults: Faults) -> None:
        self._dialect, self._faults = dialect, faults

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._dialect, name)
        if name not in COUNTED:
            return found

        def run(*arguments: Any, **options: Any) -> Any:
            calls = arguments[1] if name in ("execute", "execute_all") else ()
            spelt = [each[0] for each in calls] if name == "execute_all" else [calls] if name == "execute" else []
            self._faults.pass_through(" ".join([name, *(each.procedure.name for each in spelt)]))
            return found(*arguments, **options)

        return run
