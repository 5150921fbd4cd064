"""Record in the database who works here, so that operators see the supervisors of all hosts (`transport/supervisors.py` lists them).

One row a supervisor, written every ten seconds in the round trip of a peek.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Sequence
from itertools import islice
from uuid import UUID, uuid4

from rowpost.errors import PermissionDenied, RowpostError
from rowpost.settings.environment import Settings
from rowpost.transport.supervisors import Worker
from rowpost.version import __version__
from rowpost.wire.operation import Call

__all__ = ["REPORT_INTERVAL_S", "PresenceReports"]

REPORT_INTERVAL_S = 10.0
#: a report has up to 1,000,000 characters; a worker has about 150
WORKERS = 4000


class PresenceReports:
    """The reports of one supervisor. `report` may be called from any thread; a report that was not sent yet is replaced."""

    def __init__(self, settings: Settings) -> None:
        self._environment = settings.environment or ""
        self._pending: Call | None = None
        self._denied = self._failing = self._reported = False
        self.supervisor_id: UUID = uuid4()

    @property
    def calls(self) -> Sequence[Call]:
        """The call that records the report which was not sent yet: one or none."""
        pending = self._pending
        return [] if pending is None else [pending]

    @property
    def last_calls(self) -> Sequence[Call]:
        """The call that records the end of the supervisor: one, or none if nothing was recorded."""
        return [self._call((), (), ended=True)] if self._reported else []

    def report(self, queues: Iterable[str], workers: Iterable[Worker]) -> None:
        """Keep a report until it is sent: the queues that the supervisor receives from, and its workers."""
        if not self._denied:
            self._pending = self._call(queues, workers)

    def sent(self) -> None:
        """Forget the report: the database has it."""
        if self._pending is not None:
            self._pending, self._failing, self._reported = None, False, True

    def failed(self, error: RowpostError) -> bool:
        """Drop the report. A login that may not report does not try again. Return whether nobody was told of it yet."""
        known, self._failing, self._pending = self._failing, True, None
        self._denied |= isinstance(error, PermissionDenied)
        return not known

    def _call(self, queues: Iterable[str], workers: Iterable[Worker], *, ended: bool = False) -> Call:
        documents = [
            {name: value for name in Worker.__slots__ if (value := getattr(worker, name)) is not None} for worker in islice(workers, WORKERS)
        ]
        arguments = {
            "supervisor_id": self.supervisor_id,
            "host_name": socket.gethostname(),
            "process_id": os.getpid(),
            "environment": self._environment,
            "rowpost_version": __version__,
            "queues": json.dumps(list(queues)),
            "workers": json.dumps(documents),
            "ended": ended,
        }
        return Call("report_supervisor", None, arguments)
