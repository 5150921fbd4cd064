"""The supervisor's view of the workers of one queue: which are idle, busy, starting or exiting.

Starts new ones, later and later after deaths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from rowpost.transport.supervisors import ReportedWorker
from rowpost.workers.concurrency import LONG_RECEIVE_S
from rowpost.workers.events import Emit, Trouble
from rowpost.workers.protocol import Assignment, Exit, Receive
from rowpost.workers.worker.process import WorkerProcess

__all__ = ["INTERRUPTED", "KILLED", "OVERDUE", "WorkerHandle", "WorkerHandles", "WorkerState", "respawn_delay"]

MAX_RESPAWN_DELAY_S = 10.0
# Reasons of events.WorkerStopped.
KILLED, INTERRUPTED, OVERDUE = "killed", "interrupted", "time limit"


class WorkerState(Enum):
    """State of a worker as the supervisor sees it: STARTING -> IDLE <-> BUSY -> EXITING."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    EXITING = "exiting"


@dataclass(slots=True)
class WorkerHandle:
    """One worker of the pool.

    Attributes:
        since: when the worker entered its state, by the supervisor's clock.
        reported_at: when its last report arrived, by the supervisor's clock.
        round: number of the last command to receive; 0 before the first.
        reason: why the supervisor ends the worker; empty while it does not.
        failing: whether the worker's receives fail, so that it retries.
    """

    number: int
    process: WorkerProcess
    state: WorkerState
    since: float
    reported_at: float
    round: int = 0
    reason: str = ""
    failing: bool = False

    @property
    def occupied(self) -> bool:
        """Whether the worker receives, or will receive as soon as it has started."""
        return self.state is WorkerState.BUSY or (self.state is WorkerState.STARTING and self.round > 0)

    @property
    def available(self) -> bool:
        """Whether the worker can be given a command to receive."""
        return self.state is WorkerState.IDLE or (self.state is WorkerState.STARTING and self.round == 0)

    @property
    def killed(self) -> bool:
        """Whether the worker was interrupted or killed already."""
        return self.reason in (KILLED, INTERRUPTED, OVERDUE)

    def described(self, queue: str, now: float) -> ReportedWorker:
        """Return the worker as a report shows it. Its message is the one that a handler has."""
        message, since = self.process.in_flight, self.process.in_flight_since
        shown = ReportedWorker(
            queue=queue, process_id=self.process.pid, state=self.state.value, seconds=round(now - self.since, 1)
        )
        return (
            shown
            if message is None or since is None
            else replace(shown, message=str(message[0]), message_seconds=round(now - since, 1))
        )

    def enter(self, state: WorkerState, now: float) -> None:
        self.state, self.since = state, now

    def receive(self, now: float) -> None:
        """Command the worker to receive until the queue is empty."""
        self.round += 1
        if self.state is WorkerState.IDLE:
            self.enter(WorkerState.BUSY, now)
        self.process.send(Receive(self.round))

    def request_exit(self, reason: str) -> None:
        """Command the worker to exit after its in-flight message."""
        self.reason, self.state = reason, WorkerState.EXITING
        self.process.send(Exit())

    def interrupt(self) -> None:
        """Interrupt the worker's handler; its in-flight message is in the queue again."""
        if not self.killed:
            self.reason = INTERRUPTED
            self.process.interrupt()

    def kill(self, reason: str = KILLED) -> None:
        """End the worker; its in-flight message is in the queue again."""
        self.reason = reason
        if reason == OVERDUE:
            self.process.expire()
        else:
            self.process.kill()


