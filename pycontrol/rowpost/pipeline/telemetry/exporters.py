"""Make the providers of spans and meters that an environment asks for, and export what they made when the process ends.

    exporters = Exporters(settings.telemetry, "Sales")
    Telemetry(exporters.tracers, exporters.meters)
    exporters.close()                                   # exports what is left

Exports run in threads of OpenTelemetry. A collector that cannot be reached delays no message: spans that do not fit
into OpenTelemetry's queue are dropped. `OneWarning` turns OpenTelemetry's lines about each attempt into one line of
rowpost's log.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from opentelemetry import metrics, trace

from rowpost.errors import SettingsError
from rowpost.settings.telemetry import TelemetrySettings

__all__ = ["Exporters"]

logger = logging.getLogger("rowpost")

#: how long the end of a process waits for its last export, and how long if the collector did not answer before
FLUSH_SECONDS, FLUSH_UNREACHABLE_SECONDS = 2.0, 0.5
_DEFAULT_ENDPOINT = "http://localhost:4318"


class OneWarning(logging.Filter):
    """Logs once that exports fail, and once that they succeed again.

    As a filter, it takes the lines that OpenTelemetry logs itself.

    Args:
        what: what is exported, in words.
        where: the collector.
    """

    def __init__(self, what: str, where: str) -> None:
        super().__init__()
        self._what, self._where = what, where
        self._reason = "it refused them"
        self.failing = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the text of a line for the warning, and drop the line."""
        self._reason = record.getMessage()
        return False

    def ended(self, succeeded: bool) -> None:
        """Note the end of an export."""
        if succeeded and self.failing:
            logger.info("%s of this process are exported to %s again.", self._what, self._where)
        elif not succeeded and not self.failing:
            logger.warning(
                "%s of this process cannot be exported to %s: %s What is not exported is dropped; messages are "
                "handled as before. Start the collector, or correct telemetry.endpoint in the environment's file. "
                "This is logged once until an export succeeds.",
                self._what, self._where, self._reason if self._reason.endswith(".") else f"{self._reason}.",
            )  # fmt: skip
        self.failing = not succeeded


