"""A collector of OpenTelemetry: OTLP over HTTP, in a thread of the tests."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Collector"]


def _attributes(found) -> dict:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in found}


class Collector:
    """Keeps what it got, until the block ends.

    Args:
        status: the HTTP status of its answers; one that is not retried.
        holding: requests wait for `release`.
    """

    def __init__(self, *, status: int = 200, holding: bool = False) -> None:
        self.status, self.requests = status, []
        self.release, self.arrived = threading.Event(), threading.Event()
        if not holding:
            self.release.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                content = self.rfile.read(int(self.headers["Content-Length"]))
                collector.arrived.set()
                collector.release.wait(60)
                collector.requests.append((self.path, content))
                self.send_response(collector.status)
                self.end_headers()

            def log_message(self, *_): ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> "Collector":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self):
        """(attributes of the resource, span) of each span."""
        found = [
            ExportTraceServiceRequest.FromString(content)
            for path, content in tuple(self.requests)
            if path == "/v1/traces"
        ]
        resources = [resource for request in found for resource in request.resource_spans]
        return [
            (_attributes(each.resource.attributes), span)
            for each in resources
            for scope in each.scope_spans
            for span in scope.spans
        ]

    def meters(self):
        """The names of the meters that came, by service."""
        found = [
            ExportMetricsServiceRequest.FromString(content)
            for path, content in tuple(self.requests)
            if path == "/v1/metrics"
        ]
        named: dict[str, set[str]] = {}
        for request in found:
            for each in request.resource_metrics:
                names = named.setdefault(_attributes(each.resource.attributes)["service.name"], set())
                names.update(metric.name for scope in each.scope_metrics for metric in scope.metrics)
        return named
