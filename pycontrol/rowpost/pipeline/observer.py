"""What observes the messages of a pipeline: `Observer`, of which a pipeline has a list.

    Pipeline(database, "Sales", endpoint, observers=[Stopwatch()])

A worker's observers are the in-flight message that its supervisor reads, and what takes the measurements of messages:
`timings.Stopwatch` for status and events, `histograms.TypedStopwatch` for Prometheus, `measurements.Recorder` for
ServiceControl, and `telemetry.observer.QueueTelemetry` for OpenTelemetry. Times are measured once for all of them, by
`timings.measure`.

A pipeline calls only the methods that an observer overrides. What nobody observes costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rowpost.handling.observer import HandlerObserver, SendObserver
from rowpost.handling.processor import Caused
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.wire.message import Message

__all__ = ["Begun", "EndpointObserver", "Headers", "Measurement", "Observer", "Observers"]

Headers = Mapping[str, str | None]
#: for each message, its headers, and when its handler started in seconds since 1970
Begun = Sequence[tuple[Headers, float]]


class Measurement(NamedTuple):
    """The times of messages whose transaction has ended, and which ended in the same way.

    Attributes:
        kind: how they ended.
        headers: the headers of each message.
        processing: each one's processing time in seconds.
        critical: each one's critical time in seconds; None for a message that has none.
        ended: when the transaction ended, in seconds since 1970.
    """

    kind: Kind
    headers: Sequence[Headers]
    processing: Sequence[float]
    critical: Sequence[float | None]
    ended: float


class Observer:
    """Observes the messages of one pipeline, in the pipeline's thread.

    Override the methods that you need; the others do nothing.
    """

    def began(self) -> None:
        """Note that a transaction begins in which messages are received.

        What was not measured before is rolled back.
        """

    def step(self, name: str) -> None:
        """Note a step of a message, such as "received" or "before commit". Tests stop a process there."""

    def starting(self, message: Message) -> None:
        """Note that the handlers of a message run next."""

    def failed(self, error: BaseException) -> None:
        """Note why the current attempt has failed, before the failure is counted."""

    def ended(self, result: Caused | Outcome) -> None:
        """Note the end of what `starting` began: the outcome, or in a batch what the handlers caused; its commit comes
        later.
        """

    def aborted(self, error: BaseException) -> None:
        """Note that an error has ended the current attempt without an outcome: the connection is lost, or rowpost is at
        fault.
        """

    def measured(self, measurement: Measurement) -> None:
        """Take the times of messages whose transaction has ended."""

    def close(self) -> None:
        """Note that the pipeline ends. What was not measured is rolled back."""


class Observers:
    """The methods of a pipeline's observers that do something, by their names."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        def of(name: str) -> tuple[Callable[..., Any], ...]:
            return tuple(
                getattr(each, name) for each in observers if getattr(type(each), name) is not getattr(Observer, name)
            )

        observers = tuple(observers)
        self.began: tuple[Callable[[], None], ...] = of("began")
        self.steps: tuple[Callable[[str], None], ...] = of("step")
        self.starting: tuple[Callable[[Message], None], ...] = of("starting")
        self.failed: tuple[Callable[[BaseException], None], ...] = of("failed")
        self.ended: tuple[Callable[[Caused | Outcome], None], ...] = of("ended")
        self.aborted: tuple[Callable[[BaseException], None], ...] = of("aborted")
        self.measured: tuple[Callable[[Measurement], None], ...] = of("measured")
        self.close: tuple[Callable[[], None], ...] = of("close")


class EndpointObserver(HandlerObserver, SendObserver, Protocol):
    """Observes endpoints.

    Attributes:
        traces: whether sends get spans.
    """

    traces: bool

    def pipeline(self, queue: str, discriminator: str = "") -> Observer:
        """Return the observer of a pipeline.

        Args:
            queue: the name of its queue.
            discriminator: names this instance of the endpoint among others; empty if it has no name.
        """
