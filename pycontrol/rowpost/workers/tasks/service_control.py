"""The periodic tasks that report to ServiceControl: heartbeats of the endpoints, and the results of their checks.

Each has a thread and a connection of its own, so that a slow check delays no heartbeat. Without the section
`service_control` in the environment neither starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from rowpost.database.connection import Connection
from rowpost.database.requirements import check_clock
from rowpost.endpoint.hosting import endpoints_of
from rowpost.errors import SchemaMissing, SchemaTooNew
from rowpost.handling.checks import OWN_NAMES, CustomCheck
from rowpost.recoverability.policy import Host
from rowpost.settings.environment import Settings
from rowpost.settings.service_control import ServiceControlSettings
from rowpost.transport.directory import Directory
from rowpost.transport.dispatch import dispatch
from rowpost.wire.address import parse_address
from rowpost.wire.service_control import (
    EndpointHeartbeat,
    RegisterEndpointStartup,
    ReportCustomCheckResult,
    host_properties,
    report,
)
from rowpost.workers import events
from rowpost.workers.tasks.periodic import Work, periodic_task

__all__ = ["OWN", "OwnCheck", "make_custom_checks", "make_heartbeats"]

#: a report expires after so many intervals, as those of NServiceBus's plugins
INTERVALS = 4
OWN_INTERVAL = timedelta(minutes=1)
ACTIVITY = "report to ServiceControl about"


class _Reports:
    """Sends reports about one endpoint after the other."""

    def __init__(self, settings: Settings, where: ServiceControlSettings) -> None:
        self._settings = settings
        self._queue = where.queue
        self._directory = Directory()

    def host(self, queue: str) -> tuple[Host, UUID]:
        """Return the host of a queue's endpoint, and its id."""
        host = Host.of_queue(queue, self._settings)
        return host, UUID(host.id)

    def send(self, database: Connection, queue: str, *messages: Any, interval: timedelta | None) -> None:
        """Send messages about the endpoint of a queue in one transaction.

        Raises QueueNotFound: ServiceControl has no queue here.
        """
        reply_to = database.canonical(parse_address(queue))
        expires = None if interval is None else INTERVALS * interval
        outgoing = [
            report(each, queue=self._queue, reply_to=reply_to, time_to_be_received=expires) for each in messages
        ]
        dispatch(database, [outgoing], self._directory, own_queue=queue, begin=True, commit=True)


class _Heartbeats(_Reports):
    def __init__(self, settings: Settings, where: ServiceControlSettings) -> None:
        super().__init__(settings, where)
        self._interval = timedelta(seconds=where.heartbeat)
        self._started_at = datetime.now(UTC)
        #: endpoints of which ServiceControl knows that they have started
        self._registered: set[str] = set()

    def __call__(self, database: Connection, queue: str) -> float:
        host, host_id = self.host(queue)
        messages: list[Any] = [EndpointHeartbeat(datetime.now(UTC), host.endpoint, host_id, host.display_name)]
        if queue not in self._registered:
            properties = host_properties(host.machine)
            start = RegisterEndpointStartup(
                host_id, host.endpoint, self._started_at, properties, host.display_name, host.display_name
            )
            messages.insert(0, start)
        self.send(database, queue, *messages, interval=self._interval)
        self._registered.add(queue)
        return self._interval.total_seconds()


class _Checks(_Reports):
    def __init__(
        self, settings: Settings, where: ServiceControlSettings, checks: dict[str, tuple[str, CustomCheck | OwnCheck]]
    ) -> None:
        super().__init__(settings, where)
        self._checks = checks
        self._oldest = where.oldest_message

    def __call__(self, database: Connection, unit: str) -> float | None:
        queue, check = self._checks[unit]
        reason = check.failure() if isinstance(check, CustomCheck) else check.failure(database, queue, self._oldest)
        host, host_id = self.host(queue)
        result = ReportCustomCheckResult(
            host_id,
            check.name,
            check.category,
            reason is not None,
            reason,
            datetime.now(UTC),
            host.endpoint,
            host.display_name,
        )
        self.send(database, queue, result, interval=check.every)
        return None if check.every is None else check.every.total_seconds()


@periodic_task("rowpost heartbeats", ACTIVITY)
def make_heartbeats(settings: Settings, _: events.Emit) -> Work:
    """Return the task that sends the heartbeats of the endpoints that this supervisor runs."""
    where = settings.service_control
    names = (
        {settings.endpoint_name(queue.name): queue.name for queue in reversed(settings.queues) if queue.worker}.values()
        if where is not None and where.heartbeat > 0
        else ()
    )
    return names, _Heartbeats(settings, where or ServiceControlSettings(""))


@dataclass(frozen=True)
class OwnCheck:
    """A check that rowpost brings: of a queue, on the connection of the task.

    `failure` returns what is wrong, or None.
    """

    name: str
    failure: Callable[[Connection, str, float], str | None]
    category: str = "rowpost"
    every: timedelta = OWN_INTERVAL


def _schema(database: Connection, queue: str, oldest_s: float) -> str | None:
    try:
        database.check_schema()
    except (SchemaMissing, SchemaTooNew) as error:
        return str(error)
    return None


def _clock(database: Connection, queue: str, oldest_s: float) -> str | None:
    with database.translated():
        check = check_clock(database)
    return None if check.state == "ok" else check.found


def _oldest_message(database: Connection, queue: str, oldest_s: float) -> str | None:
    (found,) = database.call("queue_metrics", queue)
    age_s = (found.oldest_age_ms or 0) / 1000
    return (
        None
        if age_s <= oldest_s
        else f"The oldest of {found.depth} messages in {queue!r} waits for {timedelta(seconds=round(age_s))}."
    )


#: the checks that rowpost brings
OWN = tuple(OwnCheck(name, find) for name, find in zip(OWN_NAMES, (_schema, _clock, _oldest_message), strict=True))


@periodic_task("rowpost checks", ACTIVITY)
def make_custom_checks(settings: Settings, _: events.Emit) -> Work:
    """Return the task that executes the checks of the endpoints that this supervisor runs, and reports what they
    find.
    """
    where = settings.service_control
    checks: dict[str, tuple[str, CustomCheck | OwnCheck]] = {}
    if where is not None:
        names = [queue.name for queue in settings.queues if queue.worker is not None and where.oldest_message > 0]
        found: list[tuple[str, CustomCheck | OwnCheck]] = [(name, check) for name in names for check in OWN]
        found += _declared(settings)
        checks = {f"{queue}, check {check.name}": (queue, check) for queue, check in found}
    return checks, _Checks(settings, where or ServiceControlSettings(""), checks)


def _declared(settings: Settings) -> list[tuple[str, CustomCheck]]:
    """Return the checks of the endpoints, each with its queue.

    A handler that cannot be imported is reported by its own worker.
    """
    queues = {
        endpoint: queue.name for queue, endpoint in reversed([*endpoints_of(settings)])
    }  # not that of an instance
    return [(queue, check) for endpoint, queue in queues.items() for check in endpoint.checks]
