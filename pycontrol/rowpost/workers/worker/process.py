"""Start worker processes, send them commands, receive their reports, and kill them.

If the system has it, processes come from the fork server of multiprocessing. The fork server has imported rowpost
already, and it has no threads, connections or signal handlers of the caller, so that a worker starts within
milliseconds in any program. Windows has no fork server: there each worker is a new interpreter that imports rowpost
first (`spawn`).

A fork server may be killed while its workers work. Its workers are tracked by their pipes from then on, and the next
worker gets another fork server. What a worker's handlers have started is killed with the worker.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.sharedctypes
import os
import signal
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection as PipeEnd
from typing import Any
from uuid import UUID

from rowpost.recoverability.stopping import FORCED, REQUESTED
from rowpost.workers.protocol import Assignment, Exit, InFlight, SharedHighWaterMark
from rowpost.workers.worker.isolation import kill_group, kill_worker, safe_path, signals_blocked
from rowpost.workers.worker.temporary import use_own_folder
from rowpost.workers.worker.worker_process import run_slots, run_warm, run_worker

__all__ = [
    "Alone",
    "SlotsProcess",
    "WorkerProcess",
    "shared_high_water_mark",
    "spawn_slots",
    "spawn_warm",
    "spawn_worker",
]

PRELOAD = [
    "rowpost.workers.worker.worker_process",
    "rowpost.database.dialects.postgresql.dialect",
    "rowpost.database.dialects.sqlserver.dialect",
]
# What multiprocessing says of a process whose fork server has ended: only the end of its pipe shows that it has ended,
# too.
UNKNOWN = 255


class Alone:
    """What a worker says of its process, which has no other worker. `supervision.slots.Slot` says it of others."""

    #: whether the process takes no more messages, because a handler in it cannot be ended
    retiring = False
    #: how many messages were in flight in the process when it ended
    lost = 1
    #: whether it is the last worker of its process
    is_last = True
    #: whether the process is a warm one, which the queue gives back
    borrowed = False

    def adopt(self) -> None:
        """Let a borrowed process be the queue's own."""

    def is_first(self) -> bool:
        """Return whether it is the first worker of its process."""
        return True

    def kill_at(self, now: float, patience: float) -> float:
        """Return when a retiring process is killed. This one never retires."""
        return float("inf")

    def tried_all(self) -> None:
        """Note that it has no suspects any more."""


class WorkerProcess(Alone):
    """One worker process and the supervisor's end of its pipe."""

    def __init__(self, process: Any, pipe: PipeEnd, in_flight: InFlight) -> None:
        self._process = process
        self._pipe = pipe
        self._in_flight = in_flight
        self._pipe_closed = self._untracked = False

    def collect(self, ready: set[Any]) -> bool:
        """Return whether there is something to read: a report, or the end of the process.

        Args:
            ready: those of the `waitables` of all workers for which that is so.
        """
        return not ready.isdisjoint(self.waitables)

    @property
    def pid(self) -> int:
        pid: int = self._process.pid
        return pid

    @property
    def exitcode(self) -> int | None:
        """The exit code; None while the process runs, negative if a signal ended it, 255 if nobody knows because its
        fork server was killed.
        """
        code = self._process.exitcode
        self._untracked = code == UNKNOWN and not self._pipe_closed
        return None if self._untracked else code

    @property
    def in_flight(self) -> tuple[UUID, int] | None:
        """Id and row version of the message that a handler handles, or handled when the process died."""
        return self._in_flight.message

    @property
    def in_flight_since(self) -> float | None:
        """When the handler got the message, by the monotonic clock; None while no handler runs."""
        return self._in_flight.since

    @property
    def waitables(self) -> list[Any]:
        """The objects to wait for with `multiprocessing.connection.wait`: reports, and the end of the process."""
        if self._untracked and not self._pipe_closed:
            return [self._pipe]
        return [self._process.sentinel] if self._pipe_closed else [self._process.sentinel, self._pipe]

    def send(self, command: object) -> None:
        """Send a command; does nothing if the process has ended. A handler that runs sees a request to exit at once."""
        if isinstance(command, Exit):
            self._in_flight.stop.request(REQUESTED)
        with suppress(OSError):
            self._pipe.send(command)

    def reports(self) -> Iterator[object]:
        """Yield the reports that have arrived; does not wait."""
        try:
            while not self._pipe_closed and self._pipe.poll():
                yield self._pipe.recv()
        except (EOFError, OSError):
            self._pipe_closed = True

    def interrupt(self) -> None:
        """End the handler with HandlerInterrupted, and then the process. Windows has no such signal: kill it."""
        if sys.platform == "win32":
            self.kill()
            return
        self._in_flight.stop.request(FORCED)
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def expire(self) -> None:
        """End the handler that has reached its time limit, with its process."""
        self.kill()

    def kill(self) -> None:
        """Kill the process and what its handlers started; the server rolls its transaction back."""
        if self.exitcode is None:
            self._process.kill()
            kill_worker(self.pid)

    def close(self) -> None:
        """Free the system resources of a process that has ended.

        What a process leaves that did not exit by itself, or was interrupted, is killed.
        """
        if self._process.exitcode != 0 or self._in_flight.stop.memory[-1] == FORCED:
            kill_group(self.pid)
        self._pipe.close()
        self._process.join()
        self._process.close()


