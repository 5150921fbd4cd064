"""What all slots of a worker process share: the endpoint whose handlers they run, and its telemetry."""

from __future__ import annotations

import gc
from dataclasses import dataclass

from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.resolve import resolve_handler
from rowpost.endpoint.telemetry import RunningTelemetry, start_telemetry
from rowpost.workers.protocol import Assignment, CrashPolicy

__all__ = ["Hosted", "host"]

# Python looks for cycles after so many new objects. Its own number, 700, is less than the messages of one transaction
# have.
COLLECTED_OBJECTS = 10_000


@dataclass(frozen=True)
class Hosted:
    """An endpoint that this process runs.

    Attributes:
        telemetry: observes it.
        crash_policy: how the supervisor treats messages whose handler kills the process.
    """

    endpoint: Endpoint
    telemetry: RunningTelemetry
    crash_policy: CrashPolicy


def host(assignment: Assignment) -> Hosted:
    """Import the handler of an assignment.

    Raises:
        HandlerNotFound, SettingsError: the handler cannot be imported, or contradicts the environment.
    """
    gc.set_threshold(COLLECTED_OBJECTS)  # before the import of the handlers, which may know better
    endpoint = resolve_handler(
        assignment.handler, assignment.queue, attempts=assignment.attempts, error_queue=assignment.error_queue
    )
    endpoint.configure(assignment.settings)
    telemetry = start_telemetry(assignment.settings, endpoint, service=assignment.queue)
    gc.freeze()  # what is imported by now stays: no collection walks over it again
    own, policy = endpoint.options.time_limit, endpoint.recoverability
    limit = assignment.time_limit if own is None else own.total_seconds()
    crash_policy = CrashPolicy(
        policy.immediate_retries, policy.delayed_retries, policy.delay_increase, endpoint.error_queue, limit
    )
    return Hosted(endpoint, telemetry, crash_policy)
