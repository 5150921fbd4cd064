"""The warm process, which takes the first messages of quiet queues, and which queues keep a worker without work.

    warm = WarmProcess(spawn_warm, emit, pools)
    warm.use(assignments)              # of the queues that may be quiet; it starts at the next tick
    warm.borrow(assignment, now)       # a worker for a queue; None: it works for another one
    warm.comes_soon("Sales", now)      # whether the queue should wait for it rather than start a process

A `WarmWorker` is to a pool what a `WorkerProcess` is. When its queue is empty, the process is free again. If there is
more work, the queue adopts it (`WarmWorker.adopt`), and the next tick starts another warm process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol
from uuid import UUID

from rowpost.recoverability.stopping import FORCED, REQUESTED
from rowpost.workers.events import Emit, Event, Trouble
from rowpost.workers.protocol import (
    Assignment,
    CrashPolicy,
    EndpointsSubscribed,
    Exit,
    Imported,
    InFlight,
    Keep,
    Leave,
    Returned,
    Take,
)
from rowpost.workers.supervision.handles import respawn_delay
from rowpost.workers.worker.process import SlotsProcess, WorkerProcess

__all__ = ["ADOPT_AFTER_S", "WAIT_S", "IdleWorkers", "WarmProcess", "WarmWorker"]

#: a queue adopts the warm process that has worked for it so long
ADOPT_AFTER_S = 0.2
#: a queue waits so long for the warm process before it starts one of its own
WAIT_S = 0.25
#: after so many processes that ended before they had imported all handlers, each queue has its own worker
MOST_FAILED = 3
#: in which an assignment differs from that of the process
_OWN = ("number", "receive", "subscribes", "breaker", "backoff")


class IdleWorkers:
    """Which queues that may be quiet keep a worker without work: those that had work last."""

    def __init__(self) -> None:
        self._count = 0
        self._kept: dict[str, None] = {}

    def use(self, count: int, queues: Iterable[str]) -> None:
        """Let so many of these queues keep a worker; as long as none had work, the first of them do."""
        names = dict.fromkeys(queues)
        had = [name for name in self._kept if name in names]
        rest = [name for name in names if name not in self._kept]
        self._count = count
        self._kept = dict.fromkeys([*rest[: max(0, count - len(had))][::-1], *had][-count:] if count else [])

    def keeps(self, queue: str) -> bool:
        """Return whether a queue keeps a worker while it has no work."""
        return queue in self._kept

    def worked(self, queue: str) -> None:
        """Note that a worker of a queue's own has worked."""
        self._kept.pop(queue, None)
        self._kept[queue] = None
        if len(self._kept) > self._count:
            del self._kept[next(iter(self._kept))]


class QuietQueue(Protocol):
    """What is told what the warm process has prepared for a queue: its pool."""

    def prepared(self, crash_policy: CrashPolicy | None) -> None: ...
    def refuse(self, error: str) -> None: ...
    def subscribed(self) -> None: ...
    def wake(self) -> None: ...


