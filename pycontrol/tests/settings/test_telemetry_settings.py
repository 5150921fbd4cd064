"""The section `telemetry` of an environment's file."""

import pytest

from rowpost.errors import SettingsError
from rowpost.settings.environment import load_settings
from rowpost.settings.telemetry import TelemetrySettings


@pytest.fixture
def read(tmp_path):
    def load(section):
        path = tmp_path / "shop.yml"
        path.write_text(f"engine: embedded\n{section}\n", encoding="utf-8")
        return load_settings(path).telemetry

    return load


def test_it_is_off_by_default(read):
    assert read("queues: {}") is None


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("telemetry: {traces: otlp}", TelemetrySettings(traces="otlp")),
        ("telemetry: {meters: console, interval: 5}", TelemetrySettings(meters="console", interval=5.0)),
        (
            "telemetry: {traces: api, meters: otlp, endpoint: 'https://collector:4318'}",
            TelemetrySettings("api", "otlp", "https://collector:4318"),
        ),
    ],
)
def test_it_says_what_goes_where(read, section, expected):
    assert read(section) == expected


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("telemetry: {}", "telemetry: observes nothing: write traces: otlp"),
        ("telemetry: {interval: 5}", "telemetry: observes nothing"),
        ("telemetry: {traces: jaeger}", "telemetry.traces: 'jaeger' is not one of otlp, console, api"),
        ("telemetry: {trace: otlp}", "telemetry.trace: unknown key: did you mean traces?"),
        ("telemetry: {traces: console, endpoint: 'http://x'}", "telemetry.endpoint: nothing goes there"),
        ("telemetry: {traces: otlp, endpoint: 'collector:4318'}", "telemetry.endpoint: must be the URL of a collector"),
        ("telemetry: {traces: otlp, endpoint: 'http://x:99999'}", "telemetry.endpoint: must be the URL of a collector"),
        (
            "telemetry: {traces: otlp, endpoint: 'http://app:hunter2@x'}",
            "telemetry.endpoint: must name no user and no password",
        ),
        ("telemetry: {meters: otlp, interval: 0}", "telemetry.interval: 0 s is too short: write 0.1 or more"),
    ],
)
def test_a_mistake_is_told_with_key_and_remedy(read, section, expected):
    with pytest.raises(SettingsError) as caught:
        read(section)

    assert expected in str(caught.value)
    assert "hunter2" not in str(caught.value)
