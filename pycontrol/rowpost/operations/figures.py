"""The queues of a database, and the figures of all of them in two round trips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseUnavailable, RowpostError
from rowpost.transport.controls import QueueControl
from rowpost.transport.maintenance import Metrics
from rowpost.transport.supervisors import PAGE, SupervisorPresence, presence_of_row

__all__ = ["Overview", "measure", "read_overview", "registered_queues"]


class Overview(NamedTuple):
    """The queues of a database as rows of list_queues, what operators have set for them, and the first 100
    supervisors.
    """

    queues: list[Any]
    controls: dict[str, QueueControl]
    supervisors: list[SupervisorPresence]


def registered_queues(database: Connection) -> list[Any]:
    """Return the queues of a database, as rows of list_queues. Raises PermissionDenied."""
    return list(database.call("list_queues"))


def read_overview(database: Connection) -> Overview:
    """Return queues, controls and supervisors, in one round trip. Raises PermissionDenied."""
    queues, controls, present = database.call_all(
        [("list_queues", None, {}), ("list_controls", None, {}), ("list_supervisors", None, {"count": PAGE})]
    )
    return Overview(
        list(queues),
        {each.queue: each for each in map(QueueControl._make, controls)},
        list(map(presence_of_row, present)),
    )


def measure(database: Connection, names: Sequence[str]) -> dict[str, Metrics | RowpostError]:
    """Measure queues in one round trip. One that cannot be measured costs another round trip, without it.

    If the driver does not say which one it was, the queues are halved until it is found.
    """
    if not names:
        return {}
    try:
        found = database.call_all([("queue_metrics", name, {}) for name in names])
    except DatabaseUnavailable:
        raise
    except RowpostError as error:
        if len(names) == 1:
            return {names[0]: error}
        place = getattr(error.__cause__, "failed_call", None)
        if place is not None and 0 <= place < len(names):
            return {names[place]: error, **measure(database, [*names[:place], *names[place + 1 :]])}
        middle = len(names) // 2
        return {**measure(database, names[:middle]), **measure(database, names[middle:])}
    return {name: Metrics(*rows[0]) for name, rows in zip(names, found, strict=True)}
