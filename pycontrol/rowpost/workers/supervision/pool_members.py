"""The supervisor's view of the workers of one queue: which are idle, busy, starting or exiting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rowpost.transport.supervisors import Worker
from rowpost.workers.concurrency import LONG_RECEIVE_S
from rowpost.workers.protocol import Exit, Receive

__all__ = ["KILLED", "OVERDUE", "State", "WorkerHandle", "WorkerHandles", "respawn_delay"]

MAX_RESPAWN_DELAY_S = 10.0
# Reasons of events.WorkerStopped.
KILLED, OVERDUE = "killed", "time limit"


class State(Enum):
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
    process: Any
    state: State
    since: float
    reported_at: float
    round: int = 0
    reason: str = ""
    failing: bool = False

    @property
    def occupied(self) -> bool:
        """Whether the worker receives, or will receive as soon as it has started."""
        return self.state is State.BUSY or (self.state is State.STARTING and self.round > 0)

    @property
    def available(self) -> bool:
        """Whether the worker can be given a command to receive."""
        return self.state is State.IDLE or (self.state is State.STARTING and self.round == 0)

    @property
    def killed(self) -> bool:
        """Whether the worker was killed already."""
        return self.reason in (KILLED, OVERDUE)

    def described(self, queue: str, now: float) -> Worker:
        """Return the worker as a report shows it. Its message is the one that a handler has."""
        message, since = self.process.in_flight, self.process.in_flight_since
        handles = message is not None and since is not None
        return Worker(
            queue=queue,
            process_id=self.process.pid,
            state=self.state.value,
            seconds=round(now - self.since, 1),
            message=str(message[0]) if handles else None,
            message_seconds=round(now - since, 1) if handles else None,
        )

    def enter(self, state: State, now: float) -> None:
        self.state, self.since = state, now

    def receive(self, now: float) -> None:
        """Command the worker to receive until the queue is empty."""
        self.round += 1
        if self.state is State.IDLE:
            self.enter(State.BUSY, now)
        self.process.send(Receive(self.round))

    def request_exit(self, reason: str) -> None:
        """Command the worker to exit after its in-flight message."""
        self.reason, self.state = reason, State.EXITING
        self.process.send(Exit())

    def kill(self, reason: str = KILLED) -> None:
        """Kill the worker process; its in-flight message is in the queue again."""
        self.reason = reason
        self.process.kill()


class WorkerHandles:
    """The workers of one queue by number. Numbers are never reused."""

    def __init__(self) -> None:
        self._by_number: dict[int, WorkerHandle] = {}
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._by_number)

    @property
    def all(self) -> list[WorkerHandle]:
        """All workers, also those that are exiting; a copy, safe to read from another thread."""
        return list(self._by_number.values())

    @property
    def staying(self) -> list[WorkerHandle]:
        """The workers that were not requested to exit."""
        return [handle for handle in self.all if handle.state is not State.EXITING]

    @property
    def occupied(self) -> int:
        """Number of workers that receive, or will receive."""
        return sum(1 for handle in self.all if handle.occupied)

    @property
    def without_message(self) -> int:
        """Number of occupied workers with no message in flight: each will take a message that a peek still counts."""
        return sum(1 for handle in self.all if handle.occupied and not handle.failing and handle.process.in_flight_since is None)

    @property
    def busy(self) -> int:
        """Number of workers that receive without failures."""
        return sum(1 for handle in self.all if handle.state is State.BUSY and not handle.failing)

    def find(self, number: int) -> WorkerHandle | None:
        return self._by_number.get(number)

    def next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def add(self, handle: WorkerHandle) -> None:
        self._by_number[handle.number] = handle

    def remove(self, handle: WorkerHandle) -> None:
        del self._by_number[handle.number]

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
            elif handle.state in (State.BUSY, State.EXITING):
                next_at = min(next_at, (now if since is None else since) + limit)
        return late, next_at

    def due(self, polls: bool, idle_timeout: float) -> Iterator[float]:
        """Yield when each busy poller exceeds a long receive, or when each idle worker exceeds `idle_timeout`."""
        for handle in self.all:
            if polls and handle.state is State.BUSY:
                yield handle.reported_at + LONG_RECEIVE_S + 0.001
            elif not polls and handle.state is State.IDLE:
                yield handle.since + idle_timeout

    def least_useful(self) -> list[WorkerHandle]:
        """Return the staying workers: idle before starting before busy, the youngest first."""
        order = {State.IDLE: 0, State.STARTING: 1, State.BUSY: 2}
        return sorted(self.staying, key=lambda handle: (order[handle.state], -handle.number))


def respawn_delay(deaths: int) -> float:
    """Return the seconds until a replacement starts, after that many deaths with no message handled between them.

    >>> [respawn_delay(deaths) for deaths in (1, 2, 3, 8, 20)]
    [0.1, 0.2, 0.4, 10.0, 10.0]
    """
    return min(MAX_RESPAWN_DELAY_S, 0.1 * 2.0 ** min(deaths - 1, 10))
