"""The supervisor's one connection: peeks, hears senders, purges and counts crashes, in a thread of its own.

A database that hangs must not keep the supervisor from hearing its workers and its signals.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import wait
from uuid import UUID

from rowpost.database.connection import Connection, connect
from rowpost.errors import DatabaseUnavailable, PermissionDenied, QueueNotFound, RowpostError
from rowpost.recoverability.outcome import Outcome
from rowpost.recoverability.policy import Recoverability, plain_recoverability
from rowpost.recoverability.retries import Retries
from rowpost.settings.environment import Settings
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address, queue_key
from rowpost.wire.operation import Call
from rowpost.workers.protocol import CrashPolicy

__all__ = ["Answer", "Crash", "QueueMonitor", "WakeUp"]

# Where a peek stops counting: far above any number of workers, and cheap.
PEEK_COUNT = 1000
NOT_WOKEN = (
    "the login may peek at {} but not watch it: no sender wakes it, messages wait for the next peek; "
    "rowpost queue grant prints the statement that gives the right"
)


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
    terms: CrashPolicy | None = None
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

    `seconds`: how long the look took. `next_due`: seconds until the next delayed message is due, infinite where there is
    none, None where the look did not say.
    `crash` and `outcome`: what became of a message whose worker died. `warning`: something that somebody should know.
    """

    queue: str
    count: int = 0
    purged: bool = False
    error: RowpostError | None = None
    seconds: float = 0.0
    next_due: float | None = None
    crash: Crash | None = None
    outcome: Outcome | None = None
    warning: str = ""


@dataclass(frozen=True, slots=True)
class WakeUp:
    """Senders say that messages have come into the queue; None: into any, for nobody could hear them meanwhile."""

    queue: str | None = None


@dataclass(frozen=True, slots=True)
class _Look:
    """How many wait? `asleep`: seconds for which senders are asked to ring, where none does."""

    queue: str
    asleep: float


