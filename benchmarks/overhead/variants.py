"""What is switched on for one side of a pair; the other side has nothing of it.

metrics     `rowpost run --metrics`: histograms by message type in the workers, and in `served` a scrape each second
console     spans to standard output, which is /dev/null
memory      spans to an exporter that keeps them in the worker's memory, and forgets them when there are 10,000
otlp        spans and meters over OTLP to a collector on this machine, which reads and forgets them
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rowpost.settings.environment import Settings
from rowpost.settings.telemetry import TelemetrySettings

__all__ = ["OFF", "VARIANTS", "Variant"]

OFF = "off"
#: of the collector; OpenTelemetry's own is 60
METER_INTERVAL_S = 5.0


@dataclass(frozen=True)
class Variant:
    """What is switched on.

    Attributes:
        workloads: those that are measured.
        handlers: the module of the handlers; empty for the suite's own.
        silent: whether standard error, where workers print, goes to /dev/null.
    """

    workloads: tuple[str, ...] = ("endpoint",)
    handlers: str = ""
    silent: bool = False

    def applied(self, name: str, settings: Settings, collector: str) -> Settings:
        """Return the settings of workers with this variant on."""
        match name:
            case "metrics":
                return replace(settings, supervisor=replace(settings.supervisor, metrics=0))
            case "console":
                return replace(settings, telemetry=TelemetrySettings(traces="console"))
            case "memory":
                return replace(settings, telemetry=TelemetrySettings(traces="api"))
            case "otlp":
                return replace(settings, telemetry=TelemetrySettings("otlp", "otlp", collector, METER_INTERVAL_S))
        return settings


VARIANTS = {
    OFF: Variant(),
    "metrics": Variant(workloads=("endpoint", "served")),
    "console": Variant(silent=True),
    "memory": Variant(handlers="benchmarks.handlers.observed"),
    "otlp": Variant(),
}
