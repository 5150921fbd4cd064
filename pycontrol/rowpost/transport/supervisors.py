"""The supervisors of all hosts and their workers, as each last reported itself.

for supervisor in supervisors_of(database):
    print(supervisor.host, supervisor.gone, len(supervisor.workers))
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from rowpost.database.connection import Connection

__all__ = ["PAGE", "ReportedWorker", "SupervisorPresence", "presence_of_row", "supervisors_of"]

#: a supervisor that has been silent for so many seconds is shown as gone; watch_queue divides no limit among those
GONE_AFTER_S = 30.0
PAGE = 100
#: seconds; also infinity and NaN are no durations
LONGEST_S = 1e10


@dataclass(frozen=True, slots=True)
class ReportedWorker:
    """A worker process at the time of its supervisor's report.

    Attributes:
        state: starting, idle, busy or exiting.
        seconds: in that state.
        message: id of the row that its handler handles; None if none runs.
        message_seconds: how long the handler has run.
    """

    queue: str
    process_id: int
    state: str
    seconds: float
    message: str | None = None
    message_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SupervisorPresence:
    """A supervisor as it last reported itself.

    Attributes:
        started_at, seen_at: its first and its last report, in UTC, without a time zone.
        silent: seconds since its last report, by the server's clock.
        queues: those that it receives from.
        unreadable: whether its report has another form, so that neither queues nor workers are known.
        too_long: whether newer reports of its login have so many characters that this one is left out: neither queues
            nor workers are known.
    """

    supervisor_id: UUID
    host: str
    process_id: int
    environment: str
    version: str
    login: str
    started_at: datetime
    seen_at: datetime
    silent: float
    queues: tuple[str, ...]
    workers: tuple[ReportedWorker, ...]
    unreadable: bool = False
    too_long: bool = False

    @property
    def gone(self) -> bool:
        """Whether it has died, or cannot reach the database."""
        return self.silent > GONE_AFTER_S


def supervisors_of(database: Connection) -> list[SupervisorPresence]:
    """Return the supervisors of all hosts that have not ended, by host; those that were silent for a day may be left
    out.

    Raises:
        PermissionDenied: the login may not list them.
    """
    found: list[SupervisorPresence] = []
    after_id = None
    while page := database.call("list_supervisors", count=PAGE, after_id=after_id):
        found += map(presence_of_row, page)
        after_id = page[-1].supervisor_id
    return sorted(found, key=lambda each: (each.host, each.started_at, each.process_id))


def presence_of_row(row: Any) -> SupervisorPresence:
    """Return a row of list_supervisors as a SupervisorPresence.

    A report that cannot be read is `unreadable`, as any login may have written it.
    """
    queues: tuple[str, ...] = ()
    workers: tuple[ReportedWorker, ...] = ()
    too_long, unreadable = row.workers is None, False
    try:
        if not too_long:
            queues, workers = _names(row.queues), tuple(map(_worker, json.loads(row.workers)))
    except (ValueError, TypeError, AttributeError, RecursionError):
        unreadable = True
    return SupervisorPresence(
        supervisor_id=row.supervisor_id,
        host=row.host_name,
        process_id=row.process_id,
        environment=row.environment,
        version=row.rowpost_version,
        login=row.login_name,
        started_at=row.started_at,
        seen_at=row.seen_at,
        silent=row.silent_ms / 1000,
        queues=queues,
        workers=workers,
        unreadable=unreadable,
        too_long=too_long,
    )


def _names(text: str) -> tuple[str, ...]:
    names = json.loads(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"not a list of names: {text:.60}")
    return tuple(names)


def _worker(document: dict[str, Any]) -> ReportedWorker:
    """Return the worker of a report.

    What a newer release adds to it is left out. Raises TypeError or ValueError if it is none.
    """
    made = ReportedWorker(**{key: value for key, value in document.items() if key in ReportedWorker.__slots__})
    texts = isinstance(made.queue, str) and isinstance(made.state, str) and isinstance(made.message, str | None)
    if (
        not texts
        or type(made.process_id) is not int
        or not all(map(_is_duration, (made.seconds, made.message_seconds or 0)))
    ):
        raise ValueError(f"not a worker: {made!r:.60}")
    return made


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LONGEST_S
