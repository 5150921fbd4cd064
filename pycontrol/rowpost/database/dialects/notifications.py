"""PostgreSQL's LISTEN: hearing senders on a connection that does something else meanwhile.

The functions of sql/postgresql notify the channel `rowpost`, with a queue's key, while somebody sleeps (watch_queue).
"""

from __future__ import annotations

import psycopg

__all__ = ["heard", "listen"]


def listen(connection: psycopg.Connection) -> bool:
    """Listen from now on. The connection must be rowpost's own: `pooling` has checked that it keeps its session.

    Raises:
        psycopg.Error: lost, or refused (a standby).
    """
    connection.execute("LISTEN rowpost", prepare=False)
    return True


def heard(connection: psycopg.Connection) -> list[str]:
    """Return what has been notified since the last time, without waiting. Raises psycopg.Error: the connection is lost."""
    pgconn = connection.pgconn
    with connection.lock:
        pgconn.consume_input()
        found: dict[str, None] = {}  # a burst rings often
        while (notify := pgconn.notifies()) is not None:
            found[notify.extra.decode()] = None
    return list(found)
