"""Observe endpoints and pipelines with OpenTelemetry: `Telemetry` for a process, `QueueTelemetry` for a pipeline.

    telemetry = Telemetry(tracer_provider, meter_provider)
    endpoint.observe(telemetry)                                     # sends and handlers
    Pipeline(database, "Sales", endpoint, observers=[telemetry.pipeline("Sales")])

An attempt begins before the handlers run, and its span ends when the transaction has ended. In a batch, a span's time
ends with its own handlers, and its status is known with the commit. An attempt that was rolled back together with
others counts as a fetch only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any

from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.trace import NoOpTracerProvider, Span, SpanKind, TracerProvider, set_span_in_context, use_span

from rowpost.handling.observer import Invocable
from rowpost.handling.processor import Caused
from rowpost.pipeline.observer import Measurement, Observer
from rowpost.pipeline.telemetry.meters import Meters
from rowpost.pipeline.telemetry.spans import attributes_of, fail, incoming, succeed, write
from rowpost.recoverability.outcome import Discard, Kind, Outcome
from rowpost.wire.address import parse_address
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, INVOKED_SAGAS
from rowpost.wire.message import Message
from rowpost.wire.message_types import split_enclosed_types
from rowpost.wire.telemetry import (
    DISCRIMINATOR,
    HANDLER_SAGA_ID,
    HANDLER_TYPE,
    MESSAGE_HANDLER_TYPES,
    MESSAGE_TYPE,
    METER,
    NATIVE_MESSAGE_ID,
    PROCESS_MESSAGE,
    QUEUE_NAME,
    SEND_SPANS,
    TRACER,
)

__all__ = ["QueueTelemetry", "Telemetry"]

#: the most types of messages that meters tell apart, and the most characters of one: any sender may write any type
MOST_TYPES, LONGEST_TYPE = 1000, 500
_DONE = frozenset({Kind.HANDLED, Kind.DISCARDED})
_ROLLED_BACK = "rolled back together with other messages of its batch; it is handled again"


@dataclass(slots=True)
class _Attempt:
    """One attempt to handle a message.

    Attributes:
        span: its span; None if nothing is traced.
        tags: what the queue and the message add to measurements.
        ended_ns: when its handlers ended; None before that.
        error: why it failed, if it did.
    """

    span: Span | None
    tags: dict[str, str]
    ended_ns: int | None = None
    error: BaseException | None = None


#: the attempt whose handlers run in this thread
_current: ContextVar[_Attempt | None] = ContextVar("rowpost_attempt", default=None)


class _Sending:
    """The span of one message on its way out."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._headers: Mapping[str, str | None] = {}

    def write(self, headers: dict[str, str | None]) -> None:
        """Name the span in the headers, and keep them: the span's attributes are what they are in the end."""
        self._headers = headers
        write(self._span, headers)

    def finish(self) -> None:
        """Set the attributes."""
        self._span.set_attributes(attributes_of(self._headers))


class Telemetry:
    """Observes the endpoints of a process. Thread-safe.

    Args:
        tracers: makes spans; None for no spans.
        meters: makes meters; None for no meters.
    """

    def __init__(self, tracers: TracerProvider | None, meters: MeterProvider | None) -> None:
        self.traces = tracers is not None
        self.tracer = (tracers or NoOpTracerProvider()).get_tracer(*TRACER)
        self.meters = Meters((meters or NoOpMeterProvider()).get_meter(*METER))

    def pipeline(self, queue: str, discriminator: str = "") -> QueueTelemetry:
        """Return the observer of a pipeline."""
        return QueueTelemetry(self, queue, discriminator)

    # -------------------------------------------------------------- SendObserver
    @contextmanager
    def sending(self, intent: str) -> Iterator[_Sending]:
        """Start the span of a send. An error that leaves the block fails it."""
        with self._span(SEND_SPANS[intent], SpanKind.PRODUCER) as span:
            sending = _Sending(span)
            try:
                yield sending
            finally:
                sending.finish()

    # -------------------------------------------------------------- HandlerObserver
    def found(self, handlers: Sequence[Invocable]) -> None:
        """Note the message's type and its handlers for the measurements of this attempt."""
        attempt = _current.get()
        if attempt is not None:
            attempt.tags[MESSAGE_TYPE] = handlers[0].type_name
            attempt.tags[MESSAGE_HANDLER_TYPES] = ";".join(each.full_name for each in handlers)

    def invoke(self, handler: Invocable, message: Any, context: Any) -> None:
        """Run a handler in a span of its own, and record how long it ran."""
        attempt, before = _current.get(), context.audit_headers.get(INVOKED_SAGAS)
        error: BaseException | None = None
        started = time.perf_counter()
        try:
            if not self.traces:
                handler.call(message, context)
                return
            with self._span(handler.name, SpanKind.INTERNAL, {HANDLER_TYPE: handler.full_name}) as span:
                handler.call(message, context)
                sagas = context.audit_headers.get(INVOKED_SAGAS)
                if sagas != before and sagas is not None:
                    span.set_attribute(HANDLER_SAGA_ID, sagas.rpartition(":")[2])
        except BaseException as raised:
            error = raised
            raise
        finally:
            if attempt is not None:
                self.meters.ran(attempt.tags, handler.full_name, time.perf_counter() - started, error)

    @contextmanager
    def _span(self, name: str, kind: SpanKind, attributes: Mapping[str, str] | None = None) -> Iterator[Span]:
        span = self.tracer.start_span(name, kind=kind, attributes=attributes)
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield span
            except BaseException as error:
                fail(span, error)
                raise
            succeed(span)


