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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection as PipeEnd
from typing import Any
from uuid import UUID

from rowpost.recoverability.stopping import FORCED, REQUESTED
from rowpost.workers.protocol import Assignment, Exit, InFlight, SharedHighWaterMark
from rowpost.workers.worker.isolation import kill_group, kill_worker, safe_path, signals_blocked
from rowpost.workers.worker.temporary import use_own_folder
from rowpost.workers.worker.worker_process import run_worker

__all__ = ["WorkerProcess", "shared_high_water_mark", "spawn_worker"]

PRELOAD = [
    "rowpost.workers.worker.worker_process",
    "rowpost.database.dialects.postgresql.dialect",
    "rowpost.database.dialects.sqlserver.dialect",
]
# What multiprocessing says of a process whose fork server has ended: only the end of its pipe shows that it has ended,
# too.
UNKNOWN = 255


class WorkerProcess:
    """One worker process and the supervisor's end of its pipe."""

    def __init__(self, process: Any, pipe: PipeEnd, in_flight: InFlight) -> None:
        self._process = process
        self._pipe = pipe
        self._in_flight = in_flight
        self._pipe_closed = self._untracked = False

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
    context = _context(method or _start_method())
    ours, theirs = context.Pipe()
    in_flight = InFlight(context.RawArray("B", InFlight.SIZE))
    process = context.Process(
        target=run_worker,
        args=(assignment, theirs, in_flight),
        name=f"rowpost worker {assignment.queue} {assignment.number}",
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
    return WorkerProcess(process, ours, in_flight)


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