class QueueMonitor:
    """Answers questions, looks at several queues in one round trip, and hears senders meanwhile.

    `tell` is called with each Answer and each WakeUp, in the peeker's thread. Senders are heard on the connection that
    peeks: every look proves that it lives, and a new one begins with a look at every queue.
    """

    def __init__(
        self,
        settings: Settings,
        tell: Callable[[Answer | WakeUp], None],
        *,
        connect: Callable[..., Connection] = connect,
    ) -> None:
        self._settings = settings
        self._tell = tell
        self._connect = connect
        self._database: Connection | None = None
        self._listens = False
        self._lost = False
        self._unwatched: set[str] = set()
        self._names: dict[str, str] = {}
        self._questions: deque[_Look | Callable[[], Answer] | None] = deque()
        self._ear, self._mouth = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._run, name="rowpost peeker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, name: str, *, purge: bool = False, asleep: float = 0.0) -> None:
        """How many wait in that queue? Where none does, `asleep`: senders shall ring, for so many seconds.

        Or, `purge`: empty it.
        """
        self._put(partial(self._purge, name) if purge else _Look(name, asleep))

    def count_crash(self, crash: Crash) -> None:
        """Count it as a failed attempt at the message, and move the message if it was the last one."""
        self._put(partial(self._count_crash, crash))

    def stop(self) -> None:
        """End after the question in hand; a hanging database is not waited for."""
        self._put(None)
        self._thread.join(timeout=1.0)

    def _put(self, question: _Look | Callable[[], Answer] | None) -> None:
        self._questions.append(question)
        self._mouth.send_bytes(b"?")

    def _run(self) -> None:
        while True:
            questions = self._take()
            looks = [question for question in questions if isinstance(question, _Look)]
            for answer in self._look(looks):
                self._tell(answer)
            for question in questions:
                if question is None:
                    self._disconnect()
                    return
                if not isinstance(question, _Look):
                    self._tell(question())

    def _take(self) -> list[_Look | Callable[[], Answer] | None]:
        """All questions that were asked; senders are heard while there is none."""
        while not self._ear.poll():
            self._hear()
            ears = [self._ear, self._database.driver_connection] if self._listens else [self._ear]
            wait(ears)
        questions = []
        while self._ear.poll():
            self._ear.recv_bytes()
            questions.append(self._questions.popleft())
        return questions

    def _hear(self) -> None:
        if not self._listens:
            return
        try:
            for key in self._database.heard():
                if key in self._names:
                    self._tell(WakeUp(self._names[key]))
        except RowpostError:
            self._disconnect()
            self._tell(WakeUp())  # whoever looks now, opens another connection

    # -------------------------------------------------------------- looking
    def _look(self, looks: list[_Look]) -> list[Answer]:
        """One round trip for all; where that fails, each by itself, so that each gets its own error."""
        if not looks:
            return []
        try:
            return self._counted(looks)
        except RowpostError as error:
            error = self._note(error)
            if self._database is None:
                return [Answer(look.queue, error=error) for look in looks]
            if len(looks) == 1:
                return [self._refused(looks[0], error)]
            return [answer for look in looks for answer in self._look([look])]

    def _counted(self, looks: list[_Look]) -> list[Answer]:
        database = self._get_database()
        started = time.perf_counter()
        counts = database.call_all([self._spelt(look) for look in looks])
        seconds = time.perf_counter() - started
        return [_seen(look.queue, rows[0], seconds) for look, rows in zip(looks, counts, strict=True)]

    def _spelt(self, look: _Look) -> Call:
        if look.queue in self._unwatched:
            return Call("peek_queue", look.queue, {"count": PEEK_COUNT})
        asleep_ms = int(look.asleep * 1000) if self._listens else 0
        return Call("watch_queue", look.queue, {"count": PEEK_COUNT, "asleep_ms": asleep_ms})

    def _refused(self, look: _Look, error: RowpostError) -> Answer:
        """What cannot be watched is peeked at; a login that may not, by an older grant or on purpose, from now on.

        A queue whose delayed table is gone is worked all the same: its mover says what is wrong.
        """
        if look.queue in self._unwatched or not isinstance(error, PermissionDenied | QueueNotFound):
            return Answer(look.queue, error=error)
        self._unwatched.add(look.queue)
        (answer,) = self._look([look])
        if isinstance(error, QueueNotFound):
            self._unwatched.discard(look.queue)
            return answer
        return answer if answer.error else replace(answer, warning=NOT_WOKEN.format(look.queue))

    def _purge(self, name: str) -> Answer:
        try:
            return Answer(name, Queue(name, self._get_database()).purge(), purged=True)
        except RowpostError as error:
            return Answer(name, purged=True, error=self._note(error))

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

    def _get_database(self) -> Connection:
        if self._database is None:
            self._database = self._connect(self._settings, application_name="rowpost supervisor")
            self._listens = self._settings.supervisor.wake_up and self._can_listen(self._database)
            if self._lost:
                self._lost = False
                self._tell(WakeUp())
        return self._database

    def _can_listen(self, database: Connection) -> bool:
        self._names = {queue_key(parse_address(each.name), database.engine): each.name for each in self._settings.queues}
        try:
            return database.listen()
        except DatabaseUnavailable:
            self._disconnect()
            raise
        except RowpostError:  # a standby, say: peeks will tell
            return False

    def _note(self, error: RowpostError) -> RowpostError:
        """An error that costs the connection makes the next question open another one."""
        if isinstance(error, DatabaseUnavailable) or (self._database is not None and self._database.closed):
            self._disconnect()
        return error

    def _disconnect(self) -> None:
        if self._database is not None:
            with suppress(RowpostError):
                self._database.close()
            self._database, self._listens, self._lost = None, False, True


def _seen(queue: str, row: tuple[int, ...], seconds: float) -> Answer:
    if len(row) == 1:  # peeked
        return Answer(queue, row[0], seconds=seconds)
    waiting, next_due_ms = row
    return Answer(queue, waiting, seconds=seconds, next_due=float("inf") if next_due_ms is None else next_due_ms / 1000)


def _recoverability(terms: CrashPolicy | None) -> Recoverability | None:
    if terms is None:
        return None
    return Recoverability(terms.immediate_retries, terms.delayed_retries, terms.delay_increase)
