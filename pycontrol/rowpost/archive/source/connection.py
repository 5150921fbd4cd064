"""The database connections of an archiver, and of Spark's planner and worker processes, which outlive restarts and
failovers of the server.

    connection = PatientConnection(options)
    state = connection.run(lambda database: describe(database, options.queue))

The first attempt after a lost connection follows at once: a connection is also lost if the server is well. Nothing is
written to stderr unless that attempt fails too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from math import isinf
from typing import TypeVar

from rowpost.archive.source.options import ReadOptions
from rowpost.database import embedded
from rowpost.database.connection import Connection, connect, connect_url
from rowpost.errors import DatabaseUnavailable, QueueNotFound, RowpostError
from rowpost.settings.environment import load_settings

__all__ = ["PatientConnection", "Say", "naming_what_is_gone", "open_database", "say"]

FIRST_DELAY_S, LONGEST_DELAY_S = 0.1, 30.0
Result = TypeVar("Result")
Say = Callable[[str], object]


def open_database(environment: str | None, application: str) -> Connection:
    """Connect to the database of an environment, which each process loads by its name, so that no URL passes through
    Spark.

    A running embedded server is used as it is: a server that this process starts would stop with it.
    """
    settings = load_settings(environment)
    if settings.embedded and (url := embedded.running(settings.data_folder)) is not None:
        return connect_url(settings.engine, url, application)
    return connect(settings, application)


@contextmanager
def naming_what_is_gone(database: Connection, queue: str | None) -> Iterator[None]:
    """Raise QueueNotFound with a text of its own if the block raises it, and the database does not have the queue.

    The block contains the transactions in which it calls, so that the queues can be listed after an error.
    """
    try:
        yield
    except QueueNotFound as error:
        known = {queue}
        with suppress(RowpostError):  # if the queues cannot be listed, the first error is the better one
            known = {row.queue_name for row in database.call("list_queues")}
        if queue is None or queue in known:
            raise
        raise QueueNotFound(
            f"No queue named {queue!r} is in this database: it was dropped or removed, or its name is misspelt. "
            "`rowpost queue list` shows the queues. What a stream of a removed queue has read is kept. If the queue "
            "is created again, a stream does not continue by itself, and says how to start."
        ) from error


def say(text: str) -> None:
    """Write a line to stderr, which Spark passes on from its Python processes."""
    sys.stderr.write(f"rowpost: {text}\n")
    sys.stderr.flush()


class PatientConnection:
    """A connection that is opened when it is needed, and again after it was lost. Not for several threads at once."""

    def __init__(
        self,
        options: ReadOptions,
        say: Say = say,
        sleep: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options, self._say, self._sleep, self._monotonic = options, say, sleep, monotonic
        self._connection: Connection | None = None
        self._began: float | None = None  # the outage, if there is one now
        self._said = False
        self._delay_s = FIRST_DELAY_S

    def run(self, action: Callable[[Connection], Result]) -> Result:
        """Run an action that may be repeated as a whole.

        Raises DatabaseUnavailable if the server was away for longer than connectRetrySeconds.
        """
        while True:
            try:
                result = action(self.open())
            except DatabaseUnavailable as error:
                self.failed(error)
            else:
                self.succeeded()
                return result

    def open(self) -> Connection:
        """Return the connection, or a new one if there is none. Raises DatabaseUnavailable at once."""
        if self._connection is None or self._connection.closed:
            self._connection = open_database(self._options.environment, self._options.application)
        return self._connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def failed(self, error: DatabaseUnavailable) -> None:
        """Drop the connection after an error, and wait before the next attempt.

        Raises DatabaseUnavailable after the limit.
        """
        self.close()
        if self._began is None:
            self._began, self._said, self._delay_s = self._monotonic(), False, FIRST_DELAY_S
            return
        queue, limit_s = self._options.queue, self._options.connect_retry_s
        left = limit_s - (self._monotonic() - self._began)
        if left <= 0:
            raise DatabaseUnavailable(
                f"{str(error).rstrip('.')}. This stream waited {limit_s:g} seconds for the server of the queue "
                f"{queue!r}. Start it again when the server runs; it continues where it has ended. The option "
                "connectRetrySeconds sets the time."
            ) from error
        if not self._said:
            self._said = True
            self._say(
                f"waiting for the server since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC; queue {queue}; "
                f"{'until it is back' if isinf(limit_s) else f'at most {limit_s:g} seconds'}: {error}"
            )
        self._sleep(min(self._delay_s, left))
        self._delay_s = min(2 * self._delay_s, LONGEST_DELAY_S)

    def succeeded(self) -> None:
        """Note that the server has done what it was asked for."""
        if self._began is not None and self._said:
            self._say(
                f"the server is back after {self._monotonic() - self._began:.1f} seconds; queue {self._options.queue}"
            )
        self._began = None
