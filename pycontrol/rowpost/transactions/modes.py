"""The four transaction modes: what is committed together with the removal of a message (reference 1E).

    mode                        removal          what is sent           the handler's SQL       a failing handler
    none                        before it runs   each on its own        as it likes             error queue, one call
    receive_only                after            just before, apart     with the removal        retried; may send twice
    sends_atomic_with_receive   after            with the removal       with the removal        retried
    transaction_scope           after            with the removal       in several databases    retried

The pipeline walks the way of one message; what differs by mode is decided here. `transaction_scope` spans other
databases: on PostgreSQL by two-phase commit (twophase.py); on SQL Server the receiving connection reaches them by their
names, in a distributed transaction where one lies on a linked server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Begin
from rowpost.errors import HandlerBrokeTransaction, SettingsError
from rowpost.transactions.coordinator import Coordinator

__all__ = ["ConnectionGuard", "OneConnection", "Scope", "begin_of", "broke", "make_scope", "no_step"]

#: a database's name on SQL Server, or a linked server's and a database's
_PLACE = re.compile(r"(?:(?:\[[^\]]+\]|[^.\[\];=]+)\.)?(?:\[[^\]]+\]|[^.\[\];=]+)")


class Scope(Protocol):
    """Other databases in the transaction of a message."""

    in_doubt: bool

    @property
    def active(self) -> bool:
        """Whether another connection has a transaction open."""

    def home(self, database: Connection) -> Connection:
        """Where a handler's data are: the queue's database, but for an outbox."""

    def enlist(self, participant: Any, database: Connection) -> Any:
        """The connection on which a participant's data are worked with."""

    def take_back(self) -> None: ...
    def prepare(self, database: Connection) -> None: ...
    def complete(self) -> None: ...
    def rollback(self) -> None: ...
    def undecided(self) -> None: ...
    def settle(self, database: Connection) -> None: ...
    def recover(self, database: Connection) -> None: ...
    def close(self, database: Connection) -> None: ...


class OneConnection:
    """All that a message changes is changed on the receiving connection: nothing has to be coordinated.

    `participants` are databases that this connection reaches by name, as SQL Server's does.
    """

    active = in_doubt = False

    def __init__(self, mode: str, participants: Mapping[str, str]) -> None:
        self._mode, self._participants = mode, participants

    def home(self, database: Connection) -> Connection:
        """The queue's database."""
        return database

    def enlist(self, participant: Any, database: Connection) -> Any:
        """The receiving connection, where the mode allows it.

        Raises:
            SettingsError: the mode is not transaction_scope, or nobody is named so.
        """
        if self._mode != "transaction_scope":
            raise SettingsError(
                f"In the transaction mode {self._mode} no other database can take part. Give the endpoint "
                "transaction_mode='transaction_scope', or work on a connection of your own, which commits by itself."
            )
        if participant not in self._participants:
            raise SettingsError(
                f"No participant is named {participant!r}; known: {', '.join(sorted(self._participants)) or 'none'}."
            )
        return database.driver_connection

    def take_back(self) -> None: ...
    def prepare(self, database: Connection) -> None: ...
    def complete(self) -> None: ...
    def rollback(self) -> None: ...
    def undecided(self) -> None: ...
    def settle(self, database: Connection) -> None: ...
    def recover(self, database: Connection) -> None: ...
    def close(self, database: Connection) -> None: ...


class ConnectionGuard:
    """Lends the receiving connection to handlers, and knows what they did with it."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._guard: Any = None
        self._connection: Any = None

    def lend(self, database: Connection) -> None:
        """From now on commit, rollback and close explain themselves where the driver lets us."""
        if self._connection is not database.driver_connection:
            self._connection = database.driver_connection
            self._guard = database.dialect.guard(database.driver_connection, self._refuse)
        if self._guard is not None:
            self._guard.start()

    def take_back(self) -> None:
        """The handler has ended."""
        if self._guard is not None:
            self._guard.stop()

    @property
    def ended(self) -> str | None:
        """COMMIT or ROLLBACK where the handler's SQL ended the transaction and was seen, else None."""
        return None if self._guard is None else self._guard.ended

    def _refuse(self, verb: str) -> NoReturn:
        raise broke(self._queue, f"{verb} the transaction or connection")


def broke(queue: str, what: str) -> HandlerBrokeTransaction:
    """The explanation for a handler that takes more than it was lent."""
    return HandlerBrokeTransaction(
        f"the handler of queue {queue!r} {what} that it was lent: what it does on that connection commits "
        "together with the message; let it return or raise, and open a connection of its own for anything else"
    )


def begin_of(mode: str, engine: str, participants: Mapping[str, str]) -> Begin:
    """How the receiving transaction begins.

    >>> begin_of("none", "sqlserver", {}), begin_of("transaction_scope", "sqlserver", {"shop": "sql02.shop"})
    (False, 'distributed')
    """
    if mode == "none":
        return False
    if mode == "transaction_scope" and engine == "sqlserver" and any(_is_remote(place) for place in participants.values()):
        return "distributed"
    return True


def _is_remote(place: str) -> bool:
    """Whether a SQL Server name has two parts: linked server and database."""
    return "." in re.sub(r"\[[^\]]*\]", "", place)


def make_scope(
    mode: str, database: Connection, queue: str, participants: Mapping[str, str], step: Callable[[str], None]
) -> Scope:
    """What coordinates a message's transaction: a two-phase commit only where several connections can be in it.

    Raises:
        SettingsError: a participant is not what the engine wants.
    """
    if mode != "transaction_scope":
        return OneConnection(mode, {})
    if database.engine == "postgresql":
        return Coordinator(queue, participants, step)
    for name, place in participants.items():
        if not _PLACE.fullmatch(place):
            raise SettingsError(
                f"The participant {name!r} must be the name of a database on this SQL Server, or of a linked server and a "
                "database there, such as sql02.shop: transactions reach it through the receiving connection."
            )
    return OneConnection(mode, participants)


def no_step(_: str) -> None:
    """Nobody follows the steps of a message."""
