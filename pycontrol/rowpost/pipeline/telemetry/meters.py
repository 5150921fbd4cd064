"""Meters with the names, units and tags of NServiceBus's IncomingPipelineMetrics."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opentelemetry.metrics import Counter, Histogram, Meter

from rowpost.pipeline.histograms import BOUNDARIES_S
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import error_type
from rowpost.wire.telemetry import ERROR_TYPE, EXECUTION_RESULT, MESSAGE_HANDLER_TYPE, MESSAGE_HANDLER_TYPES

__all__ = ["Meters"]

Tags = Mapping[str, str]

_RECOVERABILITY = MappingProxyType({Kind.FAILED: "immediate", Kind.DELAYED: "delayed", Kind.MOVED_TO_ERROR: "error"})
_RETRIES = MappingProxyType(
    {
        Kind.FAILED: "Total number of immediate retries requested.",
        Kind.DELAYED: "Total number of delayed retries requested.",
        Kind.MOVED_TO_ERROR: "Total number of messages sent to the error queue.",
    }
)


class Meters:
    """The instruments of one process. `tags` are those that the queue and the message share. Thread-safe."""

    def __init__(self, meter: Meter) -> None:
        def counter(name: str, description: str) -> Counter:
            return meter.create_counter(f"nservicebus.{name}", description=description)

        def histogram(name: str, description: str) -> Histogram:
            return meter.create_histogram(
                f"nservicebus.messaging.{name}", "s", description, explicit_bucket_boundaries_advisory=BOUNDARIES_S
            )

        self._successes = counter(
            "messaging.successes", "Total number of messages processed successfully by the endpoint."
        )
        self._fetches = counter("messaging.fetches", "Total number of messages fetched from the queue by the endpoint.")
        self._failures = counter(
            "messaging.failures", "Total number of messages processed unsuccessfully by the endpoint."
        )
        self._handler_time = histogram("handler_time", "The time in seconds for the execution of the business code.")
        self._critical_time = histogram(
            "critical_time", "The time in seconds between when the message was sent until processed by the endpoint."
        )
        self._processing_time = histogram(
            "processing_time",
            "The time in seconds between when the message was fetched from the input queue until successfully "
            "processed by the endpoint.",
        )
        self._retries = {
            kind: counter(f"recoverability.{name}", _RETRIES[kind]) for kind, name in _RECOVERABILITY.items()
        }

    def fetched(self, tags: Tags) -> None:
        """Count an attempt."""
        self._fetches.add(1, _without_handlers(tags))

    def handled(self, tags: Tags, processing: float, critical: float | None) -> None:
        """Count a message that was committed.

        Args:
            tags: those of the message.
            processing: seconds since its handler started.
            critical: seconds since it was due; None if its headers do not say that.
        """
        tags = {**tags, EXECUTION_RESULT: "success"}
        self._successes.add(1, tags)
        self._processing_time.record(processing, tags)
        if critical is not None:
            self._critical_time.record(critical, tags)

    def failed(self, tags: Tags, error: BaseException) -> None:
        """Count a failed attempt."""
        self._failures.add(1, {**tags, ERROR_TYPE: error_type(error), EXECUTION_RESULT: "failure"})

    def treated(self, tags: Tags, kind: Kind, error: BaseException) -> None:
        """Count what becomes of a message after a failed attempt."""
        if kind in self._retries:
            self._retries[kind].add(1, {**_without_handlers(tags), ERROR_TYPE: error_type(error)})

    def ran(self, tags: Tags, handler: str, seconds: float, error: BaseException | None) -> None:
        """Record how long a handler ran. `error` is what it raised, if anything."""
        result = (
            {EXECUTION_RESULT: "success"}
            if error is None
            else {EXECUTION_RESULT: "failure", ERROR_TYPE: error_type(error)}
        )
        self._handler_time.record(seconds, {**_without_handlers(tags), MESSAGE_HANDLER_TYPE: handler, **result})


def _without_handlers(tags: Tags) -> dict[str, str]:
    return {name: value for name, value in tags.items() if name != MESSAGE_HANDLER_TYPES}
