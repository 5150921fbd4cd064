"""Run the steps of several sessions in every order, as the isolation tester of PostgreSQL does.

Each session has a connection and a thread. A step is dispatched when its turn comes. Then the next one follows as soon as the step has
ended, or as soon as the server reports that its session waits for another one. A session that waits keeps its next steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import RowpostError

__all__ = ["Session", "orders", "run"]

Step = Callable[["Session"], Any]
_POLL_S, _DEADLINE_S = 0.005, 60.0


class Session:
    """One session.

    Attributes:
        database: its connection.
        error: the error that ended its steps; its transaction was rolled back.
        result: what its steps keep.
    """

    def __init__(self, database: Connection) -> None:
        self.database = database
        self.error: RowpostError | None = None
        self.result: Any = None
        self.pid = database.driver_connection.info.backend_pid

    def take(self, step: Step) -> None:
        """Run a step, unless an earlier one failed."""
        if self.error is None:
            try:
                step(self)
            except RowpostError as error:
                self.error = error
                self.database.rollback()


def orders(*counts: int) -> Iterator[tuple[int, ...]]:
    """Yield every order of the steps of sessions that have so many steps, as the numbers of the sessions.

    >>> list(orders(2, 1))
    [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
    """
    if not any(counts):
        yield ()
    for number, count in enumerate(counts):
        if count:
            for rest in orders(*(each - (place == number) for place, each in enumerate(counts))):
                yield (number, *rest)


def run(order: Sequence[int], sessions: Sequence[Session], steps: Sequence[Sequence[Step]], look: Connection) -> int:
    """Run the steps in that order, and return how many of them waited for another session.

    Raises:
        AssertionError: a session waits for ever.
    """
    waited = 0
    pending = [iter(each) for each in steps]
    last: dict[int, Future] = {}
    threads = [ThreadPoolExecutor(1) for _ in sessions]
    try:
        for number in order:
            last[number] = threads[number].submit(sessions[number].take, next(pending[number]))
            waited += _waits(last[number], sessions[number], look)
        for future in last.values():
            future.result(_DEADLINE_S)
    finally:
        for thread in threads:
            thread.shutdown()
    return waited


def _waits(step: Future, session: Session, look: Connection) -> bool:
    """Return whether the session waits for another one; False when its step has ended."""
    for _ in range(int(_DEADLINE_S / _POLL_S)):
        try:
            step.result(_POLL_S)
        except NotYet:
            (blockers,) = look.driver_connection.execute(
                "SELECT cardinality(pg_blocking_pids(%s))", (session.pid,)
            ).fetchone()
            if blockers:
                return True
        else:
            return False
    raise AssertionError(f"a step has neither ended nor waited for a lock within {_DEADLINE_S} s")
