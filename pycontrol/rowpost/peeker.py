"""The supervisor's one connection: peeks, purges and counts crashes, in a thread of its own.

A database that hangs must not keep the supervisor from hearing its workers and its signals.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from rowpost.address import parse_address, queue_key
from rowpost.database import Database, connect
from rowpost.errors import DatabaseUnavailable, RowpostError
from rowpost.queue import Queue
from rowpost.recoverability import Recoverability, plain_recoverability
from rowpost.reports import Terms
from rowpost.retries import Outcome, Retries
from rowpost.settings import Settings

__all__ = ["Answer", "Crash", "Peeker"]

# Where a peek stops counting: far above any number of workers, and cheap.
PEEK_COUNT = 1000


@dataclass(frozen=True, slots=True)
class Crash:
    """A worker of the queue died by `exitcode` with this message in hand; `overdue`: killed at its time limit.

    `terms` are its endpoint's; None where it never said any.
    """

    queue: str
    pid: int
    exitcode: int | None
    row_id: UUID
    row_version: int
    terms: Terms | None = None
    overdue: bool = False

    @property
    def error(self) -> OSError:
        """What the message's error headers say."""
        if self.overdue and self.terms is not None:
            limit = f"its time limit of {self.terms.time_limit:g} s"
            return TimeoutError(f"the handler ran longer than {limit}, and was killed together with its worker process")
        signal_ = f"signal {-self.exitcode}" if self.exitcode and self.exitcode < 0 else f"exit code {self.exitcode}"
        return ChildProcessError(f"the worker process died ({signal_}) while its handler had this message in hand")


@dataclass(frozen=True, slots=True)
class Answer:
    """`count` messages wait (or, `purged`, were removed) in the queue; `error` says why nobody knows.

    `crash` and `outcome`: what became of a message whose worker died.
    """

    queue: str
    count: int = 0
    purged: bool = False
    error: RowpostError | None = None
    crash: Crash | None = None
    outcome: Outcome | None = None


class Peeker:
    """Answers one question after the other; `tell` is called with each Answer, in the peeker's thread."""

    def __init__(
        self,
        settings: Settings,
        tell: Callable[[Answer], None],
        *,
        connect: Callable[..., Database] = connect,
    ) -> None:
        self._settings = settings
        self._tell = tell
        self._connect = connect
        self._database: Database | None = None
        self._questions: queue.SimpleQueue[Callable[[], Answer] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="rowpost peeker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, name: str, *, purge: bool = False) -> None:
        """How many wait in that queue? Or, `purge`: empty it."""
        self._questions.put(partial(self._answer, name, purge))

    def count_crash(self, crash: Crash) -> None:
        """Count it as a failed attempt at the message, and move the message if it was the last one."""
        self._questions.put(partial(self._count_crash, crash))

    def stop(self) -> None:
        """End after the question in hand; a hanging database is not waited for."""
        self._questions.put(None)
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            self._tell(question())
        self._disconnect()

    def _answer(self, name: str, purge: bool) -> Answer:
        try:
            here = Queue(name, self._get_database())
            return Answer(name, here.purge() if purge else here.peek(PEEK_COUNT), purge)
        except RowpostError as error:
            return Answer(name, purged=purge, error=self._note(error))

    def _count_crash(self, crash: Crash) -> Answer:
        worker = self._settings.queue(crash.queue).worker
        try:
            database = self._get_database()
            retries = Retries(
                crash.queue,
                queue_key(parse_address(crash.queue), database.engine),
                recoverability=_recoverability(crash.terms) or plain_recoverability(worker.attempts),
                error_queue=crash.terms.error_queue if crash.terms else self._settings.supervisor.error_queue,
            )
            outcome = retries.crashed(database, crash.row_id, crash.row_version, crash.error)
            return Answer(crash.queue, crash=crash, outcome=outcome)
        except RowpostError as error:
            return Answer(crash.queue, crash=crash, error=self._note(error))

    def _get_database(self) -> Database:
        if self._database is None:
            self._database = self._connect(self._settings, application_name="rowpost supervisor")
        return self._database

    def _note(self, error: RowpostError) -> RowpostError:
        """An error that costs the connection makes the next question open another one."""
        if isinstance(error, DatabaseUnavailable) or (self._database is not None and self._database.closed):
            self._disconnect()
        return error

    def _disconnect(self) -> None:
        if self._database is not None:
            with suppress(RowpostError):
                self._database.close()
            self._database = None


def _recoverability(terms: Terms | None) -> Recoverability | None:
    if terms is None:
        return None
    return Recoverability(terms.immediate_retries, terms.delayed_retries, terms.delay_increase)
