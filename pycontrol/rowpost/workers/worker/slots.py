"""The process of a worker with several slots: each handles one message at a time, in a thread of its own.

Each slot runs the loop of `worker.Worker`, with its own connection, transactions and in-flight record. The main thread
reads the supervisor's commands and passes them on. `async def` handlers of all slots are tasks of one event loop
(`handling.event_loop`).

At its time limit, a handler that is a task is cancelled. Threads cannot be interrupted: the database session of the
slot is ended, so that nothing of the message can be committed any more, and the slot is abandoned. The supervisor gives
such a process no more messages, and replaces it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from rowpost.errors import HandlerNotFound, SettingsError
from rowpost.recoverability.stopping import FORCED, GRACE_S, OVERDUE, STOP
from rowpost.workers.protocol import Assignment, Exit, InFlight, Interrupt, OfSlot, SlotEnded, StartSlot, ToSlot
from rowpost.workers.worker.channel import PipeChannel, SlotChannel
from rowpost.workers.worker.hosted import Hosted, host
from rowpost.workers.worker.worker import Worker

__all__ = ["Slots"]

#: of the slot whose thread, or whose handler's task, this is
_in_flight: ContextVar[InFlight | None] = ContextVar("rowpost_in_flight", default=None)


class _Slot:
    """One slot: its loop, its thread, and its part of the memory that the supervisor reads."""

    def __init__(
        self,
        assignment: Assignment,
        hosted: Hosted | str,
        in_flight: InFlight,
        send: Callable[[object], None],
        ended: Callable[[], None],
    ) -> None:
        self.in_flight, self._ended = in_flight, ended
        self.channel = SlotChannel(send)
        self.worker = Worker(assignment, self.channel, hosted=hosted, in_flight=in_flight)
        self.abandoned = False
        self._thread = threading.Thread(
            target=self._run, name=f"rowpost worker {assignment.queue} {assignment.number}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        with STOP.in_slot(self.in_flight.stop):
            _in_flight.set(self.in_flight)
            self.worker.run()
        self._ended()

    def exit(self) -> None:
        """End the loop after its current message."""
        self.worker.exit()
        self.channel.put(None)

    def interrupt(self) -> bool:
        """End the handler that runs. Return False if it cannot be interrupted."""
        cancel = self.in_flight.stop.cancel
        if cancel is not None:
            cancel()
        return cancel is not None

    def abandon(self) -> None:
        """End the session of the slot's message, whose thread goes on alone."""
        self.abandoned = True
        self.worker.abandon()


class Slots:
    """The slots of this process.

    Args:
        assignment: what all of them have in common.
        channel: the process's pipe.
        memory: an `InFlight` for each slot, one behind the other.
    """

    def __init__(self, assignment: Assignment, channel: PipeChannel, memory: Any) -> None:
        self._assignment, self._channel = assignment, channel
        self._memory = memoryview(memory).cast("B")
        self._slots: dict[int, _Slot] = {}
        self._exiting = False
        #: slots whose task was cancelled, and when they are abandoned if they do not end
        self._cancelled: dict[int, float] = {}
        self._hosted: Hosted | str = ""

    def run(self) -> None:
        """Run slots until the supervisor says that no more of them come, or has ended."""
        try:
            self._hosted = host(self._assignment)
        except (HandlerNotFound, SettingsError) as error:
            self._hosted = str(error)  # each slot refuses
        while not self._exiting:
            try:
                commands = self._channel.receive(self._seconds_to_next())
            except (EOFError, OSError):
                break  # the supervisor has ended: the slots end after their messages
            for command in commands:
                self._execute(command)
            self._abandon_late()
        for slot in list(self._slots.values()):
            slot.exit()
        while any(slot.alive and not slot.abandoned for slot in list(self._slots.values())):
            time.sleep(0.01)
        if isinstance(self._hosted, Hosted):
            self._hosted.close()
        if any(slot.alive for slot in self._slots.values()):
            os._exit(0)  # an abandoned thread would keep the interpreter

    @staticmethod
    def in_flight() -> InFlight | None:
        """Return what holds the message of the calling slot; None in other threads."""
        return _in_flight.get()

    def stop(self, level: int) -> None:
        """Request the stop of all slots. May be called from a signal handler, and from another thread."""
        STOP.process.request(level)
        for slot in list(self._slots.values()):
            slot.in_flight.stop.request(level)
            slot.exit()
            if level >= FORCED:
                slot.interrupt()

    def _execute(self, command: Any) -> None:
        if isinstance(command, StartSlot):
            self._start(command)
        elif isinstance(command, Exit):
            self._exiting = True
        elif isinstance(command, ToSlot) and command.index in self._slots:
            slot = self._slots[command.index]
            if not isinstance(command.command, Interrupt):
                slot.channel.put(command.command)
            elif slot.interrupt():
                self._cancelled[command.index] = time.monotonic() + GRACE_S
            elif slot.in_flight.stop.memory[-1] == OVERDUE and slot.in_flight.message is not None:
                self._abandon(command.index)

    def _start(self, command: StartSlot) -> None:
        index = command.index
        assignment = replace(self._assignment, **command.changes)
        in_flight = InFlight(self._memory[index * InFlight.SIZE : (index + 1) * InFlight.SIZE])

        def send(report: object) -> None:
            self._channel.send(OfSlot(index, report))

        def ended() -> None:
            if self._slots.get(index) is slot and not slot.abandoned:
                self._cancelled.pop(index, None)
                with suppress(OSError):
                    self._channel.send(OfSlot(index, SlotEnded(leaving=STOP.process.requested)))

        slot = self._slots[index] = _Slot(assignment, self._hosted, in_flight, send, ended)
        slot.start()
        if STOP.process.requested:
            slot.exit()

    # -------------------------------------------------------------- slots that do not end
    def _seconds_to_next(self) -> float | None:
        return min((max(0.0, at - time.monotonic()) for at in list(self._cancelled.values())), default=None)

    def _abandon_late(self) -> None:
        for index, at in list(self._cancelled.items()):
            if time.monotonic() >= at:
                self._cancelled.pop(index, None)
                self._abandon(index)

    def _abandon(self, index: int) -> None:
        slot = self._slots[index]
        if slot.alive:
            slot.abandon()
            with suppress(OSError):
                self._channel.send(OfSlot(index, SlotEnded(abandoned=True)))
