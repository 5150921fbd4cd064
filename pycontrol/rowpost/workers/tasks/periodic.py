"""A thread with a connection of its own that executes an action for each of several queues when it is due.

The base of all periodic tasks: the delayed mover, maintenance, purges and others. A task survives the loss of the
database with its own circuit breaker. It never delays peeks or the supervisor's signals, because it runs in its own
thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Any

from rowpost.database.connection import Connection, connect
from rowpost.errors import DatabaseUnavailable, RowpostError
from rowpost.settings.environment import Settings
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker, arms_circuit_breaker

__all__ = ["Action", "Election", "PeriodicTask", "Work", "periodic_task"]

# Pause before a deadlock is retried, so that the thread does not spin.
DEADLOCK_PAUSE_S = 0.05

#: called with a connection and a queue's name; returns the seconds until the queue's next execution, None for never
#: again
Action = Callable[[Connection, str], float | None]
#: the queues of a task, or other units of work, and its action
Work = tuple[Iterable[str], Action]


class PeriodicTask:
    """Executes an action for each queue, one after the other, at the time that the last execution or `schedule` set.

    Args:
        queues: names of the queues; other units of work, such as databases, may be given.
        action: see Action.
        name: of the thread, and the application name of its session.
        activity: completes the sentence "Failed to … Sales: …" in events.
        emit: called with each event, in the task's thread.
        select: narrows the queues on each new connection, if the database decides which ones need the task.
        once_more: execute the action for every queue a last time before the thread ends, if it has a connection.
    """

    def __init__(
        self,
        settings: Settings,
        queues: Iterable[str],
        action: Action,
        *,
        name: str,
        activity: str,
        emit: events.Emit,
        breaker: CircuitBreaker | None = None,
        select: Callable[[Connection, list[str]], list[str]] | None = None,
        once_more: bool = False,
        connect: Callable[..., Connection] = connect,
    ) -> None:
        self._settings = settings
        self._queues = list(queues)
        self._action, self._name, self._activity, self._emit = action, name, activity, emit
        self._breaker = replace(breaker or CircuitBreaker(), seconds=settings.supervisor.breaker_seconds)
        self._select = select or (lambda _, queues: queues)
        self._once_more, self._connect = once_more, connect
        self._database: Connection | None = None
        self._due: dict[str, float] = {}
        self._scheduled: dict[str, tuple[float, float]] = {}
        # while the thread waits: until when; `schedule` wakes it only for an earlier time
        self._waits_until = float("-inf")
        self._ended = False
        self._wake_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; does nothing without queues."""
        if self._queues:
            self._thread.start()

    @property
    def ending(self) -> bool:
        """Whether the thread was asked to end, so that a long action stops early."""
        return self._ended

    def stop(self) -> None:
        """End the thread after the current execution; waits at most 1 s, because the database may hang."""
        self._ended = True
        self._wake_up.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def schedule(self, queue: str, seconds: float) -> None:
        """Move the queue's next execution to `seconds` from now, earlier or later than before. Thread-safe.

        This has no effect while an execution is due or running, nor after one that failed, because these set a newer
        time.
        """
        now = time.monotonic()
        self._scheduled[queue] = now, now + seconds
        if now + seconds < self._waits_until:
            self._wake_up.set()

    def _run(self) -> None:
        while not self._ended:
            self._waits_until = float("-inf")
            try:
                until = self._round()
            except Exception as error:  # noqa: BLE001 -- no connection; or a defect, which must not end the thread silently
                until = time.monotonic() + self._record_failure(self._queues[0], error)
            else:
                if until is None:
                    break
                self._waits_until = until
            self._wake_up.wait(max(0.0, until - time.monotonic()))
            self._wake_up.clear()
        if self._once_more:
            self._end()
        self._disconnect()

    def _end(self) -> None:
        """Execute the action a last time. Nothing is connected anew, because the supervisor waits for at most 1 s."""
        database = self._database
        if database is None:
            return
        for queue in self._queues:
            try:
                self._action(database, queue)
            except Exception as error:  # noqa: BLE001 -- as in _round
                self._record_failure(queue, error)
                break

    def _round(self) -> float | None:
        """Execute the action for every queue that is due; return when the next one is due, None if there is none."""
        database = self._open()
        self._waits_until = float("inf")
        self._apply_schedule()
        for queue in [queue for queue, due in self._due.items() if due <= time.monotonic()]:
            if self._ended:
                break
            try:
                wait = self._action(database, queue)
            except Exception as error:  # noqa: BLE001 -- a defect must not end the thread silently
                self._due[queue] = time.monotonic() + self._record_failure(queue, error)
                if self._database is None:
                    break
                continue
            self._record_success(queue)
            self._scheduled.pop(queue, None)
            if wait is None:
                del self._due[queue]
            else:
                self._due[queue] = time.monotonic() + wait
        return min(self._due.values(), default=None)

    def _apply_schedule(self) -> None:
        """Apply what was scheduled since the last round."""
        while self._scheduled:
            queue, (scheduled_at, due) = self._scheduled.popitem()
            if self._due.get(queue, scheduled_at) > scheduled_at and queue not in self._breaker.failing:
                self._due[queue] = due

    def _open(self) -> Connection:
        if self._database is None:
            self._database = self._connect(self._settings, application_name=self._name)
            for queue in self._select(self._database, self._queues):
                self._due.setdefault(queue, 0.0)
        return self._database

    def _record_failure(self, queue: str, error: Exception) -> float:
        """Report a failure; return the seconds to wait before the next try.

        An exception that rowpost does not raise itself indicates a defect: it is reported as critical at once, and the
        connection is closed, because its state is unknown.
        """
        unexpected = not isinstance(error, RowpostError)
        database = self._database
        if database is not None:
            if unexpected or isinstance(error, DatabaseUnavailable) or database.closed:
                self._disconnect()
            else:
                with suppress(RowpostError):
                    database.rollback()
        if not arms_circuit_breaker(error):
            return DEADLOCK_PAUSE_S
        reason = f"{type(error).__name__}: {error}" if unexpected else str(error)
        text = f"Failed to {self._activity} {queue}: {reason}"
        known = queue in self._breaker.failing
        self._breaker = self._breaker.after_failure(time.monotonic(), queue)
        if self._breaker.change == "triggered" or (unexpected and not known):
            self._emit(events.Critical(queue=queue, error=text))
        elif not known:
            self._emit(events.Trouble(queue=queue, error=text))
        return self._breaker.wait

    def _record_success(self, queue: str) -> None:
        self._breaker = self._breaker.after_success(queue)
        if self._breaker.change == "recovered":
            self._emit(events.Recovered(queue=queue))

    def _disconnect(self) -> None:
        if self._database is not None:
            with suppress(Exception):
                self._database.close()
            self._database = None


class Election:
    """Lets one of all sessions do a duty: the one that the database elects, for as long as its connection lives."""

    def __init__(self, duty: str) -> None:
        self._duty = duty
        self._won_on: Connection | None = None

    def won(self, database: Connection) -> bool:
        """Return whether this session is elected."""
        if self._won_on is not database and database.call("elect", duty=self._duty)[0].elected:
            self._won_on = database
        return self._won_on is database


def periodic_task(
    name: str, activity: str, **fixed: Any
) -> Callable[[Callable[[Settings, events.Emit], Work]], Callable[..., PeriodicTask]]:
    """Decorate a function that returns the work of a task, so that it returns the task.

    The arguments are those of `PeriodicTask`.
    """

    def decorate(work: Callable[[Settings, events.Emit], Work]) -> Callable[..., PeriodicTask]:
        @wraps(work)
        def make(
            settings: Settings, emit: events.Emit, breaker: CircuitBreaker | None = None, **options: Any
        ) -> PeriodicTask:
            units, action = work(settings, emit)
            return PeriodicTask(
                settings, units, action, name=name, activity=activity, emit=emit, breaker=breaker, **fixed, **options
            )

        return make

    return decorate
