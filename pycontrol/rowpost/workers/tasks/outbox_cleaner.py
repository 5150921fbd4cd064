"""The periodic task that sends what outboxes still hold, and deletes old entries."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseUnavailable, ParticipantFailed, PermissionDenied, RowpostError
from rowpost.outbox.cleanup import clean, clean_dispatches, send_left_behind
from rowpost.outbox.declaration import named, open_business
from rowpost.recoverability.policy import Host
from rowpost.settings.environment import OutboxSettings, Settings
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.tasks.periodic import Election, PeriodicTask

__all__ = ["OutboxCleaner", "make_outbox_cleaner"]

CLEAN_INTERVAL_S = 60.0
#: between two reminders of messages that still cannot be sent
REMIND_S = 3600.0
NAME = "rowpost outbox cleaner"
NOT_ALLOWED = (
    "The login may not delete old entries of the outbox, so that it grows. Make the login of one supervisor a member "
    "of the role rowpost_operator in both databases, or let an operator run `rowpost outbox clean`, for example every "
    "night."
)


class OutboxCleaner:
    """Sends pending outgoing messages of all outboxes, and cleans those whose database elected this session."""

    def __init__(self, settings: Settings, emit: events.Emit) -> None:
        self._outboxes = {each.name: each for each in settings.outboxes}
        self._queues = {queue.name for queue in settings.queues if queue.kind != "external"}
        self._error_queue, self._emit = settings.supervisor.error_queue, emit
        self._host_of = partial(Host.of_queue, settings=settings)
        self._open: dict[str, Connection] = {}
        self._elections = {name: Election("outbox") for name in self._outboxes}
        #: the messages that could not be sent in the last round, by outbox; each has had its event
        self._failed: dict[str, set[str]] = {}
        self._reminded: dict[str, float] = {}
        self.goes_on: Callable[[], bool] = lambda: True
        #: outboxes that the login may not clean; each is reported once
        self._not_allowed: set[str] = set()

    def __call__(self, database: Connection, name: str) -> float:
        outbox = self._outboxes[name]
        try:
            with named(name):
                self._clean(database, self._connect(outbox), outbox)
        except RowpostError as error:
            self._disconnect(name)
            if isinstance(error, DatabaseUnavailable) and not database.closed:
                raise ParticipantFailed(str(error)) from error  # the connection to the queues' database still works
            raise
        return CLEAN_INTERVAL_S

    def _clean(self, database: Connection, business: Connection, outbox: OutboxSettings) -> None:
        result = send_left_behind(
            database, business, self._queues, error_queue=self._error_queue, host_of=self._host_of, goes_on=self.goes_on
        )
        if result.sent:
            self._report(outbox.name, f"sent the pending outgoing messages of {result.sent} handled messages")
        self._report_failed(outbox.name, result.failed)
        if outbox.name not in self._not_allowed:
            try:
                self._delete_old(database, business, outbox)
            except PermissionDenied as error:
                self._not_allowed.add(outbox.name)
                self._emit(events.Warned(queue=outbox.name, text=f"{NOT_ALLOWED} {error}"))

    def _delete_old(self, database: Connection, business: Connection, outbox: OutboxSettings) -> None:
        if not self._elections[outbox.name].won(business):
            return
        removed = clean(business, outbox.retention)
        clean_dispatches(database, outbox.retention)
        if removed:
            self._report(outbox.name, f"deleted {removed} entries older than the retention")

    def _report_failed(self, name: str, failed: dict[str, str]) -> None:
        """Emit an event for each message that could not be sent for the first time, and one in an hour for all
        others.
        """
        known, self._failed[name] = self._failed.get(name, set()), set(failed)
        for message, problem in failed.items():
            if message not in known:
                self._emit(
                    events.Warned(
                        queue=name, text=f"{message} was handled, but its outgoing messages cannot be sent: {problem}"
                    )
                )
        still, now = failed.keys() & known, time.monotonic()
        if not still:
            self._reminded.pop(name, None)
        elif now - self._reminded.setdefault(name, now) >= REMIND_S:
            self._reminded[name] = now
            text = (
                f"{len(still)} handled messages still cannot be sent. `rowpost outbox status` lists them with the "
                "reasons."
            )
            self._emit(events.Warned(queue=name, text=text))

    def _report(self, name: str, text: str) -> None:
        self._emit(events.Maintained(queue=name, action="outbox", text=text))

    def _connect(self, outbox: OutboxSettings) -> Connection:
        known = self._open.get(outbox.name)
        if known is None or known.closed:
            known = self._open[outbox.name] = open_business(outbox.url, NAME)
        return known

    def _disconnect(self, name: str) -> None:
        business = self._open.pop(name, None)
        if business is not None:
            with suppress(RowpostError):
                business.close()


def make_outbox_cleaner(
    settings: Settings, emit: events.Emit, breaker: CircuitBreaker | None = None, **options: Any
) -> PeriodicTask:
    """Return the task that cleans the environment's outboxes once a minute. Off with maintenance_every: 0."""
    names = [each.name for each in settings.outboxes] if settings.supervisor.maintenance_every > 0 else []
    cleaner = OutboxCleaner(settings, emit)
    task = PeriodicTask(
        settings, names, cleaner, name=NAME, activity="clean the outbox", emit=emit, breaker=breaker, **options
    )
    cleaner.goes_on = lambda: not task.ending
    return task
