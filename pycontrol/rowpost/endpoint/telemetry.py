"""Observe endpoints as an environment says: spans and meters of OpenTelemetry.

    with start_telemetry(load_settings(), sales):
        with sales.open(connection) as bus:
            bus.send(PlaceOrder(42))

Workers do this themselves. A program that sends does it once, when it starts. Without the section `telemetry` in the
environment, nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import SettingsError
from rowpost.pipeline.observer import Observer
from rowpost.settings.environment import Settings
from rowpost.version import install_command

if TYPE_CHECKING:
    from rowpost.pipeline.telemetry.exporters import Exporters
    from rowpost.pipeline.telemetry.observer import Telemetry

__all__ = ["RunningTelemetry", "start_telemetry"]


class RunningTelemetry:
    """What observes this process, until `close`. It does nothing if the environment has no section `telemetry`."""

    def __init__(
        self, endpoints: tuple[Endpoint, ...], telemetry: Telemetry | None, exporters: Exporters | None
    ) -> None:
        self._endpoints, self._telemetry, self._exporters = endpoints, telemetry, exporters
        for endpoint in endpoints if telemetry is not None else ():
            endpoint.observe(telemetry)

    def __enter__(self) -> RunningTelemetry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pipeline(self, queue: str, discriminator: str = "") -> Observer | None:
        """Return the observer of a pipeline, or None. See `EndpointObserver.pipeline`."""
        return None if self._telemetry is None else self._telemetry.pipeline(queue, discriminator)

    def close(self) -> None:
        """Observe the endpoints no longer, and export what is left, for at most two seconds."""
        if self._telemetry is None or self._exporters is None:
            return
        for endpoint in self._endpoints:
            endpoint.observe(None)
        self._telemetry = None
        self._exporters.close()


def start_telemetry(settings: Settings, *endpoints: Endpoint, service: str | None = None) -> RunningTelemetry:
    """Observe endpoints as an environment says.

    Args:
        settings: the environment.
        endpoints: whose sends and handlers are observed.
        service: the name under which backends show this process; None for the first endpoint's. OpenTelemetry's
            variables come first.

    Raises:
        SettingsError: a package of OpenTelemetry is not installed, or refuses its variables.
    """
    if settings.telemetry is None:
        return RunningTelemetry(endpoints, None, None)
    try:
        from rowpost.pipeline.telemetry.exporters import Exporters
        from rowpost.pipeline.telemetry.observer import Telemetry

        exporters = Exporters(settings.telemetry, service or (endpoints[0].name if endpoints else "rowpost"))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("opentelemetry", "google", "requests"):
            raise
        raise SettingsError(
            f"The section telemetry of the environment {settings.environment!r} needs {error.name}, which is not "
            f"installed. Remove the section, or run: {install_command('telemetry')}"
        ) from error
    return RunningTelemetry(endpoints, Telemetry(exporters.tracers, exporters.meters), exporters)