class QueueTelemetry(Observer):
    """Observes the attempts of one pipeline."""

    def __init__(self, telemetry: Telemetry, queue: str, discriminator: str) -> None:
        self._telemetry, self._meters = telemetry, telemetry.meters
        self._tags = {QUEUE_NAME: parse_address(queue).table, DISCRIMINATOR: discriminator}
        self._types: set[str] = set()
        #: what ends the attempt whose handlers run
        self._running: tuple[_Attempt, Token[_Attempt | None], Token[Context] | None] | None = None
        #: attempts whose handlers have ended in a transaction that is not measured yet, each with why the message was
        #: discarded
        self._open: list[tuple[_Attempt, Discard | None]] = []

    def began(self) -> None:
        """End the spans of a batch whose commit failed."""
        self._roll_back()

    def starting(self, message: Message) -> None:
        """Begin an attempt. A message that has expired is not attempted."""
        if not message.expired:
            attempt, entered = self._begin(message)
            self._running = attempt, _current.set(attempt), entered

    def failed(self, error: BaseException) -> None:
        """Note why the current attempt has failed."""
        if self._running is not None:
            self._running[0].error = error

    def ended(self, result: Caused | Outcome) -> None:
        """End a failed attempt, with which its whole batch is rolled back.

        Others end with their transaction, see `measured`.
        """
        attempt = self._leave()
        if attempt is None:
            return
        if isinstance(result, Outcome) and result.kind not in _DONE:
            self._roll_back()
            self._fail(attempt, result)
        else:
            self._open.append((attempt, result.discard))

    def aborted(self, error: BaseException) -> None:
        """End the attempt: the connection is lost, or rowpost is at fault."""
        attempt = self._leave()
        if attempt is not None:
            if attempt.span is not None:
                fail(attempt.span, attempt.error or error)
            self._end(attempt)
            self._roll_back()

    def measured(self, measurement: Measurement) -> None:
        """End the spans of messages that were committed, and record their times."""
        if measurement.kind in _DONE:
            done = [each for each in self._open if (each[1] is None) == (measurement.kind is Kind.HANDLED)]
            self._open = [each for each in self._open if each not in done]
            for (attempt, discard), processing, critical in zip(
                done, measurement.processing, measurement.critical, strict=False
            ):
                self._succeed(attempt, discard, processing, critical)

    def close(self) -> None:
        """End the spans of what was not committed."""
        self._roll_back()

    # -------------------------------------------------------------- one attempt
    def _leave(self) -> _Attempt | None:
        """Make the attempt whose handlers ran the current one no longer, and return it."""
        running, self._running = self._running, None
        if running is None:
            return None
        attempt, current, entered = running
        attempt.ended_ns = time.time_ns()
        _current.reset(current)
        if entered is not None:
            detach(entered)
        return attempt

    def _begin(self, message: Message) -> tuple[_Attempt, Token[Context] | None]:
        headers, span, entered = message.headers, None, None
        if self._telemetry.traces:
            context, links = incoming(headers)
            attributes = {NATIVE_MESSAGE_ID: str(message.id), **attributes_of(headers)}
            span = self._telemetry.tracer.start_span(PROCESS_MESSAGE, context, SpanKind.CONSUMER, attributes, links)
            entered = attach(set_span_in_context(span, context))
        return _Attempt(span, {**self._tags, **self._type(headers)}), entered

    def _type(self, headers: Mapping[str, str | None]) -> dict[str, str]:
        name = next(iter(split_enclosed_types(headers.get(ENCLOSED_MESSAGE_TYPES))), "")
        if not name or len(name) > LONGEST_TYPE or (name not in self._types and len(self._types) >= MOST_TYPES):
            return {}
        self._types.add(name)
        return {MESSAGE_TYPE: name}

    def _succeed(self, attempt: _Attempt, discard: Discard | None, processing: float, critical: float | None) -> None:
        self._meters.handled(attempt.tags, processing, critical)
        if attempt.span is not None:
            if discard is not None:
                attempt.span.add_event("discarded", {"reason": discard.reason})
            succeed(attempt.span)
        self._end(attempt)

    def _fail(self, attempt: _Attempt, outcome: Outcome) -> None:
        if attempt.error is not None:
            self._meters.failed(attempt.tags, attempt.error)
            self._meters.treated(attempt.tags, outcome.kind, attempt.error)
        if attempt.span is not None:
            fail(
                attempt.span,
                attempt.error or outcome.error or f"{outcome.kind.value}: the message is handled again at once",
            )
        self._end(attempt)

    def _roll_back(self) -> None:
        lost, self._open = self._open, []
        for attempt, _ in lost:
            if attempt.span is not None:
                fail(attempt.span, _ROLLED_BACK)
            self._end(attempt)

    def _end(self, attempt: _Attempt) -> None:
        self._meters.fetched(attempt.tags)
        if attempt.span is not None:
            attempt.span.end(attempt.ended_ns)
