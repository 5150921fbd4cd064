"""Worker processes as the supervisor holds them: start, tell, hear, kill.

Processes come from multiprocessing's fork server, which has rowpost imported already and no threads, connections or
signal handlers of the caller: a worker is up within milliseconds, whatever the caller's program is.
"""

from __future__ import annotations

import multiprocessing
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection as PipeEnd
from typing import Any
from uuid import UUID

from rowpost.workers.protocol import Assignment, InFlight
from rowpost.workers.receive_cursor import SharedHighWaterMark
from rowpost.workers.worker import run_worker

__all__ = ["WorkerProcess", "shared_high_water_mark", "spawn_worker"]

PRELOAD = ["rowpost.workers.worker", "rowpost.database.dialects.postgresql", "rowpost.database.dialects.sqlserver"]


class WorkerProcess:
    """One process and the supervisor's end of its pipe."""

    def __init__(self, process: Any, pipe: PipeEnd, hand: InFlight) -> None:
        self._process = process
        self._pipe = pipe
        self._hand = hand
        self._deaf = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        """None while the process lives; negative: killed by that signal."""
        return self._process.exitcode

    @property
    def in_flight(self) -> tuple[UUID, int] | None:
        """Id and row version of the message that a handler has, or had when the process died."""
        return self._hand.content

    @property
    def held_since(self) -> float | None:
        """When the handler got it, by the monotonic clock; None while no handler runs."""
        return self._hand.since

    @property
    def ears(self) -> list[Any]:
        """What to wait for: reports, and the end."""
        return [self._process.sentinel] if self._deaf else [self._process.sentinel, self._pipe]

    def tell(self, command: object) -> None:
        """Send a command; a worker that is gone hears nothing."""
        with suppress(OSError):
            self._pipe.send(command)

    def heard(self) -> Iterator[object]:
        """The reports that have arrived."""
        try:
            while not self._deaf and self._pipe.poll():
                yield self._pipe.recv()
        except (EOFError, OSError):
            self._deaf = True

    def kill(self) -> None:
        """End it at once; what it has in hand rolls back."""
        self._process.kill()

    def close(self) -> None:
        """Free what the system keeps of a process that has ended."""
        self._pipe.close()
        self._process.join()
        self._process.close()


def spawn_worker(assignment: Assignment) -> WorkerProcess:
    """Start a process that does this assignment."""
    context = _context()
    ours, theirs = context.Pipe()
    hand = InFlight(context.RawArray("B", InFlight.SIZE))
    process = context.Process(
        target=run_worker,
        args=(assignment, theirs, hand),
        name=f"rowpost worker {assignment.queue} {assignment.number}",
        daemon=True,
    )
    with _main_module_hidden():
        process.start()
    theirs.close()
    return WorkerProcess(process, ours, hand)


def shared_high_water_mark() -> SharedHighWaterMark:
    """Memory that all workers of a queue see: to be given to each in its assignment."""
    return _context().RawValue(SharedHighWaterMark)


@cache
def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


@contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Keep multiprocessing from running the caller's main program again in every worker.

    A worker needs nothing of it: it would cost the import of the whole command line (or of pytest), and a script
    without `if __name__ == "__main__"` would start a supervisor in its own workers.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