class WorkerHandles(dict[int, WorkerHandle]):
    """The workers of one queue by number, also those that are exiting. Numbers are never reused.

    Args:
        queue: the queue's name.
        assign: returns the assignment of a worker; called with its number and whether it starts to receive at once.
        spawn: starts a process for an assignment. Raises OSError.
        emit: called with each event.

    Attributes:
        next_start_at: when the next worker may start, by the supervisor's clock.
    """

    def __init__(
        self,
        queue: str,
        assign: Callable[[int, bool], Assignment],
        spawn: Callable[[Assignment], WorkerProcess],
        emit: Emit,
    ) -> None:
        super().__init__()
        self._queue, self._assign, self._spawn, self._emit = queue, assign, spawn, emit
        self._last_number = self._deaths = 0
        self.next_start_at = float("-inf")

    def start(
        self, count: int, now: float, *, receive: bool, round: int, suspects: Sequence[int] = ()
    ) -> list[WorkerHandle]:
        """Start workers, unless it is too early after one that died. Return them.

        Args:
            count: how many.
            receive: whether they receive at once.
            round: the number of their command to receive, 0 for none.
            suspects: messages that the worker, which is alone in its process, tries first.
        """
        started: list[WorkerHandle] = []
        if now < self.next_start_at:
            return started
        for _ in range(count):
            self._last_number += 1
            number = self._last_number
            try:
                process = self._spawn(replace(self._assign(number, receive), suspects=tuple(suspects)))
            except OSError as error:  # the system is out of processes or file descriptors
                self._emit(Trouble(queue=self._queue, error=f"Failed to start a worker for {self._queue}: {error}"))
                self.delay(now)
                break
            self[number] = WorkerHandle(number, process, WorkerState.STARTING, now, now, round=round)
            started.append(self[number])
        return started

    def borrow(self, borrow: Callable[[Assignment], Any], now: float) -> WorkerHandle | None:
        """Let the warm process receive, if it is free. Return it as a worker."""
        process = borrow(self._assign(self._last_number + 1, True))
        if process is None:
            return None
        self._last_number += 1
        handle = self[self._last_number] = WorkerHandle(
            self._last_number, process, WorkerState.STARTING, now, now, round=1
        )
        return handle

    def delay(self, now: float) -> float:
        """Let the next worker start later, because one has died. Return the seconds until then."""
        self._deaths += 1
        seconds = respawn_delay(self._deaths)
        self.next_start_at = now + seconds
        return seconds

    def worked(self) -> None:
        """Forget the deaths: a worker has received."""
        self._deaths = 0

    @property
    def all(self) -> list[WorkerHandle]:
        """All workers; a copy, safe to read from another thread."""
        return list(self.values())

    @property
    def staying(self) -> list[WorkerHandle]:
        """The workers that were not requested to exit."""
        return [handle for handle in self.all if handle.state is not WorkerState.EXITING]

    @property
    def occupied(self) -> int:
        """Number of workers that receive, or will receive."""
        return sum(1 for handle in self.all if handle.occupied)

    @property
    def without_message(self) -> int:
        """Number of occupied workers with no message in flight: each will take a message that a peek still counts."""
        return sum(
            1
            for handle in self.all
            if handle.occupied and not handle.failing and handle.process.in_flight_since is None
        )

    @property
    def busy(self) -> int:
        """Number of workers that receive without failures."""
        return sum(1 for handle in self.all if handle.state is WorkerState.BUSY and not handle.failing)

    def overdue(self, now: float, limit: float) -> tuple[list[WorkerHandle], float]:
        """Return the workers whose message has been in flight for `limit` seconds, and when the next one reaches it."""
        late: list[WorkerHandle] = []
        next_at = float("inf")
        for handle in self.all:
            since = handle.process.in_flight_since
            if handle.killed:
                continue
            if since is not None and now - since >= limit:
                late.append(handle)
            elif handle.state in (WorkerState.BUSY, WorkerState.EXITING):
                next_at = min(next_at, (now if since is None else since) + limit)
        return late, next_at

    def due(self, polls: bool, idle_timeout: float) -> Iterator[float]:
        """Yield when each busy poller exceeds a long receive, or when each idle worker exceeds `idle_timeout`."""
        for handle in self.all:
            if polls and handle.state is WorkerState.BUSY:
                yield handle.reported_at + LONG_RECEIVE_S + 0.001
            elif not polls and handle.state is WorkerState.IDLE:
                yield handle.since + idle_timeout

    def least_useful(self) -> list[WorkerHandle]:
        """Return the staying workers: idle before starting before busy, the youngest first."""
        order = {WorkerState.IDLE: 0, WorkerState.STARTING: 1, WorkerState.BUSY: 2}
        return sorted(self.staying, key=lambda handle: (order[handle.state], -handle.number))


def respawn_delay(deaths: int) -> float:
    """Return the seconds until a replacement starts, after that many deaths with no message handled between them.

    >>> [respawn_delay(deaths) for deaths in (1, 2, 3, 8, 20)]
    [0.1, 0.2, 0.4, 10.0, 10.0]
    """
    return min(MAX_RESPAWN_DELAY_S, 0.1 * 2.0 ** min(deaths - 1, 10))
