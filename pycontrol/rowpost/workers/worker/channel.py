"""How a worker's loop hears its supervisor: `PipeChannel` for a process of its own, `SlotChannel` for a slot."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection as PipeEnd
from multiprocessing.connection import wait
from queue import Empty, SimpleQueue
from typing import Any, Protocol

__all__ = ["Channel", "PipeChannel", "SlotChannel"]


class Channel(Protocol):
    """Commands of the supervisor to one worker, and the worker's reports."""

    def receive(self, timeout: float | None) -> list[Any]:
        """Return the commands that have arrived. Wait for one at most `timeout` seconds, None without a limit.

        Returns earlier, with no command, when the worker is to look whether it exits.

        Raises:
            OSError, EOFError: the supervisor has ended.
        """

    def send(self, report: object) -> None:
        """Send a report. Any thread may call it. Raises OSError: the supervisor has ended."""


class PipeChannel:
    """The worker's end of a pipe.

    Args:
        pipe: the worker's end.
        wake: a socket that becomes readable when a signal has arrived; None if none does.
    """

    def __init__(self, pipe: PipeEnd, wake: socket.socket | None = None) -> None:
        self._pipe, self._wake = pipe, wake
        self._waitables: list[Any] = [pipe] if wake is None else [pipe, wake]
        self._sending = threading.RLock()

    def receive(self, timeout: float | None) -> list[Any]:
        """Return the commands that have arrived. See `Channel`."""
        ready = wait(self._waitables, timeout)
        if self._wake is not None and self._wake in ready:
            self._wake.recv(64)
        commands = []
        while self._pipe in ready and self._pipe.poll():
            commands.append(self._pipe.recv())
        return commands

    def send(self, report: object) -> None:
        """Send a report. See `Channel`."""
        with self._sending:
            self._pipe.send(report)


class SlotChannel:
    """The commands for one slot of a process, which another thread reads from the process's pipe.

    Args:
        send: sends a report of the slot.
    """

    def __init__(self, send: Callable[[object], None]) -> None:
        self.send = send
        self._commands: SimpleQueue[Any] = SimpleQueue()

    def put(self, command: Any) -> None:
        """Deliver a command; None wakes the slot."""
        self._commands.put(command)

    def receive(self, timeout: float | None) -> list[Any]:
        """Return the commands that have arrived. See `Channel`."""
        commands = []
        try:
            commands.append(self._commands.get(timeout != 0.0, timeout or None))
            while True:
                commands.append(self._commands.get_nowait())
        except Empty:
            return [each for each in commands if each is not None]
