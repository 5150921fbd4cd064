"""A psycopg connection in the hands of a handler: what would end the transaction is refused, or at least seen.

While lent, the connection's own commit, rollback and close are replaced by functions that explain, and its cursors see
when a COMMIT or ROLLBACK in plain SQL has ended the transaction, and which of the two it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import psycopg
from psycopg.pq import TransactionStatus

__all__ = ["Loan"]

_LOAN = "rowpost_loan"
_REFUSED = {"commit": "commits", "rollback": "rolls back", "close": "closes"}
_IDLE = TransactionStatus.IDLE


class Loan:
    """One connection, lent for one handler after the other.

    `refuse` is called with the verb of what was tried, and raises. `ended` says how a statement has ended the
    transaction: COMMIT or ROLLBACK, None where it did not, or nobody saw it.
    """

    def __init__(self, connection: psycopg.Connection, refuse: Callable[[str], NoReturn]) -> None:
        self.connection = connection
        self.refuse = refuse
        self.ended: str | None = None
        self._lent = {name: _refusal(refuse, verb) for name, verb in _REFUSED.items()}
        self._lent[_LOAN] = self
        self._factory = connection.cursor_factory
        if self._factory is psycopg.Cursor:
            self._lent["cursor_factory"] = _LentCursor

    def lend(self) -> None:
        """From now on it is the handler's."""
        self.ended = None
        self.connection.__dict__.update(self._lent)

    def take_back(self) -> None:
        """From now on it is ours. Harmless where it is ours already."""
        own = self.connection.__dict__
        if own.pop(_LOAN, None) is not None:
            for name in _REFUSED:
                own.pop(name, None)
            own["cursor_factory"] = self._factory


def _refusal(refuse: Callable[[str], NoReturn], verb: str) -> Callable[[], None]:
    return lambda: refuse(verb)


class _LentCursor(psycopg.Cursor):
    """Looks, after each statement, whether the transaction is still open."""

    def execute(self, *arguments: Any, **options: Any) -> _LentCursor:
        connection = self.connection
        try:
            super().execute(*arguments, **options)
        except psycopg.Error:
            loan = connection.__dict__.get(_LOAN)
            if loan is not None and connection.pgconn.transaction_status == _IDLE:
                loan.ended = "ROLLBACK"  # a COMMIT that failed
            raise
        if connection.pgconn.transaction_status == _IDLE:
            loan = connection.__dict__.get(_LOAN)
            if loan is not None:
                loan.ended = self.statusmessage
                loan.refuse("ended")
        return self
