"""Looking after outboxes: send what was left behind, forget what is too old. By hand, or by every supervisor.

    care_for(database, business, ["Sales"])          # what a handled message caused and nobody sent
    clean(business, retention), clean_dispatches(database, retention)

A worker that dies after the business commit leaves its message in the queue, which brings everything to its end. Only
where that message is gone (it was purged, expired, or waits in the error queue) something stays in the outbox. It is
sent from here then: safe beside workers, because record_dispatch lets nothing leave twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rowpost import events
from rowpost.breaker import Breaker
from rowpost.database import Database
from rowpost.endpoint import Endpoint
from rowpost.errors import AlreadyDispatched, DatabaseUnavailable, Deadlock, ParticipantFailed, RowpostError
from rowpost.outbox import decode_operations, named, open_business
from rowpost.patrol import Patrol
from rowpost.settings import OutboxSettings, Settings

__all__ = ["CareResult", "care_for", "clean", "clean_dispatches", "make_cleaner"]



#: seconds: between two looks of a supervisor, and how long a worker may take to send what it has stored
LOOK_EVERY = 60.0
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
    database: Database, business: Database, queues: Collection[str], *, older_than: int = LEFT_BEHIND_AFTER
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


def _send(database: Database, business: Database, key: dict[str, str]) -> bool | None:
    """Whether it was sent now; False where it had left already, None where somebody else has just seen to it."""
    rows = business.call("find_handled", begin=True, **key)
    if not rows or rows[0][0] is None:
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


def clean(business: Database, retention: float, goes_on: Callable[[], bool] = lambda: True) -> int:
    """Forget messages that were handled more than `retention` seconds ago; how many."""
    return _in_batches(business, "clean_outbox", retention, goes_on)


def clean_dispatches(database: Database, retention: float, goes_on: Callable[[], bool] = lambda: True) -> int:
    """Forget dispatches of that age in the queue's database: those that nobody was left to forget at once."""
    return _in_batches(database, "clean_dispatches", retention, goes_on)


def _in_batches(database: Database, procedure: str, retention: float, goes_on: Callable[[], bool]) -> int:
    total, removed = 0, BATCH
    while removed == BATCH and goes_on():
        ((removed,),) = database.call(procedure, retention_seconds=int(retention), count=BATCH)
        total += removed
    return total


class _Cleaner:
    """Visits business databases; those whose outbox this process was elected to clean are cleaned, too."""

    def __init__(self, settings: Settings, tell: Callable[[events.Event], None]) -> None:
        self._outboxes = {each.name: each for each in settings.outboxes}
        self._queues = {queue.name for queue in settings.queues if queue.kind != "external"}
        self._tell = tell
        self._open: dict[str, Database] = {}
        self._elected: set[str] = set()

    def visit(self, database: Database, name: str) -> float:
        outbox = self._outboxes[name]
        try:
            with named(name):
                self._look_after(database, self._connect(outbox), outbox)
        except RowpostError as error:
            self._disconnect(name)
            if isinstance(error, DatabaseUnavailable) and not database.closed:
                raise ParticipantFailed(str(error)) from error  # the queue's database is well
            raise
        return LOOK_EVERY

    def _look_after(self, database: Database, business: Database, outbox: OutboxSettings) -> None:
        result = care_for(database, business, self._queues)
        if result.sent:
            self._tell_done(outbox.name, f"sent what {result.sent} handled messages had left behind")
        for message, problem in (result.failed or {}).items():
            text = f"{message} was handled, and what it caused cannot be sent: {problem}"
            self._tell(events.Warned(queue=outbox.name, at=time.time(), text=text))
        if outbox.name not in self._elected:
            if not business.call("elect_cleaner")[0][0]:
                return
            self._elected.add(outbox.name)
        removed = clean(business, outbox.retention)
        clean_dispatches(database, outbox.retention)
        if removed:
            self._tell_done(outbox.name, f"forgot {removed} messages that were handled long ago")

    def _tell_done(self, name: str, text: str) -> None:
        self._tell(events.Maintained(queue=name, at=time.time(), action="outbox", text=text))

    def _connect(self, outbox: OutboxSettings) -> Database:
        known = self._open.get(outbox.name)
        if known is None or known.closed:
            self._elected.discard(outbox.name)
            known = self._open[outbox.name] = open_business(outbox.url, "rowpost outbox care")
        return known

    def _disconnect(self, name: str) -> None:
        self._elected.discard(name)
        business = self._open.pop(name, None)
        if business is not None:
            with suppress(RowpostError):
                business.close()


def make_cleaner(
    settings: Settings, tell: Callable[[events.Event], None], breaker: Breaker | None = None, **options: Any
) -> Patrol:
    """Looks after the environment's outboxes, once a minute. Off with upkeep_every: 0."""
    names = [each.name for each in settings.outboxes] if settings.supervisor.upkeep_every > 0 else []
    cleaner = _Cleaner(settings, tell)
    return Patrol(
        settings, names, cleaner.visit, name="rowpost outbox care", duty="look after the outbox", tell=tell, breaker=breaker, **options
    )
