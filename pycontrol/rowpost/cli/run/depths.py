"""Count waiting messages once a second for the display.

The supervisor's own counts are not enough, because it does not peek while its workers receive.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from rowpost.database.connection import Connection, connect
from rowpost.errors import DatabaseUnavailable, RowpostError
from rowpost.settings.environment import Settings
from rowpost.transport.queue import Queue

__all__ = ["COUNT_LIMIT", "DepthWatch"]

#: a peek stops counting at this number of messages
COUNT_LIMIT = 10_000


class DepthWatch:
    """A thread with its own connection. `depths` maps queues to counts, or to None if the queue could not be peeked.

    with DepthWatch(settings, ["Sales"]) as watch:
        watch.depths    # {"Sales": 12}
    """

    def __init__(self, settings: Settings, queues: Iterable[str], every: float = 1.0) -> None:
        self._settings, self._every = settings, every
        self._depths: dict[str, int | None] = dict.fromkeys(queues)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rowpost depths", daemon=True)

    @property
    def depths(self) -> Mapping[str, int | None]:
        """The latest counts."""
        return dict(self._depths)

    def __enter__(self) -> DepthWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=2.0)

    def _watch(self) -> None:
        database: Connection | None = None
        while not self._stopped.is_set():
            try:
                database = database or connect(self._settings, application_name="rowpost display")
                self._peek_all(database)
            except RowpostError:
                self._depths = dict.fromkeys(self._depths)
                database = None
            self._stopped.wait(self._every)
        if database is not None:
            database.close()

    def _peek_all(self, database: Connection) -> None:
        for name in self._depths:
            try:
                self._depths[name] = Queue(name, database).peek(COUNT_LIMIT)
            except DatabaseUnavailable:
                raise
            except RowpostError:  # the login may not peek this queue, or the queue was dropped
                self._depths[name] = None
