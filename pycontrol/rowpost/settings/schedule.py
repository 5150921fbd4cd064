"""Settings of schedules: what the section `schedules` of an environment declares, and what endpoints declare."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from rowpost.errors import InvalidSchedule
from rowpost.settings.due_times import DueTimes, Missed
from rowpost.settings.yaml_node import Kept, Node, decode

__all__ = ["LONGEST_NAME", "ScheduleSettings", "read_schedules"]

#: characters of a schedule's name
LONGEST_NAME = 150


@dataclass(frozen=True)
class ScheduleSettings:
    """One schedule.

    Attributes:
        name: identifies it in the database.
        queue: the queue whose supervisors send the messages, canonical.
        to: the queue that gets the messages, as it was written.
        type: the full type name of the messages.
        due: when it is due.
        missed: what becomes of ticks that nobody sent in time.
        body: the body of each message, a JSON text; None: code makes the messages.
    """

    name: str
    queue: str
    to: str
    type: str
    due: DueTimes
    missed: Missed = "once"
    body: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class _Written:
    """The keys of a schedule in the file."""

    to: str
    type: str
    queue: str | None = None
    cron: str | None = None
    #: seconds between two ticks
    interval: Kept | None = None
    zone: str = "UTC"
    missed: Missed = "once"


def read_schedules(
    root: Node, canonical: Callable[[Node, str, str], str], external: Collection[str]
) -> tuple[ScheduleSettings, ...]:
    """Read the section `schedules`: messages by name, each with its due times.

    Args:
        root: the file.
        canonical: returns the canonical name of a queue that stands at a key of a node.
        external: the canonical names of queues from which nothing is received here.

    Raises:
        SettingsError: a key is wrong, or the due times cannot be read.
    """
    return tuple(_read(node, canonical, external) for node in root.children("schedules"))


def _read(node: Node, canonical: Callable[[Node, str, str], str], external: Collection[str]) -> ScheduleSettings:
    if not node.name or len(node.name) > LONGEST_NAME:
        raise node.error("", f"a schedule's name has 1 to {LONGEST_NAME} characters: write a shorter one")
    body = _body(node)
    written = decode(node, _Written)
    interval = None if written.interval is None else timedelta(milliseconds=round(written.interval * 1000))
    try:
        due = DueTimes(written.cron, interval, written.zone)
    except InvalidSchedule as error:
        raise node.error("", str(error)) from error
    queue = canonical(node, "to" if written.queue is None else "queue", written.queue or written.to)
    if queue in external:
        raise node.error(
            "queue",
            f"is {queue!r}, which is external, so that no supervisor of this environment sends for it: name one of the "
            "queues that have a worker here",
        )
    return ScheduleSettings(node.name, queue, written.to, written.type, due, written.missed, body)


def _body(node: Node) -> str:
    """Return the body as JSON: a mapping or a list of the file, or a text that is JSON already."""
    node.taken.add("body")
    value: Any = node.values.get("body", {})
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError as error:
            raise node.error("body", f"is not JSON: {error}. Write a mapping, such as {{days: 1}}") from error
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise node.error("body", f"cannot be written as JSON: {error}. Put dates into quotes") from error
