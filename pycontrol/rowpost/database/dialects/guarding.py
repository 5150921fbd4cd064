"""Guard a psycopg connection while a handler uses it: what would end the transaction is refused, or at least noticed.

While a `HandlerGuard` is active, the connection's commit, rollback and close are replaced by functions that raise an
error with an explanation. Its cursors check whether a COMMIT or ROLLBACK in plain SQL has ended the transaction, and
record which of the two it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import psycopg
import psycopg.sql
from psycopg.pq import TransactionStatus

__all__ = ["HandlerGuard"]

_GUARD = "rowpost_guard"
_REFUSED = {"commit": "commits", "rollback": "rolls back", "close": "closes"}
_IDLE = TransactionStatus.IDLE
# Within a transaction, these commands end it. ROLLBACK is also the tag of ROLLBACK TO SAVEPOINT, which does not.
_ENDS = frozenset({"COMMIT", "ROLLBACK", "PREPARE TRANSACTION"})
# These change what the handlers of later messages meet. SET is also the tag of SET LOCAL and SET TRANSACTION, which end with the transaction.
_CHANGES = frozenset({"SET", "RESET", "DEALLOCATE ALL"})
_LASTS = re.compile(r"\bset\s+(?!local\b|transaction\b)|\breset\s|\bset_config\s*\((?![^()]*,\s*true\s*\))", re.IGNORECASE)
_STAYS = re.compile(r"\brollback\b(?:\s+(?:work|transaction))?\s+to\b", re.IGNORECASE)


class HandlerGuard:
    """The guard of one connection, which several handlers use one after the other.

    Attributes:
        refuse: called with the verb of what a handler tried; raises an error.
        ended: the command that ended the transaction, COMMIT or ROLLBACK; None if none did, or none was seen.
        changed: what a handler may have changed: "transaction" for settings until its end, "session" for those that last, "prepared" for
            the prepared statements.
    """

    def __init__(self, connection: psycopg.Connection, refuse: Callable[[str], NoReturn]) -> None:
        self.connection = connection
        self.refuse = refuse
        self.ended: str | None = None
        self.changed: set[str] = set()
        self._guarded: dict[str, Any] = {name: _refusal(refuse, verb) for name, verb in _REFUSED.items()}
        self._guarded[_GUARD] = self
        self._factory = connection.cursor_factory
        if self._factory is psycopg.Cursor:
            self._guarded["cursor_factory"] = _GuardedCursor

    def start(self) -> None:
        """Guard the connection, for one handler."""
        self.ended = None
        self.changed.clear()
        self.connection.__dict__.update(self._guarded)

    def stop(self) -> None:
        """Stop guarding. Does nothing if the guard is not active."""
        own = self.connection.__dict__
        if own.pop(_GUARD, None) is not None:
            for name in _REFUSED:
                own.pop(name, None)
            own["cursor_factory"] = self._factory


def _refusal(refuse: Callable[[str], NoReturn], verb: str) -> Callable[[], None]:
    return lambda: refuse(verb)


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
                guard.ended = "ROLLBACK"  # a COMMIT that failed
            raise
        query, tag = arguments[0] if arguments else options["query"], self.statusmessage
        if tag in _CHANGES or "set_config" in str(query):
            self._changed({tag}, query)
        if connection.pgconn.transaction_status == _IDLE:
            self._refuse(tag)
        elif len(self._results) > 1 or tag in _ENDS:
            tags = [(result.command_status or b"").decode() for result in self._results]
            if not _CHANGES.isdisjoint(tags):
                self._changed(tags, query)
            ends = [tag for tag in tags if tag in _ENDS]
            if ends and not (set(ends) == {"ROLLBACK"} and len(_STAYS.findall(self._text(query))) >= len(ends)):
                self._refuse("COMMIT" if "COMMIT" in ends else ends[0])
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

    def _refuse(self, ended: str | None) -> None:
        guard = self.connection.__dict__.get(_GUARD)
        if guard is not None:
            guard.ended = ended
            guard.refuse("ended")
