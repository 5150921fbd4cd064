"""The list of a queue's workers: who is idle, busy, or on the way in or out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rowpost.workers.concurrency import LONG_RECEIVE
from rowpost.workers.protocol import Leave, Receive

__all__ = ["KILLED", "OVERDUE", "State", "WorkerHandle", "WorkerHandles", "respawn_delay"]

GREATEST_RESPAWN_DELAY = 10.0
KILLED, OVERDUE = "killed", "time limit"


class State(Enum):
    """A worker's life as the supervisor sees it: STARTING -> IDLE <-> BUSY -> LEAVING."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    LEAVING = "leaving"


@dataclass(slots=True)
class WorkerHandle:
    """One worker. `since`: in this state; `heard_at`: its last report; both in the supervisor's clock.

    `round` numbers the commands to receive (0: none yet); `reason` says why it was sent away; `troubled`: it cannot
    receive and tries again.
    """

    number: int
    process: Any
    state: State
    since: float
    heard_at: float
    round: int = 0
    reason: str = ""
    troubled: bool = False

    @property
    def occupied(self) -> bool:
        """Whether it receives, or will as soon as it is up."""
        return self.state is State.BUSY or (self.state is State.STARTING and self.round > 0)

    @property
    def available(self) -> bool:
        """Whether it can be told to receive."""
        return self.state is State.IDLE or (self.state is State.STARTING and self.round == 0)

    @property
    def killed(self) -> bool:
        """Whether its end was decided, so that nobody has to kill it again."""
        return self.reason in (KILLED, OVERDUE)

    def enter(self, state: State, now: float) -> None:
        self.state, self.since = state, now

    def receive(self, now: float) -> None:
        """Tell it to receive until it finds nothing."""
        self.round += 1
        if self.state is State.IDLE:
            self.enter(State.BUSY, now)
        self.process.tell(Receive(self.round))

    def send_away(self, reason: str) -> None:
        """Tell it to leave after the message in hand."""
        self.reason, self.state = reason, State.LEAVING
        self.process.tell(Leave())

    def kill(self, reason: str = KILLED) -> None:
        """End it at once; what it has in hand is in the queue again."""
        self.reason = reason
        self.process.kill()


class WorkerHandles:
    """Workers by number; numbers are never used again."""

    def __init__(self) -> None:
        self._members: dict[int, WorkerHandle] = {}
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def members(self) -> list[WorkerHandle]:
        """All, those that are leaving too; a copy, safe to read from another thread."""
        return list(self._members.values())

    @property
    def staying(self) -> list[WorkerHandle]:
        """Those that were not sent away."""
        return [member for member in self.members if member.state is not State.LEAVING]

    @property
    def occupied(self) -> int:
        """How many receive, or will."""
        return sum(1 for member in self.members if member.occupied)

    @property
    def coming(self) -> int:
        """How many of those have no message in hand yet: each will take one that a peek still counts."""
        return sum(1 for member in self.members if member.occupied and not member.troubled and member.process.held_since is None)

    @property
    def busy(self) -> int:
        """How many have work and a database."""
        return sum(1 for member in self.members if member.state is State.BUSY and not member.troubled)

    def find(self, number: int | None) -> WorkerHandle | None:
        return self._members.get(number)

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def add(self, member: WorkerHandle) -> None:
        self._members[member.number] = member

    def remove(self, member: WorkerHandle) -> None:
        del self._members[member.number]

    def overdue(self, now: float, limit: float) -> tuple[list[WorkerHandle], float]:
        """Those whose message has been in hand for `limit` seconds, and when the next one's will have been."""
        late: list[WorkerHandle] = []
        next_at = float("inf")
        for member in self.members:
            since = member.process.held_since
            if member.killed:
                continue
            if since is not None and now - since >= limit:
                late.append(member)
            elif member.state in (State.BUSY, State.LEAVING):
                next_at = min(next_at, (now if since is None else since) + limit)
        return late, next_at

    def due(self, polls: bool, idle_timeout: float) -> Iterator[float]:
        """When each busy poller will have been silent for long, or each idle worker idle."""
        for member in self.members:
            if polls and member.state is State.BUSY:
                yield member.heard_at + LONG_RECEIVE + 0.001
            elif not polls and member.state is State.IDLE:
                yield member.since + idle_timeout

    def least_useful(self) -> list[WorkerHandle]:
        """Those that stay, idle before starting before busy, the youngest first."""
        order = {State.IDLE: 0, State.STARTING: 1, State.BUSY: 2}
        return sorted(self.staying, key=lambda member: (order[member.state], -member.number))


def respawn_delay(deaths: int) -> float:
    """Seconds until the replacement of a worker, after that many deaths without work done between them.

    >>> [respawn_delay(deaths) for deaths in (1, 2, 3, 8, 20)]
    [0.1, 0.2, 0.4, 10.0, 10.0]
    """
    return min(GREATEST_RESPAWN_DELAY, 0.1 * 2 ** min(deaths - 1, 10))
