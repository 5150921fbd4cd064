"""Run archivers: until the current messages are archived, or at an interval until the process is asked to stop.

`Stop` makes SIGINT and SIGTERM end a run after its current batch. With an interval, an outage of the server or of the
archive's store is outlived: it is said once, and tried again after 1 second, then after twice as long each time, up to
30 seconds.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from deltalake.exceptions import DeltaError

from rowpost.archive.source.connection import Say, say
from rowpost.archive.source.queue_stream import Held
from rowpost.archive.standalone.archiver import QueueArchiver
from rowpost.errors import SparkFailed

__all__ = ["Stop", "run"]

_FIRST_DELAY_S, _LONGEST_DELAY_S = 1.0, 30.0
_PASSING = (OSError, DeltaError)


class Stopped(KeyboardInterrupt):
    """A signal came while the archiver was waiting for the server."""


class Stop(threading.Event):
    """Whether a signal has asked to stop.

    A second one raises KeyboardInterrupt, which is safe too: a killed run loses nothing.
    """

    def sleep(self, seconds: float) -> None:
        """Wait for the server within a batch. Raises Stopped if a stop is asked for: the batch cannot be completed."""
        if self.wait(seconds):
            raise Stopped

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Receive the signals within the block."""
        before = {number: signal.signal(number, self._receive) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.is_set():
            raise KeyboardInterrupt
        self.set()


def run(
    archivers: Sequence[QueueArchiver],
    every_s: float | None,
    stop: Stop,
    progress: Callable[[int, int], None] = lambda batches, messages: None,
    say: Say = say,
) -> Held:
    """Archive the current messages of all queues, or run until stopped if there is an interval in seconds.

    `progress` is called with the batches and messages so far. Returns what open transactions have held back.
    Raises SparkFailed if another archiver has added messages of one of the queues, or the archive cannot be written.
    """
    try:
        for each in archivers:
            each.begin(ends=every_s is None)
        if every_s is None:
            _round(archivers, stop, progress)
        else:
            _service(archivers, every_s, stop, progress, say)
        return Held.of_all([each.finish() for each in archivers])
    except Stopped:
        if every_s is None:
            raise
        return Held()
    except DeltaError as error:
        raise SparkFailed(
            f"The archive cannot be read or written: {_first_line(error)}. What was committed is kept; run the command "
            "again."
        ) from error
    finally:
        for each in archivers:
            each.close()


def _round(archivers: Sequence[QueueArchiver], stop: Stop, progress: Callable[[int, int], None]) -> None:
    """Archive batches of each queue in turn until none has messages."""
    left = list(archivers)
    while left and not stop.is_set():
        left = [each for each in left if not stop.is_set() and each.step()]
        progress(sum(each.batches for each in archivers), sum(each.messages for each in archivers))


def _service(
    archivers: Sequence[QueueArchiver], every_s: float, stop: Stop, progress: Callable[[int, int], None], say: Say
) -> None:
    delay = 0.0
    while not stop.is_set():
        try:
            _round(archivers, stop, progress)
        except _PASSING as error:
            if not delay:
                say(f"the archive cannot be written; trying again until it can: {_first_line(error)}")
            delay = min(max(2 * delay, _FIRST_DELAY_S), _LONGEST_DELAY_S)
        else:
            if delay:
                say("the archive is written again")
            delay = 0.0
        stop.wait(delay or every_s)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
