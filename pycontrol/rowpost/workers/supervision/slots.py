"""Workers that are slots of processes: which process gets the next one, and what a process reports of each.

    hosts = SlotHosts(50, spawn_slots)
    slot = hosts.spawn(assignment)              # as `spawn_worker`: in a process that has room, else in a new one

A `Slot` is to the supervisor what a `WorkerProcess` is. The process ends with its last slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from rowpost.recoverability.stopping import FORCED, OVERDUE, REQUESTED
from rowpost.workers.protocol import Assignment, Exit, InFlight, Interrupt, OfSlot, SlotEnded, StartSlot, ToSlot
from rowpost.workers.worker.process import SlotsProcess

__all__ = ["Slot", "SlotHosts"]

#: in which the assignments of two slots of a process differ
_OWN = ("number", "receive", "subscribes", "breaker", "backoff", "suspects")


class SlotHosts:
    """The processes of one queue's slots.

    Args:
        size: how many slots a process has at most.
        spawn: starts a process with so many slots. Raises OSError.
    """

    def __init__(self, size: int, spawn: Callable[[Assignment, int], SlotsProcess]) -> None:
        self._size, self._spawn = size, spawn
        self._hosts: list[_Host] = []

    def spawn(self, assignment: Assignment) -> Slot:
        """Start a slot. One that has suspects gets a process of its own.

        Raises:
            OSError: the system refuses to start a process.
        """
        self._hosts = [each for each in self._hosts if not each.ended]
        host = None if assignment.suspects else next((each for each in self._hosts if each.takes_more), None)
        if host is None:
            host = _Host(self._spawn(assignment, self._size))
            self._hosts.append(host)
        else:
            assignment = replace(assignment, subscribes=False)
        return host.start(assignment)


class _Host:
    """One process, and its slots by their index."""

    def __init__(self, spawned: SlotsProcess) -> None:
        self.process, self.memory = spawned.process, spawned.memory
        self.slots: dict[int, Slot] = {}
        #: a handler in it cannot be ended
        self.retiring = False
        #: the last slot has ended: the process exits
        self.closing = self.ended = False
        #: it was asked to exit by somebody else
        self._leaving = False
        self._alone = False
        self._ready: set[Any] | None = None
        #: whether a slot of it was ready before
        self.announced = False
        self._lost: int | None = None
        self._kill_at: float | None = None

    @property
    def lost(self) -> int:
        """How many messages were in flight in the process when it ended."""
        if self._lost is None:  # known before the first of its slots is closed
            self._lost = sum(1 for slot in self.slots.values() if slot.in_flight is not None and not slot.has_ended)
        return self._lost

    def kill_at(self, now: float, patience: float) -> float:
        """Return when the retiring process is killed: so many seconds after the first call."""
        if self._kill_at is None:
            self._kill_at = now + patience
        return self._kill_at

    @property
    def takes_more(self) -> bool:
        return (
            len(self.slots) < len(self.memory)
            and not (self.retiring or self.closing or self._leaving or self._alone)
            and self.process.exitcode is None
        )

    def start(self, assignment: Assignment) -> Slot:
        index = next(each for each in range(len(self.memory)) if each not in self.slots)
        self._alone = bool(assignment.suspects)
        slot = self.slots[index] = Slot(self, index, self.memory[index])
        self.process.send(StartSlot(index, {name: getattr(assignment, name) for name in _OWN}))
        return slot

    def collect(self, ready: set[Any]) -> None:
        """Read what the process has reported, once for a set of what is ready."""
        if ready is self._ready or ready.isdisjoint(self.process.waitables):
            return
        self._ready = ready
        self.read()

    def read(self) -> None:
        """Read what the process has reported."""
        for report in self.process.reports():
            if not isinstance(report, OfSlot):  # what is logged, by any thread
                for slot in [*self.slots.values()][:1]:
                    slot.take(report)
            elif report.index in self.slots:
                self.slots[report.index].take(report.report)

    def slot_ended(self, report: SlotEnded) -> None:
        self.retiring |= report.abandoned
        self._leaving |= report.leaving
        if all(slot.has_ended for slot in self.slots.values()):
            self.closing = True
            self.process.send(Exit())

    def tried_all(self) -> None:
        """Let the process have more slots again: its suspects are none."""
        self._alone = False

    def close(self, slot: Slot) -> None:
        del self.slots[slot.index]
        if not self.slots:
            self.ended = True
            self.process.close()


class Slot:
    """One slot of a process, as the supervisor sees it. See `worker.process.WorkerProcess`."""

    def __init__(self, host: _Host, index: int, memory: InFlight) -> None:
        self._host, self.index, self._memory = host, index, memory
        memory.reset()
        self._reports: deque[object] = deque()
        self._overdue: tuple[UUID, int] | None = None
        self.has_ended = False

    @property
    def pid(self) -> int:
        """The process id of its process."""
        return self._host.process.pid

    @property
    def retiring(self) -> bool:
        """Whether its process takes no more messages, because a handler in it cannot be ended."""
        return self._host.retiring

    @property
    def lost(self) -> int:
        """How many messages were in flight in the process when it ended."""
        return self._host.lost

    @property
    def is_last(self) -> bool:
        """Whether its process has no other slot."""
        return len(self._host.slots) == 1

    def is_first(self) -> bool:
        """Return whether no slot of its process has asked this before."""
        announced, self._host.announced = self._host.announced, True
        return not announced

    def kill_at(self, now: float, patience: float) -> float:
        """Return when its process, which is retiring, is killed: so many seconds after the first call."""
        return self._host.kill_at(now, patience)

    #: as that of a process
    borrowed = False

    def adopt(self) -> None:
        """Do nothing: it is the queue's own."""

    def tried_all(self) -> None:
        """Let its process have more slots: its suspects are none."""
        self._host.tried_all()

    @property
    def exitcode(self) -> int | None:
        """As that of a process: None while the slot runs, 0 when it has ended."""
        code = self._host.process.exitcode
        if code is not None:
            self._host.read()
        if self.has_ended and not (self._host.closing and self.is_last):
            return 0
        return code  # the last one ends with its process

    @property
    def in_flight(self) -> tuple[UUID, int] | None:
        """Id and row version of the message that a handler handles, or handled at its time limit or when the process
        died.
        """
        return self._overdue or self._memory.message

    @property
    def in_flight_since(self) -> float | None:
        """When the handler got the message, by the monotonic clock; None while no handler runs."""
        return self._memory.since

    @property
    def waitables(self) -> list[Any]:
        """The objects to wait for, which all slots of the process have."""
        return self._host.process.waitables

    def collect(self, ready: set[Any]) -> bool:
        """Return whether there is something to read. See `WorkerProcess.collect`."""
        self._host.collect(ready)
        return bool(self._reports) or self.has_ended or not ready.isdisjoint(self.waitables)

    def take(self, report: object) -> None:
        """Keep a report of the slot until it is read."""
        if isinstance(report, SlotEnded):
            self.has_ended = True
            self._host.slot_ended(report)
        else:
            self._reports.append(report)

    def send(self, command: object) -> None:
        """Send a command. A handler that runs sees a request to exit at once."""
        if isinstance(command, Exit):
            self._memory.stop.request(REQUESTED)
        self._host.process.send(ToSlot(self.index, command))

    def reports(self) -> Iterator[object]:
        """Yield the reports that have arrived; does not wait."""
        while self._reports:
            yield self._reports.popleft()

    def interrupt(self) -> None:
        """End the handler: cancel its task. A thread goes on until its process is killed."""
        self._memory.stop.request(FORCED)
        self.send(Interrupt())

    def expire(self) -> None:
        """End the handler that has reached its time limit: cancel its task, or end its session."""
        self._overdue = self._memory.message
        self._memory.stop.request(OVERDUE)
        self.send(Interrupt())

    def kill(self) -> None:
        """Kill the process, with all of its slots."""
        self._host.process.kill()

    def close(self) -> None:
        """Free what the slot has; with the last one, what the process has."""
        self._host.close(self)