class WarmWorker:
    """The warm process while it works for one queue. See `worker.process.WorkerProcess`.

    Args:
        process: the process.
        memory: what it shares with the supervisor.
        released: called when the queue has returned or adopted it, or it has ended.
        prepared: called with a report that is not of a worker.
    """

    def __init__(
        self,
        process: WorkerProcess,
        memory: InFlight,
        released: Callable[[WarmWorker], None],
        prepared: Callable[[object], None],
    ) -> None:
        self._process, self._memory, self._released, self._prepared = process, memory, released, prepared
        #: whether it is the queue's own now, and whether the queue has returned it
        self.adopted = self.returned = False
        self._reports: deque[object] = deque()

    #: see `worker.process.Alone`
    retiring = False
    lost = 1

    def kill_at(self, now: float, patience: float) -> float:
        """Return when a retiring process is killed. This one never retires."""
        return float("inf")

    def tried_all(self) -> None:
        """Do nothing: it never has suspects."""

    @property
    def borrowed(self) -> bool:
        """Whether it is not the queue's own."""
        return not self.adopted

    def adopt(self) -> None:
        """Let it be the queue's own from now on."""
        self.adopted = True
        self._process.send(Keep())
        self._released(self)

    def is_first(self) -> bool:
        """Return whether its start is worth an event: it is one when the queue adopts it."""
        return False

    @property
    def is_last(self) -> bool:
        """Whether its end is worth an event."""
        return self.adopted or not self.returned

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        """As that of a process: None while it works for the queue, 0 when it was returned."""
        return 0 if self.returned and not self.adopted else self._process.exitcode

    @property
    def in_flight(self) -> tuple[UUID, int] | None:
        """Id and row version of the message that a handler handles, or handled when the process died."""
        return self._memory.message

    @property
    def in_flight_since(self) -> float | None:
        """When the handler got the message, by the monotonic clock; None while no handler runs."""
        return self._memory.since

    @property
    def waitables(self) -> list[Any]:
        """The objects to wait for."""
        return self._process.waitables

    def collect(self, ready: set[Any]) -> bool:
        """Return whether there is something to read. See `WorkerProcess.collect`."""
        if ready.isdisjoint(self.waitables):
            return False
        for report in self._process.reports():
            if isinstance(report, Imported | EndpointsSubscribed):
                self._prepared(report)
            elif not isinstance(report, Returned):
                self._reports.append(report)
            elif self.adopted:  # it had ended before it was kept
                self._process.send(Leave())
            else:
                self.returned = True
        return True

    def send(self, command: object) -> None:
        """Send a command. A handler that runs sees a request to exit at once."""
        if isinstance(command, Exit):
            self._memory.stop.request(REQUESTED)
        self._process.send(command)

    def reports(self) -> Iterator[object]:
        """Yield the reports that have arrived; does not wait."""
        while self._reports:
            yield self._reports.popleft()

    def interrupt(self) -> None:
        """End the handler, and then the process."""
        self._memory.stop.request(FORCED)
        self._process.interrupt()

    def expire(self) -> None:
        """End the handler that has reached its time limit, with the process."""
        self._process.kill()

    def kill(self) -> None:
        """Kill the process and what its handlers started."""
        self._process.kill()

    def close(self) -> None:
        """Give the process back, or free what is left of it."""
        if self.adopted or not self.returned:
            self._process.close()
        if not self.adopted:
            self._released(self)


