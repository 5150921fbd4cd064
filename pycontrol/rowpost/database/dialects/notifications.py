"""PostgreSQL's LISTEN: hearing senders on a connection that does something else meanwhile.

The functions of sql/postgresql notify the channel `rowpost`, with a queue's key, while somebody sleeps (watch_queue).
"""

from __future__ import annotations

import psycopg

__all__ = ["heard", "listen"]


def listen(connection: psycopg.Connection) -> bool:
    """Listens from now on; False where notifications would not arrive.

    A pooler that hands its server connections around (PgBouncer's transaction mode) accepts LISTEN and delivers to
    nobody. It gives itself away: the process that answers is not the one that the client was told.

    Raises:
        psycopg.Error: lost, or refused (a standby).
    """
    row = connection.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchone()
    if row is None or row[0] != connection.info.backend_pid:
        return False
    connection.execute("LISTEN rowpost", prepare=False)
    return True


def heard(connection: psycopg.Connection) -> list[str]:
    """What has been notified since the last time, without waiting. Raises psycopg.Error: the connection is lost."""
    pgconn = connection.pgconn
    with connection.lock:
        pgconn.consume_input()
        found: dict[str, None] = {}  # a burst rings often
        while (notify := pgconn.notifies()) is not None:
            found[notify.extra.decode()] = None
    return list(found)
