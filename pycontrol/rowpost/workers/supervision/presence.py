"""Record this supervisor and its workers in the database, so that operators see the supervisors of all hosts
(`transport/supervisors.py` lists them).

One row a supervisor, written every ten seconds in the round trip of a peek. A supervisor also records the end of those
that died on its host, so that their parts of shared limits are free at once.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Sequence
from uuid import UUID

from rowpost.errors import PermissionDenied, RowpostError
from rowpost.settings.environment import Settings
from rowpost.transport.supervisors import ReportedWorker
from rowpost.version import __version__
from rowpost.wire.outgoing import Call
from rowpost.workers.supervision.lifelines import Lifeline

__all__ = ["REPORT_INTERVAL_S", "PresenceReports"]

REPORT_INTERVAL_S = 10.0
#: characters of the workers in one report, about 150 of each; `report_supervisor` refuses more
REPORT_LENGTH = 100_000
#: between two searches for supervisors that died
SEARCH_INTERVAL_S = 1.0


class PresenceReports:
    """The reports of one supervisor.

    `report` may be called from any thread; a report that was not sent yet is replaced.
    """

    def __init__(self, settings: Settings) -> None:
        self._environment = settings.environment or ""
        self._pending: Call | None = None
        self._denied = self._failing = self._reported = False
        self.lifeline = Lifeline(settings)
        self._departed: list[UUID] = []
        self._search_at = float("-inf")

    @property
    def supervisor_id(self) -> UUID:
        """The id with which the supervisor reports itself."""
        return self.lifeline.supervisor_id

    @property
    def calls(self) -> Sequence[Call]:
        """The calls that record what was not sent yet: the ends of supervisors that died, and one report or none."""
        pending = self._pending
        ends = [self._call((), (), ended=each) for each in self._departed]
        return ends if pending is None else [*ends, pending]

    @property
    def last_calls(self) -> Sequence[Call]:
        """The call that records the end of the supervisor: one, or none if nothing was recorded."""
        return [self._call((), (), ended=self.supervisor_id)] if self._reported else []

    def report(self, queues: Iterable[str], workers: Iterable[ReportedWorker]) -> None:
        """Keep a report until it is sent: the queues that the supervisor receives from, and its workers."""
        if not self._denied:
            self._pending = self._call(queues, workers)

    def search(self) -> None:
        """Look for supervisors of this host that died, at most once a second. `calls` records their end."""
        now = time.monotonic()
        if now >= self._search_at and not self._denied:
            self._search_at = now + SEARCH_INTERVAL_S
            self._departed = self.lifeline.departed()

    def ended(self) -> None:
        """Forget this supervisor: the database has recorded its end, or never had a report of it."""
        self.lifeline.forget([self.supervisor_id])

    def sent(self) -> None:
        """Forget what `calls` was: the database has it."""
        self.lifeline.forget(self._departed)
        self._departed = []
        if self._pending is not None:
            self._pending, self._failing, self._reported = None, False, True

    def failed(self, error: RowpostError) -> bool:
        """Drop what was not sent.

        A login that may not report does not try again. Return whether this is the first failure since the last success.
        """
        known, self._failing, self._pending = self._failing, True, None
        self._departed, self._search_at = [], time.monotonic() + REPORT_INTERVAL_S
        self._denied |= isinstance(error, PermissionDenied)
        return not known

    def _call(self, queues: Iterable[str], workers: Iterable[ReportedWorker], *, ended: UUID | None = None) -> Call:
        arguments = {
            "supervisor_id": ended or self.supervisor_id,
            "host_name": socket.gethostname(),
            "process_id": os.getpid(),
            "environment": self._environment,
            "rowpost_version": __version__,
            "queues": json.dumps(list(queues)),
            "workers": _documents(workers),
            "ended": ended is not None,
        }
        return Call("report_supervisor", None, arguments)


def _documents(workers: Iterable[ReportedWorker]) -> str:
    """Return the JSON array of those workers, from the first one on, that have room in a report."""
    documents, length = [], 2  # the brackets
    for worker in workers:
        document = json.dumps(
            {name: value for name in ReportedWorker.__slots__ if (value := getattr(worker, name)) is not None}
        )
        length += len(document) + 2
        if length > REPORT_LENGTH:
            break
        documents.append(document)
    return f"[{', '.join(documents)}]"
