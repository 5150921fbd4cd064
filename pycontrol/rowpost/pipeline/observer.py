"""What observes the attempts of a pipeline for OpenTelemetry: protocols, so that the pipeline itself imports no OpenTelemetry.

A pipeline has an observer only if its environment has the section `telemetry`. The pipeline chooses once, when it is made, whether it calls
the mode's methods or the observer's. `pipeline.telemetry.observer` implements the protocols.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rowpost.database.connection import Connection
from rowpost.handling.observer import HandlerObserver, SendObserver
from rowpost.handling.processor import Caused
from rowpost.recoverability.outcome import Outcome, RowState
from rowpost.recoverability.retries import Retries
from rowpost.wire.message import Message

__all__ = ["EndpointObserver", "ObservedRetries", "PipelineObserver"]


class PipelineObserver(Protocol):
    """Observes the messages of one pipeline. Not for several threads at once."""

    def handle(self, handle: Callable[[Message], Outcome], message: Message) -> Outcome:
        """Handle one message in a transaction of its own: call `handle`, and return its outcome. Raises what it raises."""

    def attempt(self, attempt: Callable[..., Caused | Outcome], message: Message, row: RowState, *, batched: bool) -> Caused | Outcome:
        """Handle one message of a batch: call `attempt` with the other arguments, and return its result. Raises what it raises."""

    def failed(self, error: BaseException) -> None:
        """Note why the current attempt has failed."""

    def batch_began(self) -> None:
        """Note that another batch begins. What was not committed is rolled back."""

    def committed(self) -> None:
        """Note that the batch was committed."""

    def close(self) -> None:
        """Note that the pipeline ends. What was not committed is rolled back."""


class EndpointObserver(HandlerObserver, SendObserver, Protocol):
    """Observes endpoints.

    Attributes:
        traces: whether sends get spans.
    """

    traces: bool

    def pipeline(self, queue: str, discriminator: str = "") -> PipelineObserver:
        """Return the observer of a pipeline.

        Args:
            queue: the name of its queue.
            discriminator: names this instance of the endpoint among others; empty if it has no name.
        """


class ObservedRetries(Retries):
    """Retries that tell an observer why each attempt failed."""

    def __init__(self, observer: PipelineObserver, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._observer = observer

    def failed(self, database: Connection, message: Message, error: BaseException, row: RowState = RowState.RETURNED) -> Outcome:
        """Tell the observer, then count the failed attempt and treat the message accordingly."""
        self._observer.failed(error)
        return super().failed(database, message, error, row)
