"""The handlers of the suite, in a worker process whose spans stay in its memory. Worker processes import this module."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.handlers.worked import insert, nothing
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

__all__ = ["insert", "nothing"]

KEPT = 10_000


class _Bounded(InMemorySpanExporter):
    """Forgets its spans when there are too many."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if len(self._finished_spans) >= KEPT:
            self.clear()
        return super().export(spans)


_provider = TracerProvider()
_provider.add_span_processor(SimpleSpanProcessor(_Bounded()))
trace.set_tracer_provider(_provider)
