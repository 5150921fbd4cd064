"""Translate between the headers of a message and the context of a trace, and end spans.

All functions are free of state.

The rules are those of NServiceBus's ActivityFactory and ContextPropagation: a message continues the trace that its
header `traceparent` names. If its header StartNewTrace is True, it starts a trace with a link to that one. Baggage is
escaped as .NET's `Uri.EscapeDataString` does it, and not as OpenTelemetry's own propagator, which writes a blank as
`+`.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from urllib.parse import quote, unquote

from opentelemetry import baggage
from opentelemetry.context import Context, get_current
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    Span,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rowpost.recoverability.policy import cut_stack, error_text, error_type
from rowpost.wire.headers import BAGGAGE, START_NEW_TRACE, TRACE_PARENT, TRACE_STATE
from rowpost.wire.telemetry import HEADER_ATTRIBUTES

__all__ = ["attributes_of", "fail", "incoming", "succeed", "write"]

Headers = Mapping[str, str | None]

#: the most characters of an attribute; any sender may write a header of any length
LONGEST_ATTRIBUTE = 4096
_W3C = TraceContextTextMapPropagator()


def incoming(headers: Headers) -> tuple[Context, tuple[Link, ...]]:
    """Return the context in which the span of a received message starts, and its links."""
    context = _with_baggage(headers.get(BAGGAGE), get_current())
    carrier = {name: value for name in (TRACE_PARENT, TRACE_STATE) if isinstance(value := headers.get(name), str)}
    sent = get_current_span(_W3C.extract(carrier, Context())).get_span_context()
    if not sent.is_valid:
        return context, ()
    if headers.get(START_NEW_TRACE) == "True":
        return set_span_in_context(INVALID_SPAN, context), (Link(sent),)
    return set_span_in_context(NonRecordingSpan(sent), context), ()


def write(span: Span, headers: dict[str, str | None]) -> None:
    """Name a span in the headers of a message. Without a span, the headers stay as they are."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span))
    if not carrier:
        return
    headers.update(carrier)
    entries = baggage.get_all()
    if entries:
        headers[BAGGAGE] = ",".join(f"{name}={quote(str(value), safe='')}" for name, value in entries.items())


def _with_baggage(text: str | None, context: Context) -> Context:
    for item in text.split(",") if isinstance(text, str) else ():
        name, is_pair, value = item.partition("=")
        if is_pair and name.strip():
            context = baggage.set_baggage(name.strip(), unquote(value), context)
    return context


def attributes_of(headers: Headers) -> dict[str, str]:
    """Return the attributes that the headers of a message become."""
    return {
        attribute: value[:LONGEST_ATTRIBUTE]
        for header, attribute in HEADER_ATTRIBUTES.items()
        if isinstance(value := headers.get(header), str)
    }


def succeed(span: Span) -> None:
    """Set the status of a span."""
    span.set_status(Status(StatusCode.OK))


def fail(span: Span, error: BaseException | str) -> None:
    """Set the status of a span, and record the exception if there is one.

    A text that its class cannot make is replaced.
    """
    if isinstance(error, str):
        span.set_status(Status(StatusCode.ERROR, error))
        return
    text = error_text(error)
    span.set_status(Status(StatusCode.ERROR, text))
    if span.is_recording():
        stack = cut_stack("".join(traceback.format_exception(error)))
        facts: dict[str, str | bool] = {
            "type": error_type(error),
            "message": text,
            "stacktrace": stack,
            "escaped": True,
        }
        span.add_event("exception", {f"exception.{name}": value for name, value in facts.items()})
