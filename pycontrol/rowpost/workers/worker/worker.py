"""The loop of a worker: one queue, one connection, one transaction at a time, in a process or in a slot of one.

The supervisor sends commands, and the worker sends reports back (`channel`). With the strategy `peek`, the worker waits
for a command to receive, receives until the queue is empty, reports that, and waits again. With `adaptive` and `fixed`
it polls, and backs off while it finds nothing. It exits after its current transaction on a command, on SIGTERM or
SIGINT, and when its supervisor has ended.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress

from rowpost.database.connection import Connection, connect
from rowpost.errors import HandlerNotFound, RowpostError, SettingsError
from rowpost.pipeline.batch_size import BatchSize, batch_size
from rowpost.pipeline.batches import Batches
from rowpost.pipeline.histograms import TypedStopwatch
from rowpost.pipeline.measurements import Recorder
from rowpost.pipeline.modes import others_of
from rowpost.pipeline.pipeline import Pipeline
from rowpost.pipeline.timings import Stopwatch
from rowpost.recoverability.outcome import InterruptedAttempt, Kind, Outcome
from rowpost.recoverability.policy import in_words
from rowpost.recoverability.stopping import REQUESTED, STOP, HandlerInterrupted
from rowpost.settings.worker import OFF
from rowpost.workers.circuit_breaker import arms_circuit_breaker
from rowpost.workers.concurrency import poll_pause
from rowpost.workers.protocol import (
    Assignment,
    Backoff,
    Exit,
    HandlerRefused,
    InFlight,
    Keep,
    Ready,
    Receive,
    ReceiveFailed,
    ReceiveRecovered,
    SharedHighWaterMark,
    Tally,
    Tried,
    attempt_failed,
)
from rowpost.workers.worker.channel import Channel
from rowpost.workers.worker.hosted import Hosted, host
from rowpost.workers.worker.receive_cursor import ReceiveCursor

__all__ = ["Worker"]

logger = logging.getLogger("rowpost")

# Intervals of reports, and of reading commands, while there is work.
REPORT_INTERVAL_S = 0.05
COMMAND_INTERVAL_S = 0.01
# The worker of an exclusive queue releases the queue after this time without work.
RELEASE_AFTER_S = 1.0


class Worker:
    """The loop of a worker.

    Args:
        channel: commands and reports.
        hosted: the endpoint, if the process has it already, or why it has none; None imports it.
        in_flight: shared memory for the message that the handler handles.
    """

    def __init__(
        self,
        assignment: Assignment,
        channel: Channel,
        *,
        hosted: Hosted | str | None = None,
        in_flight: InFlight | None = None,
        clock: Callable[[], float] = time.monotonic,
        connect: Callable[..., Connection] = connect,
    ) -> None:
        self._assignment = assignment
        self._channel = channel
        self._given = hosted
        self._hosted: Hosted  # set by run()
        self._in_flight = in_flight
        self._clock = clock
        self._connect_to = connect
        self._pipeline: Pipeline | None = None
        self._batches: Batches  # set with the pipeline
        #: how the messages of a session that the server has ended are handled on the next connection
        self._lost_size: BatchSize | None = None
        self._breaker = assignment.breaker
        #: whether something was received, or found missing, on the current connection
        self._connection_worked = False
        self._round = 1 if assignment.receive or assignment.polls else 0
        self._receiving = assignment.receive or assignment.polls
        self._exiting = self._abandoned = False
        self._suspects = list(assignment.suspects)
        self._returns = assignment.returns
        self._misses = 0
        self._high_water_mark = assignment.high_water_mark or SharedHighWaterMark()
        self._cursor = ReceiveCursor(self._high_water_mark)
        self._released = False
        self._read_commands_at = self._reported_at = clock()
        self._tally = Tally()
        self._subscribes = assignment.subscribes
        self._backoff = assignment.backoff
        control = assignment.settings.service_control
        self._stopwatch = Stopwatch()
        #: None unless the environment sends metrics
        self.recorder = Recorder() if control is not None and control.monitoring is not None else None
        #: a message whose failed attempt is counted on the next connection
        self._interrupted: InterruptedAttempt | None = None
        #: None unless the environment serves metrics
        self.histograms = TypedStopwatch() if assignment.settings.supervisor.metrics is not None else None

    def exit(self) -> None:
        """Exit the loop after the current transaction. May be called from a signal handler."""
        self._exiting = True
        (STOP.process if self._in_flight is None else self._in_flight.stop).request(REQUESTED)

    def abandon(self) -> None:
        """End the sessions of the message that is handled. Another thread calls this; the loop ends when the handler
        returns.
        """
        self._abandoned = self._exiting = True
        pipeline = self._pipeline
        if pipeline is not None:
            pipeline.cut()

    def run(self) -> None:
        """Receive and handle messages until a command or a signal to exit."""
        try:
            if isinstance(self._given, str):
                raise HandlerNotFound(self._given)
            self._hosted = self._given or host(self._assignment)
        except (HandlerNotFound, SettingsError) as error:
            self.send(HandlerRefused(str(error)))
            return
        self._endpoint = self._hosted.endpoint
        self.send(Ready(os.getpid(), self._hosted.crash_policy))
        if self._assignment.imports_only:
            return
        while not self._exiting:
            try:
                self._turn()
            except HandlerInterrupted:
                self.exit()
                if self._in_flight is not None and not self._in_flight.stop.overdue:
                    self._in_flight.ended()  # the message is in the queue again
            except Exception as error:  # noqa: BLE001 -- a defect of ours must not end the worker silently
                self._record_failure(error)
        if self._abandoned:
            return
        self._report(busy=False)
        self._disconnect()
        if self._given is None:
            self._hosted.close()  # last: nothing waits for the collector any more

    def _turn(self) -> None:
        if self._pipeline is None and not self._released:
            self._open_pipeline()
        if self._suspects:
            outcomes = self._try_suspect(self._suspects[0])
        elif self._receiving:
            outcomes = self._receive()
        else:
            self._wait_for_command()
            return
        self._connection_worked = True
        for outcome in outcomes:
            self._record(outcome)
        now = self._clock()
        if now - self._reported_at >= REPORT_INTERVAL_S:
            self._report(busy=self._receiving)
        if now - self._read_commands_at >= COMMAND_INTERVAL_S:
            self.read_commands(0.0)

    def _wait_for_command(self) -> None:
        """Wait for a command, or end a worker that returns; release an exclusive queue after a time without work, so
        that another process can have it.
        """
        if self._returns:
            self._exiting = self.read_commands(0.0) or (self._returns and not self._receiving)
            return
        self.read_commands(RELEASE_AFTER_S if self._assignment.exclusive and not self._released else None)
        if self._assignment.exclusive and not self._receiving:
            self._disconnect()
        self._released = self._assignment.exclusive and not self._receiving

    def _try_suspect(self, row_version: int) -> list[Outcome]:
        """Handle a message that may kill the process, which has no other one meanwhile."""
        size, self._batches.size = self._batches.size, batch_size(OFF, 0.0)
        try:
            outcomes = self._batches.process(row_version - 1)
        finally:
            self._batches.size = size
        again = outcomes[0].kind is Kind.DEADLOCKED or (
            outcomes[0].kind is Kind.FAILED and outcomes[0].row_version == row_version
        )
        if not again:
            self._suspects.pop(0)
            self.send(Tried(row_version))
        return [each for each in outcomes if each.kind is not Kind.EMPTY]

    def _receive(self) -> list[Outcome]:
        """Receive above the cursor; from the start if a full scan is due."""
        now = self._clock()
        start = self._cursor.start(now, self._batches.size.now)
        outcomes = self._process(start)
        if start is not None and outcomes[0].kind is Kind.EMPTY and self._cursor.needs_full_scan(now):
            self._cursor.start_scan(self._batches.size.now)
            return self._process(None)
        return outcomes

    def _process(self, start: int | None) -> list[Outcome]:
        outcomes = self._batches.process(start)
        if start is None:
            self._cursor.full_scan_ended(self._clock(), self._batches.receive_seconds)
        first, last = outcomes[0].row_version, self._batches.kept
        if outcomes[0].kind is Kind.EMPTY:
            self._cursor.found_nothing()
        elif first is None or last is None:  # nothing was removed for good
            self._cursor.rolled_back()
        else:
            self._cursor.removed(len(outcomes), first, last)
        return outcomes

    def _record(self, outcome: Outcome) -> None:
        kind = outcome.kind
        if self._breaker.armed_at is not None and kind is not Kind.UNMOVABLE:
            self._breaker = self._breaker.after_success()
            self.send(ReceiveRecovered())
        if kind is Kind.DEADLOCKED:
            return
        self._tally.add(outcome)
        if kind is not Kind.HANDLED and self._tally.is_full:
            self._report(busy=True)
        if kind is Kind.EMPTY:
            self._found_nothing()
            return
        self._misses = 0
        if kind is Kind.UNMOVABLE:
            self._report(busy=True)
            self._pause(self._breaker.armed_wait)
        elif attempt_failed(outcome):
            self._after_failed_attempt()
        elif self._backoff and outcome.succeeded:
            self._backoff = 0.0
            self._report(busy=True)

    def _after_failed_attempt(self) -> None:
        """Report a failed attempt at once if failures in a row are counted, and wait while the queue is throttled."""
        if self._assignment.reports_failures_at_once:
            self._report(busy=True)
            self.read_commands(0.0)
        if self._backoff:
            self._pause(self._backoff)

    def _found_nothing(self) -> None:
        self._misses += 1
        self._receiving = self._assignment.polls
        self._report(busy=False)
        if self._receiving:
            self.read_commands(poll_pause(self._misses))

    def _record_failure(self, error: Exception) -> None:
        """Close the connection, and report that the queue is unavailable. Then wait for the circuit breaker's current
        delay; a connection that had worked is replaced at once.

        The connection is closed after every error, so that the server rolls back any open transaction.
        """
        if self._in_flight is not None:
            self._in_flight.ended()  # the message is in the queue again
        if self._pipeline is not None:
            self._interrupted = self._pipeline.interrupted or self._interrupted
            self._lost_size = self._batches.size if self._batches.size.held else None
        self._disconnect()
        if not isinstance(error, RowpostError):
            logger.error(
                "Unexpected error in a worker of queue %r; this is a defect of rowpost, please report it",
                self._assignment.queue,
                exc_info=error,
            )
        if not arms_circuit_breaker(error):
            return
        self._breaker = self._breaker.after_failure(self._clock())
        self._report(busy=False)
        self.send(ReceiveFailed(in_words(error)))
        self._pause(0.0 if self._connection_worked and not self._breaker.triggered else self._breaker.wait)

    # -------------------------------------------------------------- connection
    def _open_pipeline(self) -> None:
        assignment = self._assignment
        if assignment.exclusive:
            # A killed predecessor may have rolled back rows below the mark of its queue. The order requires to begin
            # with them.
            self._high_water_mark = SharedHighWaterMark()
        self._cursor = ReceiveCursor(self._high_water_mark)
        self._connection_worked = False
        self._endpoint.surroundings.hooks.start()
        leasing = self._hosted.leasing(assignment, self._connect_to)
        database = leasing.connection() if leasing is not None and self._endpoint.leases else self._connect()
        if self._subscribes:
            self._endpoint.subscribe(database, assignment.settings.subscription_table)
            self._subscribes = False
        if assignment.settings.service_control is not None:
            self._endpoint.report_to(assignment.settings.service_control, database)
        telemetry = self._hosted.telemetry.pipeline(assignment.queue, self._endpoint.instance or "")
        observers = (self._in_flight, self._stopwatch, self.histograms, self.recorder, telemetry)
        self._pipeline = Pipeline(
            database,
            assignment.queue,
            self._endpoint,
            reconnect=self._connect,
            others=others_of(assignment.settings),
            exclusive=assignment.exclusive,
            observers=[each for each in observers if each is not None],
            leasing=leasing,
        )
        own = self._endpoint.options.batch
        size = batch_size(assignment.batch if own is None else own, assignment.batch_time)
        self._batches = Batches(self._pipeline, self._lost_size or size)
        self._lost_size = None
        self._pipeline.recover()
        if self._interrupted is not None:
            outcome = self._pipeline.count_interrupted(self._interrupted)
            self._interrupted = None
            self._record(outcome)

    def _connect(self) -> Connection:
        if self._abandoned:
            raise HandlerInterrupted("The slot of this handler was abandoned.")
        name = f"rowpost worker {self._assignment.queue} {self._assignment.number}"
        return self._connect_to(self._assignment.settings, application_name=name)

    def _disconnect(self) -> None:
        if self._pipeline is not None:
            with suppress(Exception):  # the error was reported already, or occurs again on the next connection
                self._pipeline.close()
            self._pipeline = None

    # -------------------------------------------------------------- the pipe
    def read_commands(self, timeout: float | None) -> bool:
        """Execute pending commands, and return whether the loop is to end.

        Wait `timeout` seconds at most for the first one, None without a limit.
        """
        try:
            commands = self._channel.receive(timeout)
        except (EOFError, OSError):
            self._exiting = True
            return True
        self._read_commands_at = self._clock()
        for command in commands:
            self._execute(command)
        return self._exiting

    def _execute(self, command: Receive | Backoff | Exit | Keep) -> None:
        if isinstance(command, Exit):
            self._exiting = True
        elif isinstance(command, Keep):
            self._returns = False
        elif isinstance(command, Backoff):
            self._backoff = command.seconds
        else:
            self._round, self._receiving = command.round, True

    def _pause(self, seconds: float) -> None:
        until = self._clock() + seconds
        while not self._exiting and (left := until - self._clock()) > 0:
            self.read_commands(left)

    def _report(self, *, busy: bool) -> None:
        self._reported_at = self._clock()
        measured = None if self.recorder is None else self.recorder.take()
        histograms = None if self.histograms is None else self.histograms.take()
        self.send(
            self._tally.take(
                busy=busy, round_=self._round, times=self._stopwatch.take(), measured=measured, histograms=histograms
            )
        )

    def send(self, report: object) -> None:
        """Send a report to the supervisor. Threads of handlers call it too, because they log."""
        try:
            self._channel.send(report)
        except OSError:
            self._exiting = True
