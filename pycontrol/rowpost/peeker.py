"""The supervisor's one connection: peeks and purges, in a thread of its own.

A database that hangs must not keep the supervisor from hearing its workers and its signals.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rowpost.database import Database, connect
from rowpost.errors import DatabaseUnavailable, RowpostError
from rowpost.queue import Queue
from rowpost.settings import Settings

__all__ = ["Answer", "Peeker"]

# Where a peek stops counting: far above any number of workers, and cheap.
PEEK_COUNT = 1000


@dataclass(frozen=True, slots=True)
class Answer:
    """`count` messages wait (or, `purged`, were removed) in the queue; `error` says why nobody knows."""

    queue: str
    count: int = 0
    purged: bool = False
    error: RowpostError | None = None


class Peeker:
    """Answers one question after the other; `tell` is called with each Answer, in the peeker's thread."""

    def __init__(
        self,
        settings: Settings,
        tell: Callable[[Answer], None],
        *,
        connect: Callable[..., Database] = connect,
    ) -> None:
        self._settings = settings
        self._tell = tell
        self._connect = connect
        self._database: Database | None = None
        self._questions: queue.SimpleQueue[tuple[str, bool] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="rowpost peeker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, name: str, *, purge: bool = False) -> None:
        """How many wait in that queue? Or, `purge`: empty it."""
        self._questions.put((name, purge))

    def stop(self) -> None:
        """End after the question in hand; a hanging database is not waited for."""
        self._questions.put(None)
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            self._tell(self._answer(*question))
        self._disconnect()

    def _answer(self, name: str, purge: bool) -> Answer:
        try:
            if self._database is None:
                self._database = self._connect(self._settings, application_name="rowpost supervisor")
            here = Queue(name, self._database)
            return Answer(name, here.purge() if purge else here.peek(PEEK_COUNT), purge)
        except RowpostError as error:
            if isinstance(error, DatabaseUnavailable) or (self._database is not None and self._database.closed):
                self._disconnect()
            return Answer(name, purged=purge, error=error)

    def _disconnect(self) -> None:
        if self._database is not None:
            with suppress(RowpostError):
                self._database.close()
            self._database = None
