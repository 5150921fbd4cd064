"""Call the functions that endpoints have for critical errors (`@endpoint.at_critical_error`).

Each critical event is told to the endpoint of its queue, in a thread of its own, so that a function that hangs or fails
delays no queue. An event of no queue is told to all endpoints.
"""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue

from rowpost.endpoint.hosting import endpoints_of
from rowpost.handling.handlers import name_of
from rowpost.settings.environment import Settings
from rowpost.workers.events import Critical, Emit, Event

__all__ = ["CriticalErrors"]

logger = logging.getLogger("rowpost")

#: how long the end of a supervisor waits for functions that still run
PATIENCE_S = 10.0


class CriticalErrors:
    """Tells the endpoints of an environment about critical events.

    Args:
        settings: the environment.
        emit: gets each event first.
    """

    def __init__(self, settings: Settings, emit: Emit) -> None:
        self._settings, self._emit = settings, emit
        self._events: SimpleQueue[Critical | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        """Emit an event, and tell the endpoints about it if it is critical."""
        self._emit(event)
        if isinstance(event, Critical):
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rowpost critical errors", daemon=True)
                self._thread.start()
            self._events.put(event)

    def use(self, settings: Settings) -> None:
        """Tell the endpoints of other settings from now on."""
        self._settings = settings

    def close(self) -> None:
        """Wait until the endpoints have been told about all events, for at most ten seconds."""
        if self._thread is not None:
            self._events.put(None)
            self._thread.join(PATIENCE_S)
            self._thread = None

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._tell(event)
            except Exception:
                logger.exception("The endpoints of %s could not be told about: %s", event.queue or "all queues", event)

    def _tell(self, event: Critical) -> None:
        named = [event.queue, *event.queue.split(", ")]
        for queue, endpoint in endpoints_of(self._settings, lambda *_: None):
            if event.queue and queue.name not in named:
                continue
            for function in endpoint.surroundings.hooks.at_critical_error:
                try:
                    function(queue.name, event.error)
                except Exception:
                    logger.exception("%s at a critical error of %s failed", name_of(function), endpoint.name)
