"""The process of a worker: what surrounds the worker's loop, which `worker.py` has."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from contextlib import suppress
from multiprocessing.connection import Connection as PipeEnd

from rowpost.recoverability.stopping import STOP
from rowpost.settings.password import watch
from rowpost.workers.protocol import Assignment, InFlight
from rowpost.workers.worker.isolation import (
    become_a_group,
    end_with_the_supervisor,
    forget_safe_path,
    in_forked_children,
)
from rowpost.workers.worker.log_forwarding import forward_logs
from rowpost.workers.worker.worker import Worker

__all__ = ["run_worker"]

_STDOUT, _STDERR = 1, 2


def run_worker(assignment: Assignment, pipe: PipeEnd, in_flight: InFlight) -> None:
    """Run a worker; the entry point of its process.

    What handlers print goes to stderr: stdout belongs to the supervisor, which may print JSON there. Handlers may start
    processes. A worker whose supervisor has ended finishes its message. After `stop_timeout`, its handler is
    interrupted, and then the worker is killed.
    """
    with suppress(OSError):  # a stream is closed
        os.dup2(_STDERR, _STDOUT)
    forget_safe_path()
    multiprocessing.current_process().daemon = False  # daemons may have no children
    reader, writer = socket.socketpair()  # Windows can wait for sockets, and not for the pipes of os.pipe
    writer.setblocking(False)
    worker = Worker(assignment, pipe, wake=reader, in_flight=in_flight)
    forward_logs(worker.send, in_flight, assignment.settings.log.number)
    watch(lambda: threading.current_thread() is threading.main_thread() and worker.read_commands(0.0))
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    STOP.process.memory = in_flight.stop.memory

    def end(*_: object) -> None:
        worker.exit()
        STOP.process.interrupt()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    in_forked_children(pipe.close)
    become_a_group()  # last: a signal that has arrived meanwhile ends the worker in order
    end_with_the_supervisor(assignment.settings.supervisor.stop_timeout)
    worker.run()
