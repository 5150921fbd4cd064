"""Schedules of an environment: those of its file, and those that its endpoints declare with `Endpoint.every`.

`with_schedules` finds all of them, `check_schedules` checks that they are stored, and `senders_of` returns what makes
and sends their messages. A handler that cannot be imported is reported by its own worker: its schedules are skipped.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from rowpost.database.connection import Connection
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.hosting import endpoints_of
from rowpost.endpoint.provisioning import queue_name
from rowpost.errors import HandlerNotFound, ScheduleNotFound, SettingsError
from rowpost.handling.context import Bus
from rowpost.handling.schedules import Schedule
from rowpost.settings.environment import ScheduleSettings, Settings
from rowpost.transport.schedules import SeenSchedule, Ticked, tick
from rowpost.transport.schedules import message_id as message_id_of
from rowpost.wire.headers import CONTENT_TYPE, ENCLOSED_MESSAGE_TYPES, SCHEDULE, SCHEDULE_DUE
from rowpost.wire.message_types import type_name
from rowpost.wire.outgoing import Outgoing

__all__ = ["ScheduleSender", "check_schedules", "scheduled", "senders_of", "with_schedules"]

_JSON = "application/json"


def scheduled(endpoint: Endpoint, settings: Settings) -> tuple[ScheduleSettings, ...]:
    """Return what an endpoint's schedules declare, in the environment's default schema."""
    own = queue_name(settings, endpoint.queue)
    return tuple(
        ScheduleSettings(
            each.name,
            own,
            own if each.to is None else settings.naming.resolve(each.to),
            type_name(each.message),
            each.due,
            each.missed,
        )
        for each in endpoint.schedules
    )


def with_schedules(
    settings: Settings, unknown: Callable[[HandlerNotFound], None] = lambda error: None, *, imported: bool = False
) -> Settings:
    """Return the settings with the schedules that their endpoints declare.

    Args:
        settings: the environment.
        unknown: is called for each handler that cannot be imported here.
        imported: import no module, and skip endpoints of such modules.

    Raises:
        SettingsError: two schedules have the same name.
    """
    found = {each.name: each for each in settings.schedules}
    known = [each for each in settings.queues if each.worker and each.worker.handler.partition(":")[0] in sys.modules]
    searched = replace(settings, queues=tuple(known)) if imported else settings
    for queue, endpoint in endpoints_of(searched, lambda _, error: unknown(error)):
        for each in scheduled(endpoint, settings):
            if found.setdefault(each.name, each) != each:
                raise SettingsError(
                    f"The schedule {each.name!r} of {queue.worker and queue.worker.handler} is declared twice and "
                    "differently. Give one of them another name."
                )
    return replace(settings, schedules=tuple(found.values()))


def check_schedules(settings: Settings, database: Connection) -> None:
    """Check that the schedules of these settings are stored in the database.

    Raises ScheduleNotFound and FeatureMissing.
    """
    if not settings.schedules:
        return
    stored = {row.schedule_name for row in database.call("list_schedules")}
    for each in settings.schedules:
        if each.name not in stored:
            raise ScheduleNotFound(
                f"The schedule {each.name!r} of the queue {each.queue!r} is not stored in {settings.target}, so "
                "nothing would be sent. Run: rowpost apply. In development, rowpost run --install stores it."
            )


@dataclass(frozen=True)
class ScheduleSender:
    """Makes and sends the messages of one schedule.

    Attributes:
        endpoint: sends them.
        collect: puts the message of a due time into a bus, with its message id and its headers.
    """

    endpoint: Endpoint
    collect: Callable[[Bus, datetime, str, Mapping[str, str | None]], object]

    @classmethod
    def of(cls, endpoint: Endpoint, schedule: Schedule) -> ScheduleSender:
        """Return the sender of a schedule that an endpoint declares."""
        return cls(endpoint, partial(_collect, schedule))

    def tick(self, database: Connection, queue: str, seen: SeenSchedule) -> Ticked:
        """Send the messages that are due, as `transport.schedules.tick` does."""
        return tick(database, queue, seen, partial(self.make, database, seen.name), partial(self._send, database))

    def make(self, database: Connection, name: str, due: datetime, message_id: str = "") -> Sequence[Outgoing]:
        """Return the message of a due time; nothing if there is none.

        An empty `message_id` stands for the one that follows from the name and the due time.
        """
        bus = Bus(self.endpoint, database)
        try:
            text = due.astimezone(UTC).isoformat(timespec="milliseconds")
            headers = {SCHEDULE: name, SCHEDULE_DUE: text}
            self.collect(bus, due, message_id or message_id_of(name, due), headers)
        finally:
            outgoing = bus.end()
        return outgoing

    def _send(self, database: Connection, groups: list[list[Outgoing]]) -> None:
        self.endpoint.dispatch(database, groups)


def senders_of(settings: Settings) -> dict[str, dict[str, ScheduleSender]]:
    """Return the senders of the schedules of these settings whose queues have workers here: by queue, and by the
    schedule's name. Without schedules, nothing is imported.
    """
    found: dict[str, dict[str, ScheduleSender]] = defaultdict(dict)
    declared = {each.name for each in settings.schedules}
    if not declared:
        return {}
    endpoints: dict[str, Endpoint] = {}
    for _, endpoint in endpoints_of(settings):
        endpoint.configure(settings)
        queue = queue_name(settings, endpoint.queue)
        endpoints[queue] = endpoint
        for schedule in (each for each in endpoint.schedules if each.name in declared):
            found[queue][schedule.name] = ScheduleSender.of(endpoint, schedule)
    working = {queue.name for queue in settings.queues if queue.worker is not None}
    working |= {queue.name for queue in settings.queues if working & set(queue.partitions)}
    for each in settings.schedules:
        if each.body is not None and each.queue in working:
            sending = endpoints.get(each.queue) or _plain(settings, each.queue)
            found[each.queue][each.name] = ScheduleSender(sending, partial(_collect_body, each, settings))
    return dict(found)


def _plain(settings: Settings, queue: str) -> Endpoint:
    """Return an endpoint that sends for a queue whose handler cannot be imported here."""
    endpoint = Endpoint(settings.endpoint_name(queue))
    endpoint.configure(settings)
    return endpoint


def _collect(schedule: Schedule, bus: Bus, due: datetime, message_id: str, headers: Mapping[str, str | None]) -> None:
    message = schedule.make(due)
    if message is not None:
        to = bus.endpoint.queue if schedule.to is None else schedule.to
        bus.send(message, to, message_id=message_id, headers=headers)


def _collect_body(
    declared: ScheduleSettings,
    settings: Settings,
    bus: Bus,
    due: datetime,
    message_id: str,
    headers: Mapping[str, str | None],
) -> None:
    typed = {ENCLOSED_MESSAGE_TYPES: declared.type, CONTENT_TYPE: _JSON, **headers}
    to = settings.naming.resolve(declared.to)
    bus.send(str(declared.body).encode(), to, message_id=message_id, headers=typed)
