"""Looking after outboxes: send what was left behind, forget what is too old. By hand, or by every supervisor.

    care_for(database, business, ["Sales"])          # what a handled message caused and nobody sent
    clean(business, retention), clean_dispatches(database, retention)

A worker that dies after the business commit leaves its message in the queue, which brings everything to its end. Only
where that message is gone (it was purged, expired, or waits in the error queue) something stays in the outbox. It is
sent from here then: safe beside workers, because record_dispatch lets nothing leave twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from rowpost.database.connection import Connection
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import AlreadyDispatched, DatabaseUnavailable, Deadlock, RowpostError
from rowpost.outbox.operations import decode_operations

__all__ = ["LEFT_BEHIND_AFTER", "CareResult", "care_for", "clean", "clean_dispatches"]


LEFT_BEHIND_AFTER = 60
#: rows removed at once: below 5000, where SQL Server would lock the whole table (reference J4)
BATCH = 4000


@dataclass(slots=True)
class CareResult:
    """`sent` left now; `settled` had left before; `failed` says why something could not, by message."""

    sent: int = 0
    settled: int = 0
    failed: dict[str, str] | None = None


def care_for(
    database: Connection, business: Connection, queues: Collection[str], *, older_than: int = LEFT_BEHIND_AFTER
) -> CareResult:
    """Sends what messages of these queues caused, if it has not left `older_than` seconds after they were handled.

    `database` is the queues'. Safe at any time, beside workers and from several processes.

    Raises:
        DatabaseUnavailable, SchemaMissing, …: one of the databases cannot be worked with.
    """
    result = CareResult(failed={})
    for queue, message_id, _ in business.call("list_undispatched", seconds=older_than, count=1000):
        if queue not in queues:  # of another queue's database, which shares this business database
            continue
        try:
            sent = _send(database, business, {"endpoint": queue, "message_id": message_id})
        except (DatabaseUnavailable, Deadlock):
            raise
        except RowpostError as error:
            result.failed[f"{queue}: message {message_id}"] = str(error)
        else:
            result.sent += sent is True
            result.settled += sent is False
        finally:
            for each in (business, database):
                if not each.closed:
                    each.rollback()
    return result


def _send(database: Connection, business: Connection, key: dict[str, str]) -> bool | None:
    """Whether it was sent now; False where it had left already, None where somebody else has just seen to it."""
    rows = business.call("find_handled", begin=True, **key)
    if not rows or rows[0].operations is None:
        return None
    sender = Endpoint(key["endpoint"])
    sent = True
    try:
        operations = decode_operations(*rows[0])
        sender.dispatch(database, operations, begin=True, commit=True, also=[("record_dispatch", None, key)])
    except AlreadyDispatched:
        sent = False
    business.call_all([("settle_operations", None, key)], commit=True)
    return sent


def clean(business: Connection, retention: float, goes_on: Callable[[], bool] = lambda: True) -> int:
    """Forget messages that were handled more than `retention` seconds ago; how many."""
    return _in_batches(business, "clean_outbox", retention, goes_on)


def clean_dispatches(database: Connection, retention: float, goes_on: Callable[[], bool] = lambda: True) -> int:
    """Forget dispatches of that age in the queue's database: those that nobody was left to forget at once."""
    return _in_batches(database, "clean_dispatches", retention, goes_on)


def _in_batches(database: Connection, procedure: str, retention: float, goes_on: Callable[[], bool]) -> int:
    total, removed = 0, BATCH
    while removed == BATCH and goes_on():
        removed = database.call(procedure, retention_seconds=int(retention), count=BATCH)[0].removed
        total += removed
    return total


