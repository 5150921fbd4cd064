"""What all slots of a worker process share: their endpoint, its telemetry, and the connections for leases."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from rowpost.database.connection import Connection
from rowpost.database.pool import Connections
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.resolve import resolve_handler
from rowpost.endpoint.telemetry import RunningTelemetry, start_telemetry
from rowpost.pipeline.lease import Leasing
from rowpost.pipeline.modes import business_of, others_of
from rowpost.workers.protocol import Assignment, CrashPolicy

__all__ = ["Hosted", "crash_policy_of", "host", "load"]

# Python looks for cycles after so many new objects. Its own number, 700, is less than the messages of one transaction
# have.
COLLECTED_OBJECTS = 10_000


@dataclass
class Hosted:
    """An endpoint that this process runs.

    Attributes:
        telemetry: observes it.
        crash_policy: how the supervisor treats messages whose handler kills the process.
    """

    endpoint: Endpoint
    telemetry: RunningTelemetry
    crash_policy: CrashPolicy
    _leasing: Leasing | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def leasing(self, assignment: Assignment, connect: Callable[..., Connection]) -> Leasing | None:
        """Return what the slots share to lease messages; None if the endpoint leases none.

        Args:
            assignment: of any of the slots.
            connect: opens a connection by the environment's settings.
        """
        if not self.endpoint.needs_leases:
            return None
        with self._lock:
            if self._leasing is None:
                name = f"rowpost worker {assignment.queue} leases"
                connections = Connections(partial(connect, assignment.settings, application_name=name))
                business = business_of(self.endpoint, assignment.queue, others_of(assignment.settings))
                self._leasing = Leasing(connections, assignment.queue, self.endpoint.lease_seconds, business)
            return self._leasing

    def close(self) -> None:
        """End what handlers share, close the connections for leases, and export what is left of the telemetry."""
        self.endpoint.surroundings.close()
        if self._leasing is not None:
            self._leasing.close()
        self.telemetry.close()


def host(assignment: Assignment) -> Hosted:
    """Import the handler of an assignment, and observe it.

    Raises:
        HandlerNotFound, SettingsError: the handler cannot be imported, or contradicts the environment.
    """
    endpoint = load(assignment)
    telemetry = start_telemetry(assignment.settings, endpoint, service=assignment.queue)
    gc.freeze()  # what is imported by now stays: no collection walks over it again
    return Hosted(endpoint, telemetry, crash_policy_of(endpoint, assignment))


def load(assignment: Assignment) -> Endpoint:
    """Import the handler of an assignment. Raises as `host`."""
    gc.set_threshold(COLLECTED_OBJECTS)  # before the import of the handlers, which may know better
    endpoint = resolve_handler(
        assignment.handler, assignment.queue, retries=assignment.retries, error_queue=assignment.error_queue
    )
    endpoint.configure(assignment.settings)
    endpoint.surroundings.check()
    return endpoint


def crash_policy_of(endpoint: Endpoint, assignment: Assignment) -> CrashPolicy:
    """Return how the supervisor treats messages whose handler kills the process."""
    own = endpoint.options.time_limit
    limit = assignment.time_limit if own is None else own.total_seconds()
    return CrashPolicy.of(endpoint.recoverability, endpoint.error_queue, limit)
