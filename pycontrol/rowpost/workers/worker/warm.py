"""A warm process: it has imported the handlers of many queues, and works for one of them at a time.

    imports, subscribes          Imported for each queue, then EndpointsSubscribed
    Take("Sales")                a worker's loop (`worker.py`) handles messages until the queue is empty
    Returned                     the process is free for another queue; or Keep: it belongs to this one

Each queue gets a session of the database that no other queue's handlers have had. It is opened while the process waits.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rowpost.database.connection import Connection, connect
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.provisioning import subscribe_queues
from rowpost.endpoint.telemetry import start_telemetry
from rowpost.errors import HandlerNotFound, RowpostError, SettingsError
from rowpost.recoverability.policy import in_words
from rowpost.recoverability.stopping import FORCED, REQUESTED, STOP
from rowpost.settings.environment import Settings
from rowpost.workers.protocol import Assignment, EndpointsSubscribed, Imported, InFlight, Leave, Returned, Take
from rowpost.workers.worker.channel import PipeChannel
from rowpost.workers.worker.hosted import Hosted, crash_policy_of, load
from rowpost.workers.worker.worker import Worker

__all__ = ["Warm"]

#: after so many seconds, endpoints that could not be subscribed are tried again
SUBSCRIBE_AGAIN_S = 5.0
APPLICATION_NAME = "rowpost warm worker"


class Warm:
    """The loop of a warm process.

    Args:
        settings: those of the environment.
        assignments: one for each queue that it may work for.
        channel: commands and reports.
        memory: shared with the supervisor: an `InFlight` for the message that is handled, and one for the process.
    """

    def __init__(
        self, settings: Settings, assignments: tuple[Assignment, ...], channel: PipeChannel, memory: Any
    ) -> None:
        self._settings, self._channel = settings, channel
        self._assignments = {each.queue: each for each in assignments}
        self.in_flight = InFlight(memoryview(memory).cast("B")[: InFlight.SIZE])
        self._endpoints: dict[str, Endpoint] = {}
        self._hosted: dict[str, Hosted] = {}
        self._unsubscribed: list[str] = []
        self._connection: Connection | None = None
        self._worker: Worker | None = None
        self._exiting = False

    def run(self) -> None:
        """Work until the supervisor says that the process is to leave, or has ended, or a signal to exit arrives."""
        self._import()
        try:
            while not self._exiting:
                self._prepare()
                for command in self._channel.receive(SUBSCRIBE_AGAIN_S if self._unsubscribed else None):
                    if isinstance(command, Take):
                        self._take(command)
                    elif isinstance(command, Leave):
                        self._exiting = True
        except (EOFError, OSError):
            pass  # the supervisor has ended
        if self._connection is not None:
            self._connection.close()
        for each in self._hosted.values():
            each.close()

    def send(self, report: object) -> None:
        """Send a report to the supervisor. Any thread may call it."""
        with suppress(OSError):
            self._channel.send(report)

    def stop(self, level: int) -> None:
        """Request that the process ends after its message. Signal handlers and other threads may call this."""
        self._exiting = True
        STOP.process.request(level)
        self.in_flight.stop.request(level)
        if self._worker is not None:
            self._worker.exit()

    def end(self, *_: object) -> None:
        """End the process after its message, or interrupt it if the stop is by force: the handler of signals."""
        self.stop(max(REQUESTED, STOP.process.memory[-1], self.in_flight.stop.memory[-1]))
        if self.in_flight.stop.forced:
            cancel = self.in_flight.stop.cancel
            if cancel is not None:
                cancel()
            self.in_flight.stop.interrupt()

    # -------------------------------------------------------------- before there is work
    def _import(self) -> None:
        for queue, assignment in self._assignments.items():
            try:
                endpoint = self._endpoints[queue] = load(assignment)
            except (HandlerNotFound, SettingsError) as error:
                self.send(Imported(queue, error=str(error)))
            else:
                self.send(Imported(queue, crash_policy_of(endpoint, assignment)))
        gc.freeze()  # what is imported by now stays: no collection walks over it again
        self._unsubscribed = list(self._endpoints)
        self._prepare(first=True)

    def _prepare(self, *, first: bool = False) -> None:
        """Open the session of the next queue, and subscribe the endpoints that are not subscribed yet."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._settings, application_name=APPLICATION_NAME)
        except RowpostError as error:
            if first:
                self.send(EndpointsSubscribed((), dict.fromkeys(self._unsubscribed, in_words(error))))
            return
        if self._unsubscribed:
            self._subscribe(self._connection)

    def _subscribe(self, database: Connection) -> None:
        """Subscribe all endpoints in one round trip; if that fails, each one by itself, so that each has its error."""
        errors: dict[str, str] = {}
        try:
            self._subscribe_to(database, self._unsubscribed)
        except RowpostError:
            for queue in self._unsubscribed:
                try:
                    self._subscribe_to(database, [queue])
                except RowpostError as error:
                    errors[queue] = in_words(error)
        done = tuple(queue for queue in self._unsubscribed if queue not in errors)
        self._unsubscribed = list(errors)
        self.send(EndpointsSubscribed(done, errors))

    def _subscribe_to(self, database: Connection, queues: list[str]) -> None:
        endpoints = (self._endpoints[queue] for queue in queues)
        subscribers = [(each.name, each.address, each.subscriptions) for each in endpoints if not each.send_only]
        subscribe_queues(database, self._settings.subscription_table, subscribers)

    # -------------------------------------------------------------- work
    def _take(self, command: Take) -> None:
        assignment = replace(self._assignments[command.queue], **command.changes)
        worker = self._worker = Worker(
            assignment,
            self._channel,
            hosted=self._host(assignment),
            in_flight=self.in_flight,
            connect=self._connect,
        )
        if self._exiting:
            worker.exit()
        with STOP.in_slot(self.in_flight.stop):
            worker.run()
        self._worker = None
        self._exiting |= self.in_flight.stop.memory[-1] >= FORCED
        if not self._exiting:
            self.send(Returned())

    def _host(self, assignment: Assignment) -> Hosted | str:
        """Return the endpoint of a queue with its telemetry, or why there is none."""
        queue = assignment.queue
        if queue not in self._hosted:
            try:
                endpoint = self._endpoints.get(queue) or load(assignment)
                telemetry = start_telemetry(self._settings, endpoint, service=queue)
            except (HandlerNotFound, SettingsError) as error:
                return str(error)
            self._hosted[queue] = Hosted(endpoint, telemetry, crash_policy_of(endpoint, assignment))
        return self._hosted[queue]

    def _connect(self, settings: Settings, application_name: str) -> Connection:
        """Return the session that is open, which is the worker's own from then on; else open one."""
        prepared, self._connection = self._connection, None
        if prepared is None or prepared.closed:
            return connect(settings, application_name=application_name)
        return prepared
