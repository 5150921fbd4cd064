"""Maintain outboxes: send what a worker left behind, and delete old records.

Used by every supervisor and by the command line.

    send_left_behind(database, business, ["Sales"])    # what the handlers of messages sent, and what was not sent yet
    clean(business, retention), clean_dispatches(database, retention)

A worker that dies after the business commit leaves its message in the queue. When the message is received again, its
outgoing messages are sent. Only if the message was purged, has expired or is in the error queue, its outgoing messages
stay in the outbox. Then this module sends them. That is safe while workers run, because `record_dispatch` lets no
outgoing messages be sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import AlreadyDispatched, DatabaseUnavailable, Deadlock, RowpostError
from rowpost.outbox.declaration import decode_outgoing
from rowpost.recoverability.policy import Host
from rowpost.recoverability.retries import roll_back
from rowpost.transport.directory import Directory
from rowpost.transport.dispatch import dispatch
from rowpost.wire.address import endpoint_name
from rowpost.wire.outgoing import Call

__all__ = [
    "LEFT_BEHIND_AFTER_SECONDS", "SentLeftBehind", "clean", "clean_dispatches", "list_left_behind", "send_left_behind",
    "send_stored", "why_unsent",
]  # fmt: skip


LEFT_BEHIND_AFTER_SECONDS = 60
#: messages that are listed at once
PAGE = 1000
#: rows deleted at once; SQL Server locks the whole table from 5000 locks on
BATCH = 4000


@dataclass(slots=True)
class SentLeftBehind:
    """The result of `send_left_behind`.

    Attributes:
        sent: handled messages whose outgoing messages were sent now.
        settled: handled messages whose outgoing messages had been sent before.
        failed: error texts by message, for all that cannot be sent.
    """

    sent: int = 0
    settled: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def send_left_behind(
    database: Connection,
    business: Connection,
    queues: Collection[str],
    *,
    error_queue: str | None = None,
    older_than: int = LEFT_BEHIND_AFTER_SECONDS,
    host_of: Callable[[str], Host] = lambda queue: Host.here(endpoint_name(queue)),
    goes_on: Callable[[], bool] = lambda: True,
) -> SentLeftBehind:
    """Send the outgoing messages of all handled messages that were not sent in time, the oldest first.

    A message that cannot be sent, and one of another environment that shares the business database, holds up no other.
    It is safe at any time, while workers run and from several processes.

    Args:
        database: a connection to the database of the queues.
        business: a connection to the business database.
        queues: the queues whose messages are looked at.
        error_queue: gets copies of events for subscribers whose tables are gone; see `dispatch`.
        older_than: seconds since a message was handled.
        host_of: returns the host of a queue's endpoint, as `Host.of_queue`.
        goes_on: is asked before each message; it returns False to stop.

    Raises:
        DatabaseUnavailable: one of the databases cannot be reached.
        RowpostError: one of the databases cannot be used, for example because its schema is missing.
    """
    result, directory = SentLeftBehind(), Directory()
    for queue, message_id in list_left_behind(business, queues, older_than):
        if not goes_on():
            break
        try:
            key = {"endpoint": queue, "message_id": message_id}
            sent = send_stored(database, business, directory, key, error_queue, host_of(queue))
        except (DatabaseUnavailable, Deadlock):
            raise
        except RowpostError as error:
            result.failed[f"{queue}: message {message_id}"] = str(error)
        else:
            result.sent += sent is True
            result.settled += sent is False
        finally:
            roll_back(business)
            roll_back(database)
    return result


def list_left_behind(
    business: Connection, queues: Collection[str], older_than: int = LEFT_BEHIND_AFTER_SECONDS
) -> Iterator[tuple[str, str]]:
    """Yield endpoint and id of the messages of these queues whose outgoing messages were not sent in time, the oldest
    first, page by page.

    Between two of them no transaction is open. What another session has locked is left out.
    """
    after: dict[str, Any] = {}
    page: list[Any] | None = None
    wanted = sorted(queues)
    while page is None or len(page) == PAGE:
        page = business.call("list_undispatched", seconds=older_than, count=PAGE, endpoints=wanted, **after)
        business.rollback()
        for row in page:
            after = {"after_ms": row.handled_ms, "after_endpoint": row.endpoint, "after_message_id": row.message_id}
            yield row.endpoint, row.message_id


def why_unsent(
    database: Connection, business: Connection, queue: str, message_id: str, *, error_queue: str | None = None
) -> str | None:
    """Return why the outgoing messages of a handled message cannot be sent; None if they can be.

    Sends nothing: it tries, and rolls back.

    Raises:
        DatabaseUnavailable: one of the databases cannot be reached.
        PermissionDenied: the login may not read the outgoing messages.
    """
    key = {"endpoint": queue, "message_id": message_id}
    try:
        rows = business.call("find_handled", begin=True, **key)
        if not rows or rows[0][0] is None:
            return None
        try:
            dispatch(
                database, [decode_outgoing(*rows[0])], Directory(), own_queue=queue, error_queue=error_queue, begin=True
            )
        except (DatabaseUnavailable, Deadlock):
            raise
        except RowpostError as error:
            return str(error)
        return None
    finally:
        roll_back(business)
        roll_back(database)


def send_stored(
    database: Connection,
    business: Connection,
    directory: Directory,
    key: dict[str, str],
    error_queue: str | None,
    host: Host | None = None,
) -> bool | None:
    """Send what the handlers of one message sent, by its endpoint and id.

    Returns:
        True if they were sent now, False if before; None if there are none, because another process has settled them or
        because their transaction is not committed.

    Raises:
        RowpostError: they cannot be sent, or one of the databases cannot be used. Transactions may be open.
    """
    rows = business.call("find_handled", begin=True, **key)
    if not rows or rows[0][0] is None:
        return None
    sent, record = True, Call("record_dispatch", None, key)
    try:
        outgoing = decode_outgoing(*rows[0])
        queues = {"own_queue": key["endpoint"], "error_queue": error_queue}
        dispatch(database, [outgoing], directory, **queues, host=host, begin=True, commit=True, also=[record])
    except AlreadyDispatched:
        sent = False
    business.call_all([Call("settle_operations", None, key)], commit=True)
    return sent


def clean(business: Connection, retention: float, goes_on: Callable[[], bool] = lambda: True) -> int:
    """Delete the records of messages that were handled more than `retention` seconds ago, and return their number.

    `goes_on` is asked between two batches; it returns False to stop.
    """
    return _in_batches(business, "clean_outbox", retention, goes_on)


def clean_dispatches(database: Connection, retention: float, goes_on: Callable[[], bool] = lambda: True) -> int:
    """Delete dispatches of that age in the queue's database, which their workers could not delete, and return their
    number.
    """
    return _in_batches(database, "clean_dispatches", retention, goes_on)


def _in_batches(database: Connection, procedure: str, retention: float, goes_on: Callable[[], bool]) -> int:
    total, removed = 0, BATCH
    while removed == BATCH and goes_on():
        ((removed,),) = database.call(procedure, retention_seconds=int(retention), count=BATCH)
        total += removed
    return total
