"""Import the handlers of changed settings in processes of their own, before the workers that run are replaced.

    rehearsal = Rehearsal(settings, assignments, spawn_worker)
    wait(rehearsal.waitables)
    rehearsal.proceed()               # until it is True; then `error` says why the settings cannot be used, if they cannot

A supervisor imports no handlers itself: it would have the old module, and a handler that does not return would stop it.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rowpost.settings.environment import Settings
from rowpost.workers.protocol import Assignment, HandlerRefused, Ready

__all__ = ["Rehearsal"]


class Rehearsal:
    """The processes that import handlers, one for each queue.

    Args:
        settings: those that are to be used.
        assignments: with `imports_only`.
        spawn: starts a process for an assignment.

    Raises:
        OSError: the system refuses to start a process.
    """

    def __init__(
        self, settings: Settings, assignments: Iterable[Assignment], spawn: Callable[[Assignment], Any]
    ) -> None:
        self.settings = settings
        #: why the settings cannot be used, None while no reason is known
        self.error: str | None = None
        self._processes: dict[str, Any] = {}
        self._ready: set[str] = set()
        try:
            for assignment in assignments:
                self._processes[assignment.queue] = spawn(assignment)
        except OSError:
            self.end()
            raise

    @property
    def waitables(self) -> list[Any]:
        """The objects to wait for with `multiprocessing.connection.wait`."""
        return [each for process in self._processes.values() for each in process.waitables]

    def proceed(self) -> bool:
        """Read what the processes have reported. Return whether all handlers are imported, or one cannot be."""
        for queue, process in list(self._processes.items()):
            exitcode = process.exitcode  # before the reports, so that none of an ended process is left unread
            for report in process.reports():
                if isinstance(report, HandlerRefused):
                    self.error = self.error or report.error
                elif isinstance(report, Ready):
                    self._ready.add(queue)
            if exitcode is not None:
                if queue not in self._ready:
                    self.error = (
                        self.error or f"the process that imports the handler of {queue} ended with exit code {exitcode}"
                    )
                process.close()
                del self._processes[queue]
        return self.error is not None or not self._processes

    def end(self) -> None:
        """Kill the processes that still run."""
        for process in self._processes.values():
            process.kill()
            process.close()
        self._processes.clear()
