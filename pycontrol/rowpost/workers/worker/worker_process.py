"""The process of a worker: what surrounds the worker's loop (`worker.py`), its slots (`slots.py`), or a warm process
(`warm.py`).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection as PipeEnd
from typing import Any

from rowpost.recoverability.stopping import REQUESTED, STOP
from rowpost.settings.password import watch
from rowpost.workers.protocol import Assignment, InFlight
from rowpost.workers.worker.channel import PipeChannel
from rowpost.workers.worker.isolation import (
    become_a_group,
    end_with_the_supervisor,
    forget_safe_path,
    in_forked_children,
)
from rowpost.workers.worker.log_forwarding import forward_logs
from rowpost.workers.worker.slots import Slots
from rowpost.workers.worker.warm import Warm
from rowpost.workers.worker.worker import Worker

__all__ = ["run_slots", "run_warm", "run_worker"]

_STDOUT, _STDERR = 1, 2


def run_worker(assignment: Assignment, pipe: PipeEnd, in_flight: InFlight) -> None:
    """Run a worker; the entry point of its process.

    What handlers print goes to stderr: stdout belongs to the supervisor, which may print JSON there. Handlers may start
    processes. A worker whose supervisor has ended finishes its message. After `stop_timeout`, its handler is
    interrupted, and then the worker is killed.
    """
    channel = _prepare(pipe)
    worker = Worker(assignment, channel, in_flight=in_flight)
    forward_logs(worker.send, lambda: in_flight, assignment.settings.log.number)
    watch(lambda: threading.current_thread() is threading.main_thread() and worker.read_commands(0.0))
    STOP.process.memory = in_flight.stop.memory

    def end(*_: object) -> None:
        worker.exit()
        STOP.process.interrupt()

    _begin(end, pipe, assignment, STOP.process.request)
    worker.run()


def run_slots(assignment: Assignment, pipe: PipeEnd, memory: Any) -> None:
    """Run the slots of a process; its entry point. As `run_worker`, for each slot.

    Args:
        assignment: what the slots have in common.
        pipe: the process's end.
        memory: shared with the supervisor: an `InFlight` for each slot, and one for the process.
    """
    channel = _prepare(pipe)
    STOP.process.memory = memoryview(memory).cast("B")
    slots = Slots(assignment, channel, memory)

    def send(report: object) -> None:
        with suppress(OSError):
            channel.send(report)

    forward_logs(send, slots.in_flight, assignment.settings.log.number)

    def end(*_: object) -> None:
        slots.stop(max(REQUESTED, STOP.process.memory[-1]))

    _begin(end, pipe, assignment, slots.stop)
    slots.run()


def run_warm(assignments: tuple[Assignment, ...], pipe: PipeEnd, memory: Any) -> None:
    """Run a warm process; its entry point. As `run_worker`, for one queue after the other.

    Args:
        assignments: one for each queue that it may work for.
        pipe: the process's end.
        memory: shared with the supervisor: an `InFlight` for the message, and one for the process.
    """
    channel = _prepare(pipe)
    STOP.process.memory = memoryview(memory).cast("B")
    settings = assignments[0].settings
    warm = Warm(settings, assignments, channel, memory)
    forward_logs(warm.send, lambda: warm.in_flight, settings.log.number)
    _begin(warm.end, pipe, assignments[0], warm.stop)
    warm.run()


def _prepare(pipe: PipeEnd) -> PipeChannel:
    with suppress(OSError):  # a stream is closed
        os.dup2(_STDERR, _STDOUT)
    forget_safe_path()
    multiprocessing.current_process().daemon = False  # daemons may have no children
    reader, writer = socket.socketpair()  # Windows can wait for sockets, and not for the pipes of os.pipe
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    _KEPT.append(writer)
    return PipeChannel(pipe, reader)


def _begin(end: Callable[..., None], pipe: PipeEnd, assignment: Assignment, request: Callable[[int], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    in_forked_children(pipe.close)
    become_a_group()  # last: a signal that has arrived meanwhile ends the worker in order
    end_with_the_supervisor(assignment.settings.supervisor.stop_timeout, request)


#: the sockets that signals write to
_KEPT: list[socket.socket] = []
