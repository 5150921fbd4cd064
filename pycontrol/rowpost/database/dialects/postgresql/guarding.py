"""Lend a psycopg connection to one handler after the other: what would end the transaction is refused, or at least
noticed.

A handler gets an object of its own for the connection when it first asks for it (see `lending`). Its commit, rollback
and close raise an error with an explanation. Its cursors check whether a COMMIT or ROLLBACK in plain SQL has ended the
transaction, and record which of the two it was. When the handler has ended, every use of the object raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn

import psycopg
import psycopg.sql
from psycopg.pq import TransactionStatus

from rowpost.database.dialects.postgresql import asynchronous, libpq
from rowpost.database.dialects.postgresql.lending import GUARD, Lender, asked_by_handler

__all__ = ["HandlerGuard"]

_PREPARES = "PREPARE TRANSACTION"
_NAME = re.compile(r"\bprepare\s+transaction\s+'((?:[^']|'')*)'", re.IGNORECASE)
#: a transaction's number counts its 32-bit wrap-arounds, and that of a prepared one does not
_PREPARED = (
    "SELECT p.gid FROM pg_catalog.pg_prepared_xacts AS p"
    " WHERE p.database = pg_catalog.current_database() AND p.transaction::text = ($1::bigint % 4294967296)::text"
)
_NUMBER = libpq.PreparedCall("SELECT pg_catalog.pg_current_xact_id()::text", (), ("string",), tuple)
_IDLE = int(TransactionStatus.IDLE)
# Within a transaction, these commands end it. ROLLBACK is also the tag of ROLLBACK TO SAVEPOINT, which does not.
_ENDS = frozenset({"COMMIT", "ROLLBACK", _PREPARES})
# These change what the handlers of later messages meet. SET is also the tag of SET LOCAL and SET TRANSACTION, which end
# with the transaction.
_CHANGES = frozenset({"SET", "RESET", "DEALLOCATE ALL"})
_NOTED = frozenset(tag.encode() for tag in _ENDS | _CHANGES)
_LASTS = re.compile(
    r"\bset\s+(?!local\b|transaction\b)|\breset\s|\bset_config\s*\((?![^()]*,\s*true\s*\))", re.IGNORECASE
)
_STAYS = re.compile(r"\brollback\b(?:\s+(?:work|transaction))?\s+to\b", re.IGNORECASE)


class HandlerGuard:
    """The guard of one connection, which several handlers use one after the other.

    Args:
        connection: the connection.
        refuse: called with the verb of what a handler tried; raises an error. None lets handlers have transactions of
            their own.
        refuse_late: called with what `start` was given if the connection is used after the handler; raises an error.

    Attributes:
        ended: the command that ended the transaction first, COMMIT, ROLLBACK or PREPARE TRANSACTION, or "unknown"; None
            if none did, or none was seen. `stop` rolls a prepared transaction back: then it is ROLLBACK.
        changed: what a handler may have changed: "transaction" for settings until its end, "session" for those that
            last, "prepared" for the prepared statements.
    """

    def __init__(
        self,
        connection: psycopg.Connection,
        refuse: Callable[[str], NoReturn] | None,
        refuse_late: Callable[[Any], NoReturn] | None = None,
    ) -> None:
        self.connection = connection
        self.refuse, self._refuse_late = refuse, refuse_late
        self.ended: str | None = None
        #: the name under which the handler prepared the transaction, if its SQL was seen
        self.prepared: str | None = None
        self.changed: set[str] = set()
        self._message: Any = None
        self._in_place = False
        #: the transaction's number if a handler took the raw handle, whose statements nobody sees; empty if it cannot
        #: be compared
        self._number: str | None = None
        self._guarded: dict[str, Any] = {GUARD: self}
        connection.adapters  # noqa: B018 -- is made at its first use: now, or for each object that is lent
        self._factory = connection.cursor_factory
        if self._factory is psycopg.Cursor and refuse is not None:
            self._guarded["cursor_factory"] = _GuardedCursor
        self._class = type(connection)
        #: makes what is lent
        self.lender = Lender(connection, self._guarded)
        #: what an async handler has
        self._lent_async: psycopg.AsyncConnection | None = None
        #: what else it has for the session
        self._lent_mapped: list[Any] = []

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
            self.connection.__class__ = self.lender.classes.in_place
            self.connection.__dict__.update(self._guarded)

    def lend(self, connection: psycopg.Connection) -> Any:
        """Return the object that the handler uses for the connection."""
        return self.lender.lend()

    def lend_async(self, connection: psycopg.Connection) -> psycopg.AsyncConnection:
        """Return the object that an `async def` handler uses for the connection: the same one until `stop`."""
        if self._lent_async is None:
            self._lent_async = asynchronous.lend(connection, self, _GuardedAsyncCursor)
        return self._lent_async

    def lend_mapped(
        self,
        connection: psycopg.Connection,
        *,
        types: Any = None,
        cursors: type[Any] | None = None,
        is_async: bool = False,
    ) -> Any:
        """Return another object for the session, with adapters of types and cursors of its own.

        Args:
            connection: the connection.
            types: the adapters; None: those of the connection.
            cursors: the class of cursors; None: the driver's.
            is_async: whether it is for an event loop.
        """
        kind: Any = cursors or (psycopg.AsyncCursor if is_async else psycopg.Cursor)
        watched = _watched(kind, is_async)
        lent = asynchronous.lend_mapped(connection, self, types=types, cursors=watched, is_async=is_async)
        self._lent_mapped.append(lent)
        return lent

    def raw_handle_taken(self) -> None:
        """Note that a handler takes the raw handle of libpq.

        This costs a round trip, and another one at the handler's end.
        """
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
        if not (self.lender.lent or self._in_place or self._lent_async is not None or self._lent_mapped):
            return
        number, self._number = self._number, None
        if number is not None and self._ask_number() != (number or None):
            self.ended = self.ended or "unknown"
        if self._in_place:
            self._in_place = False
            self.connection.__class__ = self._class
            own = self.connection.__dict__
            own.pop(GUARD, None)
            own["cursor_factory"] = self._factory
        if self.lender.lent:
            self.lender.take_back(self._refuse_late or self.refuse, self._message)
        for lent in (self._lent_async, *self._lent_mapped):
            if lent is not None:
                asynchronous.take_back(lent, self._refuse_late or self.refuse, self._message)
        self._lent_async = None
        self._lent_mapped.clear()
        if self.ended in (_PREPARES, "unknown") and self._undo_prepared(number):
            self.ended = "ROLLBACK"

    def _undo_prepared(self, number: str | None) -> bool:
        """Roll back the transaction if the handler has prepared it: it would hold the message, until somebody decides.

        Return whether it did.

        Args:
            number: of the transaction, if it is known.
        """
        try:
            self.connection.rollback()  # of what the handler began afterwards
            name = self.prepared
            if name is None and number:
                name = next(
                    (
                        row[0]
                        for row in libpq.call(
                            self.connection, libpq.PreparedCall(_PREPARED, [("bigint", int(number))], ("text",), tuple)
                        )
                    ),
                    None,
                )
            if name is None:
                return False
            libpq.command(
                self.connection,
                psycopg.sql.SQL("ROLLBACK PREPARED {}").format(name).as_string(self.connection).encode(),
            )
        except psycopg.Error:  # somebody else has decided, the role may not, or the connection is lost
            return False
        return True


class _Watched:
    """What both classes of cursors do: check after each statement whether the transaction is still the same one.

    A handler can end it and begin another one, such as with ROLLBACK AND CHAIN. The tags of the commands show that,
    without a question to the server.
    """

    _conn: Any
    _pgconn: Any
    _results: Any
    pgresult: Any

    def _failed(self) -> None:
        """Note that a statement failed."""
        guard = self._conn.__dict__.get(GUARD)
        if guard is not None and self._pgconn.transaction_status == _IDLE:
            guard.ended = guard.ended or "ROLLBACK"  # a COMMIT that failed

    def _executed(self, query: Any) -> None:
        """Look at what a statement did."""
        result, idle = self.pgresult, self._pgconn.transaction_status == _IDLE
        if (
            idle
            or len(self._results) > 1
            or (result is not None and result.command_status in _NOTED)
            or "set_config" in str(query)
        ):
            self._note(query, [(each.command_status or b"").decode() for each in self._results], idle)

    def _note(self, query: Any, tags: list[str], idle: bool) -> None:
        """Note what statements have changed. Raise an error if they have ended the transaction."""
        if not _CHANGES.isdisjoint(tags) or "set_config" in str(query):
            self._changed(tags, query)
        ends = [tag for tag in tags if tag in _ENDS]
        if idle or (ends and not (set(ends) == {"ROLLBACK"} and len(_STAYS.findall(self._text(query))) >= len(ends))):
            name = _NAME.search(self._text(query)) if ends[:1] == [_PREPARES] else None
            self._refuse(ends[0] if name else "COMMIT" if "COMMIT" in ends else ends[0] if ends else "unknown", name)

    def _text(self, query: Any) -> str:
        if isinstance(query, psycopg.sql.Composable):
            return query.as_string(self._conn)
        return query.decode(errors="replace") if isinstance(query, bytes) else str(query)

    def _changed(self, tags: Iterable[str], query: Any) -> None:
        guard = self._conn.__dict__.get(GUARD)
        if guard is not None:
            guard.changed.add("session" if _LASTS.search(self._text(query)) else "transaction")
            if "DEALLOCATE ALL" in tags:
                guard.changed.add("prepared")

    def _refuse(self, ended: str, prepared: re.Match[str] | None = None) -> None:
        guard = self._conn.__dict__.get(GUARD)
        if guard is None:
            return
        if guard.ended is None:  # the first one decides what became of the message
            guard.ended, guard.prepared = ended, prepared and prepared[1].replace("''", "'")
        guard.refuse("ended" if prepared is None else f"prepared, under the name {guard.prepared!r},")


class _WatchedCursor(_Watched):
    def execute(self, *arguments: Any, **options: Any) -> Any:
        try:
            super().execute(*arguments, **options)  # type: ignore[misc]
        except psycopg.Error:
            self._failed()
            raise
        self._executed(arguments[0] if arguments else options["query"])
        return self


class _GuardedCursor(_WatchedCursor, psycopg.Cursor):
    """A cursor of the objects of `lending`."""

    @property
    def connection(self) -> Any:
        """The connection: for the driver the one on which the cursor runs, for a handler the one that it got."""
        guard = self._conn.__dict__.get(GUARD) if asked_by_handler(2) else None
        return self._conn if guard is None else guard.lender.outer_of(self._conn)


class _WatchedAsyncCursor(_Watched):
    async def execute(self, *arguments: Any, **options: Any) -> Any:
        try:
            await super().execute(*arguments, **options)  # type: ignore[misc]
        except psycopg.Error:
            self._failed()
            raise
        self._executed(arguments[0] if arguments else options["query"])
        return self


class _GuardedAsyncCursor(_WatchedAsyncCursor, psycopg.AsyncCursor[Any]):
    """A cursor of the object of `asynchronous`."""


@cache
def _watched(kind: Any, is_async: bool) -> type[Any]:
    """Return a class of cursors whose statements the guard sees."""
    return type(
        kind.__name__, (_WatchedAsyncCursor if is_async else _WatchedCursor, kind), {"__module__": kind.__module__}
    )
