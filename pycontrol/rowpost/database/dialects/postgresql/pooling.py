"""Check that a pooler in front of PostgreSQL, such as PgBouncer, gives each client a session of the server to itself.

rowpost's own connections need a session: for prepared statements, for LISTEN, and for the locks of sessions that elect
one consumer or one process. If several clients share a session, the server gives such a lock to all of them.

A pooler does not say how it is configured. Therefore a second connection begins a transaction: in PgBouncer's
transaction mode it gets the session that the first connection has just used, and in statement mode it gets an error.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import psycopg

from rowpost.errors import UnsupportedServer

__all__ = ["SHARED", "check_sessions", "is_pooled"]

_REMEDY = (
    "Nothing was changed: set the pooler's pool_mode to session for this database, or name the server's own address "
    "in the url. docs/guides/poolers-and-replicas.md explains it."
)
SHARED = (
    "A pooler shares the sessions of the server between its clients (PgBouncer's transaction mode). rowpost needs a "
    "session for each of its connections: for prepared statements, for LISTEN, and for locks that elect one consumer. "
    f"{_REMEDY}"
)
_NO_TRANSACTIONS = (
    "A pooler allows no transactions of several statements (PgBouncer's statement mode), so that no message could be "
    f"received or sent in one commit with other data. {_REMEDY}"
)
#: Other clients may take a session in between, so that one round can miss the transaction mode.
_ROUNDS = 10


def is_pooled(connection: psycopg.Connection) -> bool:
    """Return whether a pooler answers: it names another process when it accepts a client than the one that runs
    statements.
    """
    return _process(connection) != connection.info.backend_pid


def check_sessions(connection: psycopg.Connection, open_second: Callable[[], psycopg.Connection]) -> None:
    """Check that a connection through a pooler keeps its session, with a second connection.

    Raises:
        UnsupportedServer: a pooler shares sessions, or allows no transactions.
        psycopg.Error: the connection was lost, or the pooler has no session left.
    """
    with closing(open_second()) as second:
        for _ in range(_ROUNDS):
            process = _process(connection)
            _begin(second)
            shared = _process(second) == process or _process(connection) != process
            second.execute("ROLLBACK", prepare=False)
            if shared:
                raise UnsupportedServer(SHARED)


def _begin(connection: psycopg.Connection) -> None:
    try:
        connection.execute("BEGIN", prepare=False)
    except psycopg.Error as error:
        if "statement pooling" in str(error):
            raise UnsupportedServer(_NO_TRANSACTIONS) from None
        raise


def _process(connection: psycopg.Connection) -> int:
    """Return the server's process that runs the connection's statements."""
    row = connection.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchone()
    return 0 if row is None else int(row[0])
