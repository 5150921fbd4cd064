"""The queue monitor: the supervisor's one connection, in a thread of its own.

It peeks at queues, receives wake-ups from senders, purges queues and counts crashes. It runs in its own thread, because
a database that hangs must not keep the supervisor from its workers' reports and its signals.

    monitor = QueueMonitor(settings, post)
    monitor.start()
    monitor.ask("Sales")              # later: post(Answer("Sales", count=3, …)), in the monitor's thread

Notifications arrive on the connection that peeks, so that every peek proves that the connection works. After a lost
connection, every queue is peeked at.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any

from rowpost.database.connection import Connection, connect
from rowpost.endpoint.hosting import host_of
from rowpost.errors import DatabaseUnavailable, LockTimeout, PermissionDenied, QueueNotFound, RowpostError
from rowpost.pipeline.lease import owner_of
from rowpost.recoverability.leases import LeaseRetries
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import plain_recoverability
from rowpost.recoverability.retries import Retries
from rowpost.settings.environment import Settings
from rowpost.transport.queue import Queue
from rowpost.transport.supervisors import ReportedWorker
from rowpost.wire.address import parse_address, queue_key
from rowpost.wire.outgoing import Call
from rowpost.workers import events
from rowpost.workers.answers import Answer, Control, Crash, WakeUp
from rowpost.workers.protocol import CrashPolicy
from rowpost.workers.supervision.lifelines import Lifeline
from rowpost.workers.supervision.presence import PresenceReports

__all__ = ["PEEKS_TOGETHER", "QueueMonitor"]

# Pause after an unexpected error, so that a lasting defect does not make the thread spin.
FAILURE_PAUSE_S = 1.0
# A peek waits for a lock on a queue's table for so long, because the other queues of the supervisor wait with it.
LOCK_TIMEOUT_MS = 1000
# Peeks of one round trip: notifications are read between two of them.
PEEKS_TOGETHER = 25
NOT_WATCHED = (
    "The login may peek at {} but may not call its procedure watch_queue, so that senders cannot wake the supervisor "
    "and "
    "messages wait for the next peek, and pauses and limits in the database have no effect. `rowpost queue grant` "
    "prints the statement that grants the right."
)
NOT_REPORTED = (
    "This supervisor cannot report its workers to the database, so that `rowpost workers` does not list them: {}"
)


@dataclass(frozen=True, slots=True)
class _Peek:
    """A request to count the messages of a queue.

    `wake_up_ttl_s`: if the queue is empty, senders are requested to notify for so many seconds; 0 requests nothing.
    """

    queue: str
    wake_up_ttl_s: float


_Request = _Peek | Callable[[], list[Answer] | None] | None


class QueueMonitor:
    """Executes the supervisor's requests, several peeks in one round trip, and receives wake-ups meanwhile.

    `ask`, `count_crash` and `stop` may be called from any thread and do not block on the database.

    Args:
        post: called with each Answer, WakeUp and event, in the monitor's thread.
    """

    def __init__(
        self,
        settings: Settings,
        post: Callable[[Answer | WakeUp | events.Event], None],
        *,
        connect: Callable[..., Connection] = connect,
    ) -> None:
        self._settings = settings
        self._post = post
        self._connect = connect
        self._database: Connection | None = None
        #: the connection on which notifications arrive; None while there is none
        self._listening: Connection | None = None
        self._connection_lost = False
        self._ended = threading.Event()
        self._unwatched: set[str] = set()
        #: queues whose tables were locked at the last peek: each is peeked at apart, after the others
        self._locked: set[str] = set()
        self._lock_timeout_ms: int | None = None
        self._names: dict[str, str] = {}
        self._presence = PresenceReports(settings)
        self._requests: deque[_Request] = deque()
        self._wake_reader, self._wake_writer = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._run, name="rowpost monitor", daemon=True)

    @property
    def lifeline(self) -> Lifeline:
        """What shows others of this host that the supervisor has died; its workers share it."""
        return self._presence.lifeline

    def start(self) -> None:
        self.lifeline.hold()
        self._thread.start()

    def ask(self, name: str, *, purge: bool = False, wake_up_ttl_s: float = 0.0) -> None:
        """Request a count of the messages of a queue, or with `purge` their removal.

        Args:
            wake_up_ttl_s: if the queue is empty, request notifications from senders for so many seconds.
        """
        self._put(
            partial(self._answers, name, partial(self._purge, name), purged=True)
            if purge
            else _Peek(name, wake_up_ttl_s)
        )

    def report(self, queues: Iterable[str], workers: Iterable[ReportedWorker]) -> None:
        """Record the queues and workers of this supervisor, in the round trip of the next peek."""
        self._presence.report(queues, workers)

    def flush_report(self) -> None:
        """Record them now, if no peek has taken them along."""
        self._put(self._send_report)

    def use(self, settings: Settings) -> None:
        """Continue with other settings of the same database."""
        self._settings = settings

    def count_crash(self, crash: Crash) -> None:
        """Request that a crash is counted as a failed attempt; the message is moved if it was the last attempt."""
        self._put(partial(self._answers, crash.queue, partial(self._count_crash, crash), crash=crash))

    def stop(self) -> None:
        """End the thread after the current request; waits at most 1 s, because the database may hang."""
        self._ended.set()
        self._put(None)
        self._thread.join(timeout=1.0)

    def _put(self, request: _Request) -> None:
        self._requests.append(request)
        self._wake_writer.send_bytes(b"?")

    def _run(self) -> None:
        while True:
            requests: list[_Request] = []
            try:
                requests = self._take()
                self._execute(requests)
            except Exception as error:  # noqa: BLE001 -- the last resort: a dead thread would stop every queue silently
                self._disconnect()
                names = ", ".join(queue.name for queue in self._settings.queues if queue.worker is not None)
                text = f"Unexpected error in the queue monitor, which continues: {type(error).__name__}: {error}"
                self._post(events.Critical(queue=names, error=text))
                self._ended.wait(FAILURE_PAUSE_S)
            if None in requests:
                self._end()
                return

    def _execute(self, requests: list[_Request]) -> None:
        peeks = [request for request in requests if isinstance(request, _Peek)]
        apart = [[peek] for peek in peeks if peek.queue in self._locked]
        free = [peek for peek in peeks if peek.queue not in self._locked]
        groups = [free[start : start + PEEKS_TOGETHER] for start in range(0, len(free), PEEKS_TOGETHER)]
        for group in (*groups, *apart):
            for answer in self._peek(group):
                self._post(answer)
            if len(groups) > 1:
                self._receive_notifications()
        for request in requests:
            if request is not None and not isinstance(request, _Peek):
                for answer in request() or ():
                    self._post(answer)

    def _take(self) -> list[_Request]:
        """Return all pending requests; wait for one and receive notifications meanwhile."""
        while not self._wake_reader.poll():
            self._receive_notifications()
            listening = self._listening
            wait([self._wake_reader] if listening is None else [self._wake_reader, listening.driver_connection])
        requests = []
        while self._wake_reader.poll():
            self._wake_reader.recv_bytes()
            requests.append(self._requests.popleft())
        return requests

    def _receive_notifications(self) -> None:
        if self._listening is None:
            return
        try:
            for key in self._listening.heard():
                if key in self._names:
                    self._post(WakeUp(self._names[key]))
        except RowpostError:
            self._disconnect()
            self._post(WakeUp())  # the peeks that follow open a new connection

    # -------------------------------------------------------------- peeks
    def _peek(self, peeks: list[_Peek]) -> list[Answer]:
        """Peek at all queues in one round trip; if it fails, at each one separately, so that each gets its own
        error.
        """
        if not peeks:
            return []
        try:
            return self._peek_together(peeks)
        except Exception as error:  # noqa: BLE001 -- an unexpected error too is an answer: the pool waits for one
            self._after_error(error)
            if self._database is None:
                return [Answer(peek.queue, error=error) for peek in peeks]
            if self._presence.calls:  # maybe it was the report that failed
                self._send_report()
                return self._peek(peeks)
            if len(peeks) == 1:
                return [self._peek_unwatched(peeks[0].queue, error)]
            return [answer for peek in peeks for answer in self._peek([peek])]

    def _peek_together(self, peeks: list[_Peek]) -> list[Answer]:
        self._open(LOCK_TIMEOUT_MS)
        self._presence.search()
        reports = self._presence.calls
        answers = self._ask_database(reports, [self._call_for(peek) for peek in peeks])
        self._presence.sent()
        self._locked.difference_update(peek.queue for peek in peeks)
        return answers

    def _ask_database(self, reports: Sequence[Call], peeks: Sequence[Call]) -> list[Answer]:
        """Execute calls in one round trip: reports, and peeks, whose rows are the answers."""
        database, started = self._open(LOCK_TIMEOUT_MS), time.perf_counter()
        results = database.call_all([*reports, *peeks])[len(reports) :]
        seconds = time.perf_counter() - started
        return [_answer(str(call.queue), rows[0], seconds) for call, rows in zip(peeks, results, strict=True)]

    def _call_for(self, peek: _Peek) -> Call:
        if peek.queue in self._unwatched:
            return self._peek_call(peek.queue)
        wake_up_ttl_ms = 0 if self._listening is None else int(peek.wake_up_ttl_s * 1000)
        arguments = {"wake_up_ttl_ms": wake_up_ttl_ms, "supervisor_id": self._presence.supervisor_id}
        return Call("watch_queue", peek.queue, {"count": self._settings.supervisor.peek_batch_size} | arguments)

    def _peek_call(self, queue: str) -> Call:
        return Call("peek_queue", queue, {"count": self._settings.supervisor.peek_batch_size})

    def _peek_unwatched(self, queue: str, error: Exception) -> Answer:
        """Peek at a queue that cannot be watched; return the original error if that is not the reason.

        A login that may not watch a queue peeks at it from now on. A queue without its delayed table is worked anyway:
        its delayed mover reports the problem.
        """
        if isinstance(error, LockTimeout):
            self._locked.add(queue)
        if queue in self._unwatched or not isinstance(error, PermissionDenied | QueueNotFound):
            return Answer(queue, error=error)
        denied = isinstance(error, PermissionDenied)
        if denied:
            self._unwatched.add(queue)
        (answer,) = self._answers(queue, lambda: self._ask_database((), [self._peek_call(queue)]))
        return replace(answer, warning=NOT_WATCHED.format(queue)) if denied and answer.error is None else answer

    # -------------------------------------------------------------- other requests
    def _answers(self, queue: str, work: Callable[[], list[Answer]], **failed: Any) -> list[Answer]:
        """Return what `work` answers, or the error that it raises, also an unexpected one: the pool waits for an
        answer.
        """
        try:
            return work()
        except Exception as error:  # noqa: BLE001 -- see above
            self._after_error(error)
            return [Answer(queue, error=error, **failed)]

    def _send_report(self) -> None:
        if not self._presence.calls:
            return
        try:
            self._open(LOCK_TIMEOUT_MS).call_all(self._presence.calls)
        except RowpostError as error:
            self._after_error(error)
            if self._presence.failed(error):
                self._post(events.Warned(text=NOT_REPORTED.format(error)))
        else:
            self._presence.sent()

    def _end(self) -> None:
        """Record that this supervisor has ended, if there is a connection, and close it."""
        last = self._presence.last_calls
        with suppress(RowpostError):
            if last and self._database is not None:
                self._database.call_all(last)
            if self._database is not None or not last:
                self._presence.ended()
        self.lifeline.release()
        self._disconnect()

    def _purge(self, name: str) -> list[Answer]:
        return [Answer(name, Queue(name, self._open()).purge(), purged=True)]

    def _count_crash(self, crash: Crash) -> list[Answer]:
        policy = crash.crash_policy or self._plain_policy(crash.queue)
        database, address = self._open(), parse_address(crash.queue)
        declared = self._settings.queue(crash.queue)
        arguments: dict[str, Any] = {
            "address": database.canonical(address),
            "recoverability": policy.recoverability,
            "error_queue": policy.error_queue,
            "host": host_of(self._settings, crash.queue),
        }
        key, died = queue_key(address, database.engine), (crash.row_id, crash.row_version, crash.error)
        if not crash.counts:
            with suppress(QueueNotFound):  # the queue has no table of leases yet
                LeaseRetries(crash.queue, key, **arguments).give_back_of(
                    database, crash.row_version, owner_of(crash.pid)
                )
            return [Answer(crash.queue, crash=crash)]
        if declared is not None and declared.lease:
            outcome = LeaseRetries(crash.queue, key, **arguments).crashed(database, *died, owner_of(crash.pid))
        else:
            outcome = Retries(crash.queue, key, **arguments).crashed(database, *died)
        # empty: the message was handled, or another process has it
        return [Answer(crash.queue, crash=crash, outcome=None if outcome.kind is Kind.EMPTY else outcome)]

    def _plain_policy(self, name: str) -> CrashPolicy:
        """Return the policy for a worker that never reported one: that of a plain function."""
        queue = self._settings.queue(name)
        if queue is None or queue.worker is None:
            raise LookupError(f"Queue {name!r} has no worker in the settings.")
        return CrashPolicy.of(plain_recoverability(queue.worker.retries), self._settings.supervisor.error_queue)

    # -------------------------------------------------------------- connection
    def _open(self, lock_timeout_ms: int | None = None) -> Connection:
        """Return the connection, which waits for locks at most so many milliseconds; None: as the login's settings
        say.
        """
        if self._database is None:
            self._lock_timeout_ms = None
            self._database = self._connect(self._settings, application_name="rowpost supervisor")
            if self._settings.supervisor.wake_up and self._can_listen(self._database):
                self._listening = self._database
            if self._connection_lost:
                self._connection_lost = False
                self._post(WakeUp())
        if lock_timeout_ms != self._lock_timeout_ms:
            self._database.limit_lock_waits(lock_timeout_ms)
            self._lock_timeout_ms = lock_timeout_ms
        return self._database

    def _can_listen(self, database: Connection) -> bool:
        self._names = {
            queue_key(parse_address(each.name), database.engine): each.name for each in self._settings.queues
        }
        try:
            return database.listen()
        except DatabaseUnavailable:
            self._disconnect()
            raise
        except RowpostError:  # for example on a standby; the peeks report what is wrong
            return False

    def _after_error(self, error: Exception) -> None:
        """Close the connection if it is lost, or if its state is unknown after an unexpected error."""
        lost = isinstance(error, DatabaseUnavailable) or not isinstance(error, RowpostError)
        if lost or (self._database is not None and self._database.closed):
            self._disconnect()

    def _disconnect(self) -> None:
        if self._database is not None:
            with suppress(Exception):
                self._database.close()
            self._database, self._listening, self._connection_lost = None, None, True


def _answer(queue: str, row: tuple[Any, ...], seconds: float) -> Answer:
    if len(row) == 1:  # of peek_queue
        return Answer(queue, row[0], seconds=seconds)
    waiting, next_due_ms, paused, limit, reason, by = row
    next_due = float("inf") if next_due_ms is None else next_due_ms / 1000
    return Answer(
        queue, waiting, seconds=seconds, next_due=next_due, control=Control(paused, limit, reason or "", by or "")
    )
