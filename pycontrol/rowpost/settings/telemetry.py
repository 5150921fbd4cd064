"""The section `telemetry` of an environment: where spans and meters of OpenTelemetry go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from rowpost.settings.yaml_node import LONGEST_S, Node, decode

__all__ = ["TelemetrySettings", "read_telemetry"]

Destination = Literal["otlp", "console", "api"]


@dataclass(frozen=True)
class TelemetrySettings:
    """What is observed, and where it goes:

    `otlp` to a collector, `console` to standard output, `api` to what the program has set.

    Attributes:
        traces: where spans go; None makes none.
        meters: where meters go; None makes none.
        endpoint: the collector's URL for OTLP over HTTP, without the path of a signal. None uses OpenTelemetry's own
            variables, such as OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318.
        interval: seconds between two exports of meters.
    """

    traces: Destination | None = None
    meters: Destination | None = None
    endpoint: str | None = None
    interval: Annotated[float, Meta(ge=0.1, le=LONGEST_S)] = 60.0


def read_telemetry(node: Node | None) -> TelemetrySettings | None:
    """Read the section; None if there is none. Raises SettingsError."""
    if node is None:
        return None
    settings = decode(node, TelemetrySettings)
    if settings.traces is None and settings.meters is None:
        raise node.error("", "observes nothing: write traces: otlp, meters: otlp, or both")
    if settings.endpoint is not None:
        _check_endpoint(node, settings)
    return settings


def _check_endpoint(node: Node, settings: TelemetrySettings) -> None:
    if "otlp" not in (settings.traces, settings.meters):
        raise node.error("endpoint", "nothing goes there: write traces: otlp or meters: otlp, or remove it")
    try:
        url = urlsplit(settings.endpoint or "")
        usable = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise node.error("endpoint", "must be the URL of a collector, such as http://localhost:4318")
    if url.username is not None or url.password is not None:
        raise node.error(
            "endpoint", "must name no user and no password: put them into the variable OTEL_EXPORTER_OTLP_HEADERS"
        )
