"""The periodic task that sends what outboxes still hold, and deletes old entries."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseUnavailable, ParticipantFailed, RowpostError
from rowpost.outbox.cleanup import clean, clean_dispatches, send_left_behind
from rowpost.outbox.operations import named, open_business
from rowpost.settings.environment import OutboxSettings, Settings
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.tasks.periodic import PeriodicTask

__all__ = ["make_outbox_cleaner"]


#: seconds: between two looks of a supervisor, and how long a worker may take to send what it has stored
LOOK_EVERY = 60.0


class _Cleaner:
    """Visits business databases; those whose outbox this process was elected to clean are cleaned, too."""

    def __init__(self, settings: Settings, tell: Callable[[events.Event], None]) -> None:
        self._outboxes = {each.name: each for each in settings.outboxes}
        self._queues = {queue.name for queue in settings.queues if queue.kind != "external"}
        self._tell = tell
        self._open: dict[str, Connection] = {}
        self._elected: set[str] = set()

    def visit(self, database: Connection, name: str) -> float:
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

    def _look_after(self, database: Connection, business: Connection, outbox: OutboxSettings) -> None:
        result = send_left_behind(database, business, self._queues)
        if result.sent:
            self._tell_done(outbox.name, f"sent what {result.sent} handled messages had left behind")
        for message, problem in result.failed.items():
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

    def _connect(self, outbox: OutboxSettings) -> Connection:
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


def make_outbox_cleaner(
    settings: Settings, tell: Callable[[events.Event], None], breaker: CircuitBreaker | None = None, **options: Any
) -> PeriodicTask:
    """Looks after the environment's outboxes, once a minute. Off with upkeep_every: 0."""
    names = [each.name for each in settings.outboxes] if settings.supervisor.upkeep_every > 0 else []
    cleaner = _Cleaner(settings, tell)
    return PeriodicTask(
        settings, names, cleaner.visit, name="rowpost outbox care", duty="look after the outbox", tell=tell, breaker=breaker, **options
    )