def spawn_worker(assignment: Assignment, method: str | None = None) -> WorkerProcess:
    """Start a worker process.

    Args:
        assignment: the worker's parameters.
        method: a start method of multiprocessing, `forkserver` or `spawn`. Default: the first of them that the system
            has.

    Raises:
        OSError: the system refuses to start a process, or the fork server was killed while it started one.
    """
    return _spawn(assignment, _name(assignment), run_worker, InFlight.SIZE, method)[0]


def spawn_slots(assignment: Assignment, slots: int) -> SlotsProcess:
    """Start a process with several slots.

    Args:
        assignment: what the slots have in common.
        slots: how many.

    Raises:
        OSError: as `spawn_worker`.
    """
    return _spawn_slots(assignment, _name(assignment), run_slots, slots)


def spawn_warm(assignments: tuple[Assignment, ...]) -> SlotsProcess:
    """Start a warm process, which has one slot; see `warm.Warm`.

    Args:
        assignments: one for each queue that it may work for.

    Raises:
        OSError: as `spawn_worker`.
    """
    return _spawn_slots(assignments, "rowpost warm worker", run_warm, 1)


def _spawn_slots(given: object, name: str, target: Callable[..., None], slots: int) -> SlotsProcess:
    process, memory = _spawn(given, name, target, InFlight.SIZE * (slots + 1), None)
    view = memoryview(memory).cast("B")
    parts = [InFlight(view[place : place + InFlight.SIZE]) for place in range(0, len(view), InFlight.SIZE)]
    return SlotsProcess(process, parts[:slots])


def _name(assignment: Assignment) -> str:
    return f"rowpost worker {assignment.queue} {assignment.number}"


class SlotsProcess:
    """A process with several slots.

    Attributes:
        process: the process. Its reports are those of its slots, each an `OfSlot`.
        memory: what its slots share with the supervisor.
    """

    def __init__(self, process: WorkerProcess, memory: list[InFlight]) -> None:
        self.process, self.memory = process, memory


def _spawn(
    given: object, name: str, target: Callable[..., None], size: int, method: str | None
) -> tuple[WorkerProcess, Any]:
    """Start a process. Return it, and the memory that it shares. Raises OSError."""
    context = _context(method or _start_method())
    ours, theirs = context.Pipe()
    memory = context.RawArray("B", size)
    in_flight = InFlight(memory if size == InFlight.SIZE else memoryview(memory).cast("B")[-InFlight.SIZE :])
    process = context.Process(
        target=target,
        args=(given, theirs, in_flight if size == InFlight.SIZE else memory),
        name=name,
        daemon=True,
    )
    try:
        with _main_module_hidden(), safe_path(), signals_blocked():
            process.start()
    except (EOFError, OSError) as error:
        ours.close()
        raise OSError(str(error) if isinstance(error, OSError) else "the fork server was killed") from error
    finally:
        theirs.close()
    return WorkerProcess(process, ours, in_flight), memory


def shared_high_water_mark() -> SharedHighWaterMark:
    """Allocate the shared memory of a queue's high-water mark; each worker gets it with its assignment."""
    return multiprocessing.sharedctypes.RawValue(SharedHighWaterMark)


def _start_method() -> str:
    return "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


@cache
def _context(method: str) -> Any:
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(PRELOAD)
        use_own_folder()
    return context


@contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Keep multiprocessing from running the caller's main program again in every worker.

    A worker does not need it. Running it would import the whole command line (or pytest), and a script without
    `if __name__ == "__main__"` would start a supervisor in its own workers.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
