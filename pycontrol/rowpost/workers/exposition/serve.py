"""Start the server of the metrics if an environment says where.

This module does not need the package of Prometheus; the others do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rowpost.errors import SettingsError
from rowpost.settings.environment import Settings
from rowpost.settings.metrics import read_metrics_address
from rowpost.version import install_command
from rowpost.workers.events import Event, MetricsServed
from rowpost.workers.exposition.observations import Observations, Status

__all__ = ["serve"]


@contextmanager
def serve(
    settings: Settings, seen: Observations | None, read: Callable[[], Status], emit: Callable[[Event], None]
) -> Iterator[None]:
    """Serve the metrics of a supervisor until the block ends; nothing if its environment says no address.

    Args:
        settings: the environment.
        seen: what the supervisor observes; None if it serves no metrics.
        read: returns the supervisor's status. Called in threads of the server.
        emit: called with the event that names the address.

    Raises:
        SettingsError: the package of Prometheus is not installed, or the address cannot be listened on.
    """
    if seen is None or settings.supervisor.metrics is None:
        yield
        return
    try:
        from rowpost.workers.exposition.server import serving
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise SettingsError(
            "Metrics need prometheus-client, which is not installed. Run without --metrics and without "
            f"supervisor.metrics in the environment's file, or run: {install_command('metrics')}"
        ) from error
    with serving(read_metrics_address(settings.supervisor.metrics), read, seen) as address:
        emit(MetricsServed(queue="", at=time.time(), url=address.url))
        yield
