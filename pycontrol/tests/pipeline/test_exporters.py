"""What becomes of spans and meters that cannot be exported, and of what is left when a process ends."""

import json
import logging
import sys

import pytest
from opentelemetry import metrics, trace

from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.telemetry import start_telemetry
from rowpost.errors import SettingsError
from rowpost.pipeline.telemetry import exporters
from rowpost.pipeline.telemetry.exporters import Exporters
from rowpost.settings.environment import Settings
from rowpost.settings.telemetry import TelemetrySettings
from tests.support.collector import Collector
from tests.support.workers import eventually


@pytest.fixture(autouse=True)
def quick(monkeypatch, caplog):
    """Exports follow each other soon, and fail soon."""
    caplog.set_level(logging.INFO)
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")


def span(each):
    each.tracers.get_tracer("test").start_span("made").end()


def told(caplog, text):
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def test_a_collector_that_fails_is_told_once_and_again_when_it_is_back(caplog):
    with Collector(status=400) as collector:
        each = Exporters(TelemetrySettings(traces="otlp", endpoint=f"{collector.url}/"), "Sales")
        for number in range(3):
            span(each)
            eventually(lambda n=number: len(collector.requests) > n, "it is exported")
        collector.status = 200
        span(each)
        eventually(lambda: told(caplog, "again"), "it is told")
        each.close()

    (warning,) = told(caplog, "cannot be exported")
    assert collector.url in warning
    assert "400" in warning
    assert len(told(caplog, f"Spans of this process are exported to {collector.url}/ again.")) == 1
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []
    assert {path for path, _ in collector.requests} == {"/v1/traces"}


def test_the_end_of_a_process_exports_what_is_left(monkeypatch):
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    with Collector() as collector:
        each = Exporters(
            TelemetrySettings(traces="otlp", meters="otlp", endpoint=collector.url, interval=3600), "Sales"
        )
        span(each)
        each.meters.get_meter("test").create_counter("made").add(1)
        each.close()

    ((resource, found),) = collector.spans()
    assert (found.name, resource["service.name"], collector.meters()) == ("made", "Sales", {"Sales": {"made"}})
    assert {"service.instance.id", "host.name", "process.pid"} <= resource.keys()


def test_the_end_of_a_process_does_not_wait_for_a_collector_that_never_answers(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    monkeypatch.setattr(exporters, "FLUSH_SECONDS", 0.1)
    with Collector(holding=True) as collector:
        each = Exporters(TelemetrySettings(traces="otlp", endpoint=collector.url), "Sales")
        span(each)
        eventually(collector.arrived.is_set, "the export has begun")
        each.close()
        assert collector.requests == []

    assert len(told(caplog, "cannot be exported")) == 1


def test_opentelemetry_s_variables_name_the_service_and_the_collector(monkeypatch):
    with Collector() as collector:
        monkeypatch.setenv("OTEL_SERVICE_NAME", "Shop")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        each = Exporters(TelemetrySettings(traces="otlp"), "Sales")
        span(each)
        each.close()

    assert [resource["service.name"] for resource, _ in collector.spans()] == ["Shop"]


def test_a_password_in_a_variable_is_not_logged(monkeypatch, caplog):
    with Collector(status=400) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.replace("//", "//app:hunter2@"))
        each = Exporters(TelemetrySettings(traces="otlp"), "Sales")
        span(each)
        eventually(lambda: told(caplog, "cannot be exported"), "it is told")
        each.close()

    assert collector.url in told(caplog, "cannot be exported")[0]
    assert "hunter2" not in caplog.text


def test_a_variable_that_opentelemetry_refuses_is_a_mistake_of_settings(monkeypatch):
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "-1")

    with pytest.raises(SettingsError, match="OTEL_"):
        Exporters(TelemetrySettings(traces="otlp"), "Sales")


def test_api_without_a_provider_is_told(monkeypatch, caplog):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", None)

    each = Exporters(TelemetrySettings(traces="api", meters="api"), "Sales")
    span(each)
    each.close()

    assert [len(told(caplog, f"telemetry.{key} is api")) for key in ("traces", "meters")] == [1, 1]


def test_a_provider_of_the_program_that_cannot_be_flushed_is_told(monkeypatch, caplog):
    class Broken(trace.NoOpTracerProvider):
        def force_flush(self):
            raise RuntimeError("disk full")

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", Broken())

    Exporters(TelemetrySettings(traces="api"), "Sales").close()

    assert len(told(caplog, "disk full")) == 1


# ------------------------------------------------------------------------------------------------ programs
def test_a_program_prints_spans_and_meters(database, sql, capsys):
    sql.empty("Billing")
    web = Endpoint("Web", send_only=True)
    with (
        start_telemetry(Settings(telemetry=TelemetrySettings(traces="console", meters="console")), web),
        web.open(database) as bus,
    ):
        bus.send(b"", to="Billing", headers={"NServiceBus.EnclosedMessageTypes": "Shop.Go"})

    (line, *_) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["name"] == "send message"
    assert json.loads(line)["resource"]["attributes"]["service.name"] == "Web"
    assert web.tracing is None


def test_without_the_section_nothing_is_observed():
    web = Endpoint("Web", send_only=True)

    with start_telemetry(Settings(), web) as running:
        assert (web.tracing, running.pipeline("Web")) == (None, None)


def test_a_missing_package_names_the_command_that_installs_it(monkeypatch):
    for name in [each for each in sys.modules if each.startswith(("rowpost.pipeline.telemetry", "opentelemetry"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(SettingsError, match=r"section telemetry.*opentelemetry, which is not installed.*\[telemetry\]"):
        start_telemetry(Settings(telemetry=TelemetrySettings(traces="otlp")))
