"""A module of handlers that sets its own TracerProvider, as users do. The body of a message names the file for its spans."""

import json
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from tests.support.handlers import note


class FileExporter(SpanExporter):
    """Appends a line for each span."""

    path: Path | None = None

    def export(self, spans):
        for span in spans if self.path is not None else ():
            with self.path.open("a") as file:
                file.write(json.dumps({"name": span.name, "service": span.resource.attributes["service.name"]}) + "\n")
        return SpanExportResult.SUCCESS


EXPORTER = FileExporter()
#: exports when it is flushed, and not before
PROVIDER = TracerProvider(resource=None)
PROVIDER.add_span_processor(BatchSpanProcessor(EXPORTER, schedule_delay_millis=3_600_000))
trace.set_tracer_provider(PROVIDER)


def traced(message, connection):
    """Record the message within a span of its own."""
    EXPORTER.path = Path(message.body.decode())
    with trace.get_tracer("shop").start_as_current_span("own work"):
        note(message, connection)
