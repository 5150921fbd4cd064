"""Executes bulk operations in the background, each in a thread with a connection of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rowpost.dashboard.operator import log_operation
from rowpost.database.connection import Connection, connect
from rowpost.errors import RowpostError
from rowpost.operations.bulk import BulkOperation
from rowpost.settings.environment import Settings

__all__ = ["Runner", "TooManyOperations"]

MOST = 8
#: seconds for which the end of the process waits for open transactions
CLOSE_S = 20.0
_log = logging.getLogger("rowpost.dashboard.operations")


class TooManyOperations(RowpostError):
    """This process executes as many operations as it may."""


class Runner:
    """The operations that this process executes.

    Thread-safe. Whoever asks for pages later reads their state from the database.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        #: a place for each operation; None: it is being recorded
        self._running: dict[object, threading.Thread | None] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def start(self, make: Callable[[Connection], BulkOperation], user: str) -> int:
        """Begin an operation, or go on with one, and return its number at once.

        Args:
            make: records the operation on a connection, which the operation keeps.

        Raises:
            TooManyOperations: 8 operations are executed already, or the process ends.
            RowpostError: what `make` raises. Nothing goes on.
        """
        with self._lock:
            if len(self._running) >= MOST or self._closing.is_set():
                raise TooManyOperations(
                    f"This dashboard executes {len(self._running)} bulk operations. Wait until one has ended, or use "
                    "the command line."
                )
            place = object()
            self._running[place] = None
        try:
            database = connect(self._settings, application_name="rowpost dashboard operation")
            try:
                operation = make(database)
            except BaseException:
                database.close()
                raise
        except BaseException:
            self._leave(place)
            raise
        thread = threading.Thread(
            target=self._execute, args=(operation, database, user, place), name="rowpost operation", daemon=True
        )
        with self._lock:
            self._running[place] = thread
            thread.start()
        return operation.counts.number

    def close(self) -> None:
        """Stop all operations after their open transactions.

        They are on record as interrupted, and can be gone on with.
        """
        self._closing.set()
        with self._lock:
            threads = [thread for thread in self._running.values() if thread is not None]
        for thread in threads:
            thread.join(CLOSE_S)

    def _leave(self, place: object) -> None:
        with self._lock:
            del self._running[place]

    def _execute(self, operation: BulkOperation, database: Connection, user: str, place: object) -> None:
        level, state = logging.INFO, "failed"
        try:
            state = operation.run(stop=lambda: "interrupted" if self._closing.is_set() else None)
        except RowpostError as error:
            level, state = logging.WARNING, f"stopped: {error}"
        except Exception:  # noqa: BLE001 -- a bug is a traceback in the log, and the operation is listed as interrupted
            _log.exception("operation %s failed", operation.counts.number)
        finally:
            database.close()
            self._leave(place)
        counts = operation.counts
        became = {"done": counts.done, "gone": counts.gone, "refused": counts.refused}
        text = f"{state}: operation {counts.number}, {', '.join(f'{count} {name}' for name, count in became.items())}"
        log_operation(level, operation.name, user, {"number": counts.number, "outcome": state, **became}, text)
