"""What the command line of `rowpost run` selects of an environment: endpoints or queues, and where metrics are
served.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.near_names import meant
from rowpost.cli.session import Session
from rowpost.endpoint.hosting import with_endpoints
from rowpost.errors import SettingsError
from rowpost.settings.environment import Settings
from rowpost.settings.metrics import read_metrics_address

__all__ = ["selected_settings"]


def selected_settings(
    session: Session, endpoints: Collection[str], queues: Collection[str], metrics: str | None
) -> Settings:
    """Return the environment with only the selected workers.

    Args:
        session: the call of the program.
        endpoints: endpoints as `module:name`; empty for all workers of the environment.
        queues: run only the workers of these queues; empty for all.
        metrics: where metrics are served; None for what the environment says.

    Raises:
        Refused: both endpoints and queues, or no address for metrics.
        SettingsError: a named queue has no worker.
    """
    if endpoints and queues:
        raise Refused(
            "Name endpoints or --queue, not both: an endpoint always uses the queue of its name.", ExitCode.USAGE
        )
    settings = (
        with_endpoints(session.settings, endpoints)
        if endpoints
        else _with_queues(session, queues)
        if queues
        else session.settings
    )
    if metrics is None:
        return settings
    try:
        read_metrics_address(metrics)
    except SettingsError as error:
        raise Refused(f"--metrics: {error}", ExitCode.USAGE) from error
    return replace(settings, supervisor=replace(settings.supervisor, metrics=metrics))


def _with_queues(session: Session, queues: Collection[str]) -> Settings:
    settings = session.settings
    wanted = {session.name(name) for name in queues}
    for queue in settings.queues:  # workers receive from a queue's partitions, not from the queue itself
        if queue.partitions and queue.name in wanted:
            wanted = wanted - {queue.name} | set(queue.partitions)
    without = [name for name in sorted(wanted) if (found := settings.queue(name)) is None or found.worker is None]
    if without:
        worked = (each.name for each in settings.queues if each.worker is not None)
        if settings.queue(without[0]) is None and (question := meant(without[0], worked)):
            raise SettingsError(
                f"Cannot run the queue {without[0]!r}: the environment {settings.environment!r} does not declare it. "
                f"{question}"
            )
        raise SettingsError(
            f"Cannot run the queue {without[0]!r}: it has no worker in the environment {settings.environment!r}. "
            "Add `worker: {handler: module:function}` to the queue."
        )
    return replace(
        settings, queues=tuple(each if each.name in wanted else replace(each, worker=None) for each in settings.queues)
    )