class _Once(logging.Filter):
    """Keeps the first line of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text, known = str(record.msg), str(record.msg) in self._seen
        self._seen.add(text)
        return not known


class Exporters:
    """The providers of one process.

    Args:
        settings: the environment's section.
        service: the name of the service, unless OpenTelemetry's variables name one.

    Attributes:
        tracers: makes spans; None for no spans.
        meters: makes meters; None for no meters.

    Raises:
        ModuleNotFoundError: a package of OpenTelemetry is not installed.
        SettingsError: a variable of OpenTelemetry has a value that it refuses.
    """

    def __init__(self, settings: TelemetrySettings, service: str) -> None:
        self._settings = settings
        self._endings: list[Callable[[], object]] = []
        self._warnings: list[OneWarning] = []
        self._filters: list[tuple[logging.Logger, logging.Filter]] = []
        try:
            self.tracers = self._make_tracers(service)
            self.meters = self._make_meters(service)
        except ValueError as error:
            self.close()
            raise SettingsError(
                f"OpenTelemetry cannot start: {error} Correct the variables OTEL_… of this process."
            ) from error

    def close(self) -> None:
        """Export what is left, for at most two seconds: nothing may hold a worker at its end.

        A collector that did not answer before gets half a second.
        """
        if self._endings:
            thread = threading.Thread(target=self._end, name="rowpost telemetry", daemon=True)
            thread.start()
            thread.join(FLUSH_UNREACHABLE_SECONDS if any(each.failing for each in self._warnings) else FLUSH_SECONDS)
            for warning in self._warnings if thread.is_alive() else ():
                warning.ended(False)
        self._endings = []
        for log, each in self._filters:
            log.removeFilter(each)
        self._filters = []

    def _end(self) -> None:
        for end in self._endings:
            try:
                end()
            except Exception as error:  # noqa: BLE001 -- a program's own provider may raise anything; the next one ends all the same
                logger.warning("OpenTelemetry could not export the last spans or meters of this process: %s", error)

    # -------------------------------------------------------------- spans
    def _make_tracers(self, service: str) -> trace.TracerProvider | None:
        if self._settings.traces is None:
            return None
        if self._settings.traces == "api":
            tracers: trace.TracerProvider = self._own(trace.get_tracer_provider(), "traces", "TracerProvider")
            return tracers
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor

        provider = TracerProvider(resource=_resource(service))
        if self._settings.traces == "console":
            exporter = ConsoleSpanExporter(out=sys.stdout, formatter=lambda span: f"{span.to_json(indent=None)}\n")
            provider.add_span_processor(SimpleSpanProcessor(exporter))
        else:
            provider.add_span_processor(BatchSpanProcessor(self._span_exporter()))
        self._endings.append(provider.shutdown)
        return provider

    def _span_exporter(self) -> Any:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.trace.export import SpanExportResult

        warning = self._warn_once("Spans", OTLPSpanExporter.__module__)

        class Exporter(OTLPSpanExporter):
            def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                result = super().export(spans)
                warning.ended(result is SpanExportResult.SUCCESS)
                return result

        return Exporter(endpoint=self._address("traces"))

    # -------------------------------------------------------------- meters
    def _make_meters(self, service: str) -> metrics.MeterProvider | None:
        if self._settings.meters is None:
            return None
        if self._settings.meters == "api":
            meters: metrics.MeterProvider = self._own(metrics.get_meter_provider(), "meters", "MeterProvider")
            return meters
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

        console = self._settings.meters == "console"
        exporter = (
            ConsoleMetricExporter(out=sys.stdout, formatter=lambda data: f"{data.to_json(indent=None)}\n")
            if console
            else self._metric_exporter()
        )
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=self._settings.interval * 1000)
        provider = MeterProvider([reader], resource=_resource(service))
        self._endings.append(provider.shutdown)
        return provider

    def _metric_exporter(self) -> Any:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import MetricExportResult

        warning = self._warn_once("Meters", OTLPMetricExporter.__module__)

        class Exporter(OTLPMetricExporter):
            def export(self, *arguments: Any, **options: Any) -> MetricExportResult:
                result = super().export(*arguments, **options)
                warning.ended(result is MetricExportResult.SUCCESS)
                return result

        return Exporter(endpoint=self._address("metrics"))

    # -------------------------------------------------------------- both
    def _own(self, provider: Any, key: str, name: str) -> Any:
        """Return the provider that the program has set.

        The process only flushes it, because the program may use it further.
        """
        if type(provider).__name__.lstrip("_") == f"Proxy{name}":  # stands in until a program sets one
            logger.warning(
                "telemetry.%s is api, and no %s is set, so that nothing is exported. Set one in the module of the "
                "handlers, or write %s: otlp.",
                key, name, key,
            )  # fmt: skip
        elif hasattr(provider, "force_flush"):
            self._endings.append(provider.force_flush)
        return provider

    def _address(self, signal: str) -> str | None:
        """Return the URL of a signal; None leaves it to OpenTelemetry's variables."""
        endpoint = self._settings.endpoint
        return None if endpoint is None else f"{endpoint.rstrip('/')}/v1/{signal}"

    def _warn_once(self, what: str, module: str) -> OneWarning:
        where = self._settings.endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or _DEFAULT_ENDPOINT
        warning = OneWarning(what, _without_user(where))
        self._warnings.append(warning)
        self._take_lines(module, warning)
        self._take_lines("opentelemetry.sdk._shared_internal", _Once())  # says that its queue is full, again and again
        return warning

    def _take_lines(self, name: str, taker: logging.Filter) -> None:
        log = logging.getLogger(name)
        log.addFilter(taker)
        self._filters.append((log, taker))


def _without_user(url: str) -> str:
    """Return a URL without the user and the password that a variable may hold."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _resource(service: str) -> Any:
    """Return what says where spans and meters come from: each process is an instance of its service."""
    from opentelemetry.sdk.resources import Resource

    named = str(Resource.create().attributes.get("service.name") or "")
    own = {"service.name": service} if named.startswith("unknown_service") or not named else {}
    return Resource.create(
        {**own, "service.instance.id": str(uuid4()), "host.name": socket.gethostname(), "process.pid": os.getpid()}
    )
