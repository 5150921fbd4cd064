"""Lend a psycopg connection to one handler after the other: what would end the transaction is refused, or at least noticed.

A handler gets an object of its own for the connection, which `HandlerGuard` makes when the handler first asks for it. It shares the session
and the lock with the connection. Its commit, rollback and close raise an error with an explanation. Its cursors check whether a COMMIT or
ROLLBACK in plain SQL has ended the transaction, and record which of the two it was. When the handler has ended, every use of the object
raises an error: a thread that kept it would otherwise take part in the transaction of another message.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn

import psycopg
import psycopg.sql
from psycopg.pq import TransactionStatus

from rowpost.database.dialects import libpq

__all__ = ["HandlerGuard"]

_GUARD = "rowpost_guard"
_PREPARES = "PREPARE TRANSACTION"
_NAME = re.compile(r"\bprepare\s+transaction\s+'((?:[^']|'')*)'", re.IGNORECASE)
#: a transaction's number counts its 32-bit wrap-arounds, and that of a prepared one does not
_PREPARED = (
    "SELECT p.gid FROM pg_catalog.pg_prepared_xacts AS p"
    " WHERE p.database = pg_catalog.current_database() AND p.transaction::text = ($1::bigint % 4294967296)::text"
)
_NUMBER = libpq.Call("SELECT pg_catalog.pg_current_xact_id()::text", (), ("string",), tuple)
#: modules that use the raw handle as they should, and the ids of those that were seen: the driver asks for it several times a statement
_OWN = ("psycopg", "rowpost.")
_own_modules: set[int] = set()
_IDLE = TransactionStatus.IDLE
# Within a transaction, these commands end it. ROLLBACK is also the tag of ROLLBACK TO SAVEPOINT, which does not.
_ENDS = frozenset({"COMMIT", "ROLLBACK", _PREPARES})
# These change what the handlers of later messages meet. SET is also the tag of SET LOCAL and SET TRANSACTION, which end with the transaction.
_CHANGES = frozenset({"SET", "RESET", "DEALLOCATE ALL"})
_LASTS = re.compile(r"\bset\s+(?!local\b|transaction\b)|\breset\s|\bset_config\s*\((?![^()]*,\s*true\s*\))", re.IGNORECASE)
_STAYS = re.compile(r"\brollback\b(?:\s+(?:work|transaction))?\s+to\b", re.IGNORECASE)


class HandlerGuard:
    """The guard of one connection, which several handlers use one after the other.

    Args:
        connection: the connection.
        refuse: called with the verb of what a handler tried; raises an error. None lets handlers have transactions of their own.
        refuse_late: called with what `start` was given if the connection is used after the handler; raises an error.

    Attributes:
        ended: the command that ended the transaction first, COMMIT, ROLLBACK or PREPARE TRANSACTION, or "unknown"; None if none did, or none
            was seen. `stop` rolls a prepared transaction back: then it is ROLLBACK.
        changed: what a handler may have changed: "transaction" for settings until its end, "session" for those that last, "prepared" for
            the prepared statements.
    """

    def __init__(
        self, connection: psycopg.Connection, refuse: Callable[[str], NoReturn] | None, refuse_late: Callable[[Any], NoReturn] | None = None
    ) -> None:
        self.connection = connection
        self.refuse, self._refuse_late = refuse, refuse_late
        self.ended: str | None = None
        #: the name under which the handler prepared the transaction, if its SQL was seen
        self.prepared: str | None = None
        self.changed: set[str] = set()
        self._message: Any = None
        self._lent: Any = None
        self._in_place = False
        #: the transaction's number if a handler took the raw handle, whose statements nobody sees; empty if it cannot be compared
        self._number: str | None = None
        self._guarded: dict[str, Any] = {_GUARD: self}
        connection.adapters  # noqa: B018 -- is made at its first use: now, or for each object that is lent
        self._factory = connection.cursor_factory
        if self._factory is psycopg.Cursor and refuse is not None:
            self._guarded["cursor_factory"] = _GuardedCursor
        self._class = type(connection)
        self._lending = _lending(self._class)  # type: ignore[arg-type]

    def start(self, message: Any = None, *, in_place: bool = False) -> None:
        """Begin to guard, for one handler. A handler that does not ask for the connection costs nothing else.

        Args:
            message: for the error of a later use.
            in_place: the handler may reach the connection without `lend`: it has brought it, or somebody else keeps it.
        """
        self.ended, self._message, self._number, self.prepared = None, message, None, None
        self.changed.clear()
        self._in_place = in_place and self.refuse is not None
        if self._in_place:
            self.connection.__class__ = self._lending
            self.connection.__dict__.update(self._guarded)

    def lend(self, connection: psycopg.Connection) -> psycopg.Connection:
        """Return the object that the handler uses for the connection."""
        if self._lent is None:
            self._lent = object.__new__(self._lending)
            self._lent.__dict__ = {**connection.__dict__, **self._guarded}
        return self._lent

    def raw_handle_taken(self) -> None:
        """Note that a handler takes the raw handle of libpq. This costs a round trip, and another one at the handler's end."""
        if self._number is None and self.refuse is not None:
            self._number = self._ask_number()

    def _ask_number(self) -> str:
        """Return the number of the open transaction. Empty if there is none, or it cannot be asked now."""
        with suppress(psycopg.Error):
            if self.connection.__dict__["pgconn"].transaction_status == TransactionStatus.INTRANS:
                rows = libpq.call(self.connection, _NUMBER)
                return rows[0][0] or ""
        return ""

    def stop(self) -> None:
        """Stop guarding. What was lent refuses to be used. Can be called again."""
        if self._lent is None and not self._in_place:
            return
        number, self._number = self._number, None
        if number is not None and self._ask_number() != (number or None):
            self.ended = self.ended or "unknown"
        if self._in_place:
            self._in_place = False
            self.connection.__class__ = self._class
            own = self.connection.__dict__
            own.pop(_GUARD, None)
            own["cursor_factory"] = self._factory
        if self._lent is not None:
            self._lent.__dict__["pgconn"] = _Over(self._refuse_late or self.refuse, self._message)
            self._lent = None
        if self.ended in (_PREPARES, "unknown") and self._undo_prepared(number):
            self.ended = "ROLLBACK"

    def _undo_prepared(self, number: str | None) -> bool:
        """Roll back the transaction if the handler has prepared it: it would hold the message, until somebody decides. Return whether it did.

        Args:
            number: of the transaction, if it is known.
        """
        try:
            self.connection.rollback()  # of what the handler began afterwards
            name = self.prepared
            if name is None and number:
                name = next((row[0] for row in libpq.call(self.connection, libpq.Call(_PREPARED, [("bigint", int(number))], ("text",), tuple))), None)
            if name is None:
                return False
            libpq.command(self.connection, psycopg.sql.SQL("ROLLBACK PREPARED {}").format(name).as_string(self.connection).encode())
        except psycopg.Error:  # somebody else has decided, the role may not, or the connection is lost
            return False
        return True