class WarmProcess:
    """The one warm process of a supervisor. Performs no I/O but for the pipe of its process.

    Args:
        spawn: starts a process that may work for several queues. Raises OSError.
        emit: called with each event.
        pools: by the names of their queues.
    """

    def __init__(
        self,
        spawn: Callable[[tuple[Assignment, ...]], SlotsProcess],
        emit: Emit,
        pools: Callable[[], Mapping[str, QuietQueue]],
    ) -> None:
        self._spawn, self._emit, self._pools = spawn, emit, pools
        self._assign: Callable[[], tuple[Assignment, ...]] | None = None
        self._spawned: SlotsProcess | None = None
        self._worker: WarmWorker | None = None
        #: processes of former settings, which are leaving
        self._leaving: list[WorkerProcess] = []
        #: the queues that wait for the process, and until when
        self._waiting: dict[str, float] = {}
        self._imported = self._stopping = False
        self._failed = 0
        self._next_start_at = float("-inf")
        self._errors: dict[str, str] = {}

    # -------------------------------------------------------------- for the supervisor
    def use(self, assign: Callable[[], tuple[Assignment, ...]] | None) -> None:
        """Work for these queues from now on, in another process if one runs.

        Args:
            assign: returns an assignment for each queue; None: no process is needed.
        """
        self._leave()
        self._assign, self._failed, self._stopping, self._next_start_at = assign, 0, False, float("-inf")

    def stop(self) -> None:
        """Let the process end when it works for no queue."""
        self._stopping = True
        self._leave()

    def kill(self) -> None:
        """Kill what still runs, unless it works for a queue, whose pool kills it."""
        self._leave()
        for process in self._leaving:
            process.kill()
            process.close()
        self._leaving.clear()

    @property
    def finished(self) -> bool:
        """Whether no process is left but those that work for queues."""
        return not self._leaving and self._spawned is None

    @property
    def waitables(self) -> list[Any]:
        """The objects to wait for."""
        free = [] if self._spawned is None or self._worker is not None else self._spawned.process.waitables
        return [*free, *(each for process in self._leaving for each in process.waitables)]

    def tick(self, now: float) -> float:
        """Read what the process has reported, and start one if there is none. Return when the next one is due."""
        self._end_leaving()
        if self._spawned is None:
            return self._start(now)
        if self._worker is None:
            exitcode = self._spawned.process.exitcode
            self._read(self._spawned.process)
            if exitcode is not None:
                self._ended(exitcode, now)
                return self._next_start_at
        return float("inf")

    # -------------------------------------------------------------- for the pools
    @property
    def serves(self) -> bool:
        """Whether there is such a process, or will be one soon: if not, each queue needs a worker of its own."""
        return self._failed < MOST_FAILED

    def comes_soon(self, queue: str, now: float) -> bool:
        """Return whether a queue should wait for the process rather than start one."""
        if self._assign is not None and self.serves and now < self._waiting.setdefault(queue, now + WAIT_S):
            return True
        self._waiting.pop(queue, None)
        return False

    def waits_until(self, queue: str) -> float:
        """Return when a queue stops waiting; forever if it does not wait."""
        return self._waiting.get(queue, float("inf"))

    def borrow(self, assignment: Assignment, now: float) -> WarmWorker | None:
        """Return the process, which works for a queue from now on.

        None: it is not free, or others have waited longer.
        """
        if self._spawned is None or self._worker is not None or not self._imported:
            return None
        queue, process = assignment.queue, self._spawned.process
        self._waiting = {name: until for name, until in self._waiting.items() if now < until}
        if next(iter(self._waiting), queue) != queue or process.exitcode is not None:
            return None
        self._waiting.pop(queue, None)
        memory = self._spawned.memory[0]
        memory.reset()
        self._worker = WarmWorker(process, memory, self._released, self._take_report)
        process.send(Take(queue, {name: getattr(assignment, name) for name in _OWN} | {"returns": True}))
        return self._worker

    def _released(self, worker: WarmWorker) -> None:
        if worker is not self._worker:
            return
        self._worker = None
        if worker.adopted or not worker.returned:
            self._spawned, self._imported = None, False
        elif self._stopping:
            self._leave()
        else:
            self._wake()

    def _wake(self) -> None:
        """Let the queues that wait know that the process is free."""
        pools = self._pools()
        for queue in self._waiting:
            if queue in pools:
                pools[queue].wake()

    # -------------------------------------------------------------- processes
    def _start(self, now: float) -> float:
        if self._assign is None or self._stopping or not self.serves:
            return float("inf")
        if now < self._next_start_at:
            return self._next_start_at
        try:
            self._spawned = self._spawn(self._assign())
        except OSError as error:
            self._emit(Trouble(error=f"Failed to start a warm worker: {error}"))
            self._fail(now)
            return self._next_start_at
        self._imported = False
        return float("inf")

    def _ended(self, exitcode: int, now: float) -> None:
        spawned, self._spawned = self._spawned, None
        if spawned is not None:
            spawned.process.close()
        if not self._imported:
            self._emit(
                Trouble(
                    error=f"The warm worker, which imports the handlers of all queues, ended with exit code {exitcode}."
                )
            )
            self._fail(now)
        self._imported = False

    def _fail(self, now: float) -> None:
        self._failed += 1
        self._next_start_at = now + respawn_delay(self._failed)
        if not self.serves:
            self._emit(Trouble(error="No warm worker can be started: each queue gets a process of its own."))

    def _leave(self) -> None:
        """Let the process end. One that works for a queue becomes the queue's own."""
        if self._spawned is None:
            return
        if self._worker is not None:
            if not self._stopping:
                self._worker.adopt()
            return
        self._spawned.process.send(Leave())
        self._leaving.append(self._spawned.process)
        self._spawned, self._imported = None, False

    def _end_leaving(self) -> None:
        for process in list(self._leaving):
            exitcode = process.exitcode
            self._read(process)
            if exitcode is not None:
                process.close()
                self._leaving.remove(process)

    def _read(self, process: WorkerProcess) -> None:
        for report in process.reports():
            self._take_report(report)

    def _take_report(self, report: object) -> None:
        pools = self._pools()
        match report:
            case Imported(queue, crash_policy, error) if queue in pools:
                if error is None:
                    pools[queue].prepared(crash_policy)
                else:
                    pools[queue].refuse(error)
            case EndpointsSubscribed(queues, errors):
                self._imported, self._failed = True, 0
                for name in queues:
                    self._errors.pop(name, None)
                    if name in pools:
                        pools[name].subscribed()
                self._say(errors)
                self._wake()
            case Event():
                self._emit(report)

    def _say(self, errors: Mapping[str, str]) -> None:
        """Emit why endpoints could not be subscribed, each reason once."""
        for queue, error in errors.items():
            if self._errors.get(queue) != error:
                self._errors[queue] = error
                self._emit(Trouble(queue=queue, error=f"Failed to subscribe the endpoint of {queue}: {error}"))
