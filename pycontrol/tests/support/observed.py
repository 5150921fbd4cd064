"""Spans and meters in memory, for endpoints in this process."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id, format_trace_id

from rowpost.pipeline.telemetry.observer import Telemetry

__all__ = ["Observed", "parent_header"]


def parent_header(span) -> str:
    """The header traceparent that names a span."""
    return f"00-{format_trace_id(span.context.trace_id)}-{format_span_id(span.context.span_id)}-{span.context.trace_flags:02x}"


class Observed:
    """What was observed so far."""

    def __init__(self, *, traces=True, meters=True, sampler=None) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider(sampler=sampler)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._meters = MeterProvider(metric_readers=[self._reader])
        self.telemetry = Telemetry(self.tracers if traces else None, self._meters if meters else None)

    def spans(self, name=None):
        """The ended spans in the order of their starts; those of one name."""
        return sorted(
            (span for span in self._exporter.get_finished_spans() if name in (None, span.name)),
            key=lambda span: span.start_time,
        )

    def only(self, name):
        (span,) = self.spans(name)
        return span

    def points(self):
        """The points of each meter."""
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}

    def counts(self):
        """How much was counted, or how many times were measured, by the meter."""
        return {
            name: sum(getattr(each, "count", None) or each.value for each in points)
            for name, points in self.points().items()
        }

    def attributes(self, name):
        """The attributes of the only point of a meter."""
        (point,) = self.points()[name]
        return dict(point.attributes)