class _Over:
    """Stands for the session in a connection whose handler has ended."""

    def __init__(self, refuse: Callable[[Any], NoReturn] | None, message: Any) -> None:
        self.__refuse, self.__message = refuse, message

    def __getattr__(self, _: str) -> NoReturn:
        if self.__refuse is not None:
            self.__refuse(self.__message)
        raise psycopg.OperationalError("the handler to which this connection was lent has ended")


_REFUSED = {"commit": "commits", "rollback": "rolls back", "close": "closes"}


def _is_own(module: dict[str, Any]) -> bool:
    own = str(module.get("__name__", "")).startswith(_OWN)
    if own:
        _own_modules.add(id(module))
    return own


@cache
def _lending(kind: Any) -> type:
    """Return the class of what is lent of a class of connections. It names the driver's module, by which drivers are told apart."""

    frame = sys._getframe

    def refusing(name: str, verb: str) -> Callable[[Any], None]:
        def method(self: Any) -> None:
            self.pgconn.status  # noqa: B018 -- raises if the handler has ended
            guard = self.__dict__[_GUARD]
            if guard.refuse is not None:
                guard.refuse(verb)
            getattr(kind, name)(self)

        return method

    def pgconn(self: Any) -> Any:
        module = frame(1).f_globals
        if id(module) not in _own_modules and not _is_own(module):  # a handler's own code
            self.__dict__[_GUARD].raw_handle_taken()
        return self.__dict__["pgconn"]

    members: dict[str, Any] = {name: refusing(name, verb) for name, verb in _REFUSED.items()}
    members["pgconn"] = property(pgconn)
    members["__repr__"] = lambda self: f"<{type(self).__name__} lent to a handler>"
    members["__del__"] = lambda self: None  # the session belongs to the other object: nothing is left open
    return type(kind.__name__, (kind,), {**members, "__module__": kind.__module__})


class _GuardedCursor(psycopg.Cursor):
    """Check after each statement whether the transaction is still the same one.

    A handler can end it and begin another one, such as with ROLLBACK AND CHAIN. The tags of the commands show that, without
    a question to the server.
    """

    def execute(self, *arguments: Any, **options: Any) -> _GuardedCursor:
        connection = self._conn
        try:
            super().execute(*arguments, **options)
        except psycopg.Error:
            guard = connection.__dict__.get(_GUARD)
            if guard is not None and connection.pgconn.transaction_status == _IDLE:
                guard.ended = guard.ended or "ROLLBACK"  # a COMMIT that failed
            raise
        query, tag = arguments[0] if arguments else options["query"], self.statusmessage
        if tag in _CHANGES or "set_config" in str(query):
            self._changed({tag}, query)
        idle = self._pgconn.transaction_status == _IDLE
        if idle or len(self._results) > 1 or tag in _ENDS:
            tags = [(result.command_status or b"").decode() for result in self._results]
            if not _CHANGES.isdisjoint(tags):
                self._changed(tags, query)
            ends = [tag for tag in tags if tag in _ENDS]
            if idle or (ends and not (set(ends) == {"ROLLBACK"} and len(_STAYS.findall(self._text(query))) >= len(ends))):
                name = _NAME.search(self._text(query)) if ends[:1] == [_PREPARES] else None
                self._refuse(ends[0] if name else "COMMIT" if "COMMIT" in ends else ends[0] if ends else "unknown", name)
        return self

    def _text(self, query: Any) -> str:
        if isinstance(query, psycopg.sql.Composable):
            return query.as_string(self.connection)
        return query.decode(errors="replace") if isinstance(query, bytes) else str(query)

    def _changed(self, tags: Iterable[str | None], query: Any) -> None:
        guard = self.connection.__dict__.get(_GUARD)
        if guard is not None:
            guard.changed.add("session" if _LASTS.search(self._text(query)) else "transaction")
            if "DEALLOCATE ALL" in tags:
                guard.changed.add("prepared")

    def _refuse(self, ended: str, prepared: re.Match[str] | None = None) -> None:
        guard = self.connection.__dict__.get(_GUARD)
        if guard is None:
            return
        if guard.ended is None:  # the first one decides what became of the message
            guard.ended, guard.prepared = ended, prepared and prepared[1].replace("''", "'")
        guard.refuse("ended" if prepared is None else f"prepared, under the name {guard.prepared!r},")
