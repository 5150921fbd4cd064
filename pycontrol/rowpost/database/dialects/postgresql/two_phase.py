"""PostgreSQL's two-phase commit, as psycopg has it: begin, prepare, commit or roll back, and what is in doubt."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg.pq import TransactionStatus

from rowpost.database.dialects.postgresql.dialect import POSTGRESQL
from rowpost.errors import ParticipantFailed, RowpostError, SettingsError

__all__ = ["Participant", "Prepared", "coordinator_id", "identity", "open_participant", "transaction_prefix"]

# somebody else has carried it out, or is just doing so
_DONE = "42704"
_BUSY = "55000"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared transaction; `prepared_at` has a time zone."""

    gid: str
    prepared_at: datetime
    owner: str


def identity(connection: psycopg.Connection) -> str:
    """Server and database, by the server's own identifier: the same whatever name or address led there.

    Raises:
        psycopg.Error
    """
    row = connection.execute(
        "SELECT c.system_identifier::text || '.' || d.oid::text"
        " FROM pg_catalog.pg_control_system() AS c, pg_catalog.pg_database AS d WHERE d.datname = current_database()",
        prepare=False,
    ).fetchone()
    return "" if row is None else row[0]


def open_participant(name: str, url: str, application_name: str) -> Participant:
    """Connect, and make sure that transactions can be prepared there.

    Raises:
        ParticipantFailed: nobody answers, or the login is refused.
        SettingsError: the server does not prepare transactions, or the URL cannot be read.
    """
    try:
        connection = POSTGRESQL.connect(url, application_name)
    except SettingsError:
        raise
    except RowpostError as error:
        raise ParticipantFailed(f"The participant {name!r} cannot be reached: {error}") from error
    participant = Participant(name, connection)
    with participant.translated("asked who it is"):
        participant.identity = identity(connection)
        row = connection.execute("SHOW max_prepared_transactions", prepare=False).fetchone()
    if row is None or int(row[0]) == 0:
        connection.close()
        raise SettingsError(
            f"The server of the participant {name!r} prepares no transactions: its max_prepared_transactions is 0. Set "
            "it to 64 (at least as many as there are workers) in postgresql.conf and restart that server."
        )
    connection.autocommit = False
    return participant


class Participant:
    """A connection to a database that takes part in transactions, one after the other.

    Errors of the server are ParticipantFailed; after one of them the connection is closed where its state is unknown.
    """

    def __init__(self, name: str, connection: psycopg.Connection) -> None:
        self.name, self.connection = name, connection
        self.identity = ""
        #: what the connection was before it took part
        self.autocommit = False

    @property
    def closed(self) -> bool:
        return self.connection.closed or self.connection.broken

    @property
    def idle(self) -> bool:
        """Whether no transaction is open."""
        return not self.closed and self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def doomed(self) -> bool:
        """Whether a statement failed: PREPARE would roll back, and say nothing."""
        return self.connection.pgconn.transaction_status == TransactionStatus.INERROR

    def begin(self, gid: str) -> None:
        with self.translated("begun"):
            self.connection.tpc_begin(_xid(gid))
            # what was notified cannot be prepared: messages that are sent here wait for the next peek
            self.connection.execute("SELECT pg_catalog.set_config('rowpost.wake_up', 'off', true)", prepare=False)

    def prepare(self) -> None:
        """From now on the transaction outlives connection and server."""
        with self.translated("prepared"):
            self.connection.tpc_prepare()

    def commit(self) -> None:
        """Commit what is prepared. Raises ParticipantFailed: it stays in doubt, for recovery."""
        with self.translated("committed"), self._already():
            self.connection.tpc_commit()

    def rollback(self) -> None:
        """Undo, prepared or not. Raises ParticipantFailed: what was prepared stays in doubt."""
        with self.translated("rolled back"), self._already():
            self.connection.tpc_rollback()

    @contextmanager
    def _already(self) -> Iterator[None]:
        """Recovery was faster: then psycopg still believes in its transaction, and the connection is given up."""
        try:
            yield
        except psycopg.Error as error:
            if error.sqlstate != _DONE:
                raise
            self.close()

    def prepared(self) -> list[Prepared]:
        """Return what is prepared in this database, by anybody."""
        with self.translated("asked for prepared transactions"):
            found = self.connection.tpc_recover()
        here = self.connection.info.dbname
        return [
            Prepared(str(x), x.prepared, x.owner or "") for x in found if x.database == here and x.prepared is not None
        ]

    def resolve(self, gid: str, *, commit: bool) -> bool:
        """End a prepared transaction that a coordinator left; False where somebody else does so at the same time."""
        try:
            with self.translated("resolved"):
                (self.connection.tpc_commit if commit else self.connection.tpc_rollback)(_xid(gid))
        except ParticipantFailed as error:
            if getattr(error.__cause__, "sqlstate", None) in (_DONE, _BUSY):
                return False
            raise
        return True

    def close(self) -> None:
        """Close the connection: what is not prepared rolls back."""
        with suppress(psycopg.Error):
            self.connection.close()

    @contextmanager
    def translated(self, what: str) -> Iterator[None]:
        """Turn psycopg's errors into ParticipantFailed."""
        try:
            yield
        except psycopg.Error as error:
            said = " ".join(str(error).split())
            hint = " (see max_prepared_transactions)" if error.sqlstate == "53400" else ""
            raise ParticipantFailed(
                f"The transaction at the participant {self.name!r} could not be {what}: {said}{hint}"
            ) from error


def _xid(gid: str) -> psycopg.Xid:
    return psycopg.Xid(None, gid, None)


def coordinator_id(home: str) -> str:
    """How the identifiers of all transactions begin that a queue's database decides.

    >>> coordinator_id("7437216574839920312.16384")
    'rowpost_5649576a09be'
    """
    return f"rowpost_{hashlib.sha256(home.encode()).hexdigest()[:12]}"


def transaction_prefix(home: str, queue_key: str) -> str:
    """How the identifiers of all transactions begin that messages of a queue cause.

    Only a login that may receive from the queue can record a decision for it, so the queue is part of the identifier: a
    decision of another queue does not count.

    >>> transaction_prefix("7437216574839920312.16384", "Sales")
    'rowpost_5649576a09be_8de4e0ea_'
    """
    return f"{coordinator_id(home)}_{hashlib.sha256(queue_key.encode()).hexdigest()[:8]}_"
