"""One worker process: one queue, one connection, one transaction at a time.

The supervisor talks to it over a pipe. With the strategy `peek` it waits to be told, receives until the queue is empty,
says so, and waits again (seed 002: receive mode and peek mode); with `adaptive` and `fixed` it polls, backing off while
it finds nothing. It leaves after the transaction in hand when told to, on SIGTERM or SIGINT, and when its parent is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection as PipeEnd
from multiprocessing.connection import wait
from typing import Any

from rowpost.database.connection import Connection, connect
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.resolve import resolve_handler
from rowpost.errors import HandlerNotFound, RowpostError
from rowpost.pipeline.batch_size import batch_size
from rowpost.pipeline.batches import Batches
from rowpost.pipeline.pipeline import Pipeline
from rowpost.pipeline.plain_handler import Handler
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.recoverability.policy import in_words
from rowpost.workers.circuit_breaker import arms_circuit_breaker
from rowpost.workers.concurrency import poll_pause
from rowpost.workers.protocol import (
    ATTEMPTS_FAILED,
    Assignment,
    Back,
    Backoff,
    CrashPolicy,
    InFlight,
    InTrouble,
    Leave,
    Ready,
    Receive,
    Refused,
    Tally,
)
from rowpost.workers.receive_cursor import ReceiveCursor, SharedHighWaterMark

__all__ = ["Worker", "run_worker"]

logger = logging.getLogger("rowpost")

# Seconds: between two reports, two looks at the pipe while there is work.
REPORT_EVERY = 0.05
LISTEN_EVERY = 0.01
# Seconds without work after which an exclusive queue's worker lets the queue go.
LET_GO_AFTER = 1.0


class Worker:
    """The loop. `pipe` is the worker's end, `wake` a file descriptor that becomes readable when a signal arrived."""

    def __init__(
        self,
        assignment: Assignment,
        pipe: PipeEnd,
        *,
        wake: int | None = None,
        hand: InFlight | None = None,
        clock: Callable[[], float] = time.monotonic,
        connect: Callable[..., Connection] = connect,
    ) -> None:
        self._assignment = assignment
        self._pipe = pipe
        self._ears: list[Any] = [pipe] if wake is None else [pipe, wake]
        self._wake = wake
        self._hand = hand
        self._clock = clock
        self._connect_to = connect
        self._handler: Handler | None = None
        self._pipeline: Pipeline | None = None
        self._batches: Batches | None = None
        self._breaker = assignment.breaker
        self._round = 1 if assignment.receive or assignment.polls else 0
        self._receiving = assignment.receive or assignment.polls
        self._leaving = False
        self._misses = 0
        self._frontier = assignment.frontier or SharedHighWaterMark()
        self._anchor = ReceiveCursor(self._frontier)
        self._let_go = False
        self._listened_at = self._reported_at = clock()
        self._tally = Tally()
        self._subscribes = assignment.subscribes
        self._pace = assignment.pace

    def leave(self) -> None:
        """Finish the transaction in hand, then leave; safe in a signal handler."""
        self._leaving = True

    def run(self) -> None:
        """Work until told to leave."""
        try:
            self._handler = resolve_handler(self._assignment.handler)
        except HandlerNotFound as error:
            self._send(Refused(str(error)))
            return
        self._send(Ready(os.getpid(), _terms(self._handler, self._assignment)))
        while not self._leaving:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 a defect of ours must not end the worker unseen
                self._record_failure(error)
        self._report(busy=False)
        self._disconnect()

    def _turn(self) -> None:
        if self._pipeline is None and not self._let_go:
            self._open_pipeline()
        if not self._receiving:
            self._stand_by()
            return
        for outcome in self._receive():
            self._note(outcome)
        now = self._clock()
        if now - self._reported_at >= REPORT_EVERY:
            self._report(busy=self._receiving)
        if now - self._listened_at >= LISTEN_EVERY:
            self._listen(0.0)

    def _stand_by(self) -> None:
        """Waits to be told; lets a queue that it alone may work off go after a while, so that another process may have it."""
        self._listen(LET_GO_AFTER if self._assignment.exclusive and not self._let_go else None)
        if self._assignment.exclusive and not self._receiving:
            self._disconnect()
        self._let_go = self._assignment.exclusive and not self._receiving

    def _receive(self) -> list[Outcome]:
        """Above the anchor; from the start when it is time for that, or nothing is there."""
        now = self._clock()
        begin = self._anchor.begin(now)
        outcomes = self._process(begin)
        if begin is not None and outcomes[0].kind is Kind.EMPTY and self._anchor.looks_back(now):
            return self._process(None)
        return outcomes

    def _process(self, begin: int | None) -> list[Outcome]:
        self._anchor.claim(begin, self._batches.size)
        outcomes = self._batches.process(begin)
        if begin is None:
            self._anchor.looked(self._clock(), self._batches.receive_seconds)
        if outcomes[0].kind is Kind.EMPTY:
            self._anchor.found_nothing()
        elif self._batches.kept is None:
            self._anchor.gave_back()
        else:
            self._anchor.took(len(outcomes), outcomes[0].row_version, self._batches.kept)
        return outcomes

    def _note(self, outcome: Outcome) -> None:
        kind = outcome.kind
        if self._breaker.armed and kind is not Kind.UNMOVABLE:
            self._breaker = self._breaker.after_success()
            self._send(Back())
        if kind is Kind.DEADLOCKED:
            return
        self._tally.add(outcome)
        if kind is Kind.EMPTY:
            self._found_nothing()
            return
        self._misses = 0
        if kind is Kind.UNMOVABLE:
            self._report(busy=True)
            self._pause(self._breaker.armed_wait)
        elif kind in ATTEMPTS_FAILED:
            self._keep_pace()
        elif kind is Kind.HANDLED and self._pace:
            self._pace = 0.0
            self._report(busy=True)

    def _keep_pace(self) -> None:
        """After a failed attempt: where many in a row matter, tell at once; wait while there were too many."""
        if self._assignment.prompt:
            self._report(busy=True)
            self._listen(0.0)
        if self._pace:
            self._pause(self._pace)

    def _found_nothing(self) -> None:
        self._misses += 1
        self._receiving = self._assignment.polls
        self._report(busy=False)
        if self._receiving:
            self._listen(poll_pause(self._misses))

    def _record_failure(self, error: Exception) -> None:
        """Drop the connection, report that the queue cannot be received from, and wait as long as the breaker says.

        The connection is dropped after every error: whatever was open on it, the server rolls back.
        """
        if self._hand is not None:
            self._hand.hold(None)  # it is back in the queue
        self._disconnect()
        if not isinstance(error, RowpostError):
            logger.error("A worker of the queue %r met a defect of rowpost", self._assignment.queue, exc_info=error)
        if not arms_circuit_breaker(error):
            return
        self._breaker = self._breaker.after_failure(self._clock())
        self._report(busy=False)
        self._send(InTrouble(in_words(error)))
        self._pause(self._breaker.wait)

    # -------------------------------------------------------------- connection
    def _open_pipeline(self) -> None:
        assignment = self._assignment
        self._anchor = ReceiveCursor(self._frontier)
        database = self._connect()
        if self._subscribes and isinstance(self._handler, Endpoint):
            self._handler.subscribe(database)
            self._subscribes = False
        self._pipeline = Pipeline(
            database,
            assignment.queue,
            self._handler,
            attempts=assignment.attempts,
            error_queue=assignment.error_queue,
            reconnect=self._connect,
            hold=self._hand.hold if self._hand is not None else None,
            participants=dict(assignment.settings.participants),
            outboxes={each.name: each.url for each in assignment.settings.outboxes},
            exclusive=assignment.exclusive,
        )
        self._pipeline.recover()
        own = getattr(self._handler, "batch", None)
        size = batch_size(assignment.batch if own is None else own, assignment.batch_time)
        self._batches = Batches(self._pipeline, size)

    def _connect(self) -> Connection:
        name = f"rowpost worker {self._assignment.queue} {self._assignment.number}"
        return self._connect_to(self._assignment.settings, application_name=name)

    def _disconnect(self) -> None:
        if self._pipeline is not None:
            with suppress(Exception):  # what fails here has been reported, or fails again on the next connection
                self._pipeline.close()
            self._pipeline = None

    # -------------------------------------------------------------- the pipe
    def _listen(self, timeout: float | None) -> None:
        """Take commands for at most `timeout` seconds, or until the first one; None waits."""
        ready = wait(self._ears, timeout)
        self._listened_at = self._clock()
        if self._wake in ready:
            os.read(self._wake, 64)
        if self._pipe not in ready:
            return
        try:
            while self._pipe.poll():
                self._obey(self._pipe.recv())
        except (EOFError, OSError):
            self._leaving = True

    def _obey(self, command: Receive | Backoff | Leave) -> None:
        if isinstance(command, Leave):
            self._leaving = True
        elif isinstance(command, Backoff):
            self._pace = command.seconds
        else:
            self._round, self._receiving = command.round, True

    def _pause(self, seconds: float) -> None:
        until = self._clock() + seconds
        while not self._leaving and (left := until - self._clock()) > 0:
            self._listen(left)

    def _report(self, *, busy: bool) -> None:
        self._reported_at = self._clock()
        times = None if self._pipeline is None else self._pipeline.stopwatch.take()
        self._send(self._tally.take(busy=busy, round_=self._round, times=times))

    def _send(self, report: object) -> None:
        try:
            self._pipe.send(report)
        except OSError:
            self._leaving = True


def _terms(handler: Any, assignment: Assignment) -> CrashPolicy:
    """What the supervisor needs to know, should the handler kill this process."""
    if not isinstance(handler, Endpoint):
        retries = assignment.attempts - 1
        return CrashPolicy(retries, 0, timedelta(0), assignment.error_queue, assignment.time_limit)
    limit = assignment.time_limit if handler.time_limit is None else handler.time_limit.total_seconds()
    treatment = handler.recoverability
    return CrashPolicy(
        treatment.immediate_retries, treatment.delayed_retries, treatment.delay_increase, handler.error_queue, limit
    )


def run_worker(assignment: Assignment, pipe: PipeEnd, hand: InFlight) -> None:
    """Entry of a worker process."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    worker = Worker(assignment, pipe, wake=read, hand=hand)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.leave())
    worker.run()
