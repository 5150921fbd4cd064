"""What the command line of `rowpost run` selects of an environment: endpoints or queues, and where metrics are served."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.near_names import meant
from rowpost.cli.session import Session
from rowpost.endpoint.hosting import with_endpoints
from rowpost.errors import SettingsError
from rowpost.settings.environment import Settings
from rowpost.settings.metrics import read_metrics_address

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection:
    """What the command line says.

    Attributes:
        endpoints: endpoints as `module:name`; empty for all workers of the environment.
        queues: run only the workers of these queues; empty for all.
        metrics: where metrics are served; None for what the environment says.
    """

    endpoints: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    metrics: str | None = None

    def settings(self, session: Session) -> Settings:
        """Return the environment with only the selected workers.

        Raises:
            Refused: both endpoints and queues, or no address for metrics.
            SettingsError: a named queue has no worker.
        """
        settings = self._workers(session)
        if self.metrics is None:
            return settings
        try:
            read_metrics_address(self.metrics)
        except SettingsError as error:
            raise Refused(f"--metrics: {error}", ExitCode.USAGE) from error
        return replace(settings, supervisor=replace(settings.supervisor, metrics=self.metrics))

    def _workers(self, session: Session) -> Settings:
        if not self.endpoints:
            return self._worked_queues(session)
        if self.queues:
            raise Refused("Name endpoints or --queue, not both: an endpoint always uses the queue of its name.", ExitCode.USAGE)
        return with_endpoints(session.settings, self.endpoints)

    def _worked_queues(self, session: Session) -> Settings:
        settings = session.settings
        if not self.queues:
            return settings
        wanted = {session.name(name) for name in self.queues}
        for queue in settings.queues:  # workers receive from a queue's partitions, not from the queue itself
            if queue.partitions and queue.name in wanted:
                wanted = wanted - {queue.name} | set(queue.partitions)
        without = [name for name in sorted(wanted) if (found := settings.queue(name)) is None or found.worker is None]
        if without:
            worked = (each.name for each in settings.queues if each.worker is not None)
            if settings.queue(without[0]) is None and (question := meant(without[0], worked)):
                raise SettingsError(f"Cannot run the queue {without[0]!r}: the environment {settings.environment!r} does not declare it. {question}")
            raise SettingsError(
                f"Cannot run the queue {without[0]!r}: it has no worker in the environment {settings.environment!r}. "
                "Add `worker: {handler: module:function}` to the queue."
            )
        queues = tuple(each if each.name in wanted else replace(each, worker=None) for each in settings.queues)
        return replace(settings, queues=queues)
