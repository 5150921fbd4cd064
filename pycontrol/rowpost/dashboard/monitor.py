"""Measure all queues in one round trip, and keep a bounded history of it in this process.

A thread measures every few seconds, so that the charts have a history. A page that needs newer figures measures itself.
If a queue cannot be measured, for example because its table is locked, the others are measured without it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field

from rowpost.dashboard.connections import Pool
from rowpost.errors import QueueNotFound, RowpostError
from rowpost.operations.figures import measure, read_overview
from rowpost.operations.rights import Right
from rowpost.transport.controls import QueueControl
from rowpost.transport.maintenance import Metrics

__all__ = ["MeasuredQueue", "MeasuredQueues", "Monitor", "Point", "rates_between"]

INTERVAL_S, RATES_S = 5.0, 10.0
#: measurements that are kept, of one queue and of all together
KEPT, KEPT_OF_ALL = 720, 400_000
#: seconds after which a queue that could not be measured is tried again, as each try may wait for a lock
AGAIN_S = 20.0
_log = logging.getLogger("rowpost.dashboard")


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement of a queue; `at` is a time of this machine, in seconds since 1970.

    `workers`: of all hosts, as last reported.
    """

    at: float
    metrics: Metrics
    workers: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredQueue:
    """A queue as it was measured last. `problem` says why it has no metrics, `control` what operators have set."""

    name: str
    kind: str
    has_delayed: bool
    estimate: int | None
    metrics: Metrics | None = None
    enqueued_per_second: float | None = None
    dequeued_per_second: float | None = None
    problem: str | None = None
    control: QueueControl | None = None

    @property
    def waiting(self) -> int | None:
        """How many messages wait: measured, or else as the registry estimates."""
        return self.estimate if self.metrics is None else self.metrics.depth


@dataclass(frozen=True, slots=True)
class MeasuredQueues:
    """All queues by name, at one time (seconds since 1970)."""

    at: float = 0.0
    queues: dict[str, MeasuredQueue] = field(default_factory=dict)


class Monitor:
    """Measures the queues of one database. Thread-safe."""

    def __init__(self, pool: Pool, interval_s: float = INTERVAL_S) -> None:
        self._pool, self._interval_s = pool, interval_s
        self._lock = threading.Lock()
        self._snapshot = MeasuredQueues()
        self._history: dict[str, deque[Point]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: queues that could not be measured, with the time and the reason
        self._failed: dict[str, tuple[float, RowpostError]] = {}

    def start(self) -> None:
        """Measure from now on, in a thread that ends with `stop` or with the process. Does nothing if it runs."""
        if self._thread is not None:  # asked by the event loop, which must not wait for a measurement
            return
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="rowpost dashboard monitor", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._interval_s)

    def latest(self, max_age_s: float = 1.0) -> MeasuredQueues:
        """Return figures that are at most so many seconds old. Raises DatabaseUnavailable and others."""
        with self._lock:
            if time.time() - self._snapshot.at > max_age_s:
                self._measure()
            return self._snapshot

    def find(self, queue: str) -> MeasuredQueue:
        """Return a queue's latest figures. Raises QueueNotFound."""
        found = self.latest().queues.get(queue) or self.latest(0).queues.get(queue)  # it may be newer than the figures
        if found is None:
            raise QueueNotFound(f"There is no queue named {queue!r} in this database.")
        return found

    def expire(self) -> None:
        """Measure again for the next page, because something was changed."""
        with self._lock:
            self._snapshot = MeasuredQueues(0.0, self._snapshot.queues)

    def history(self, queue: str) -> list[Point]:
        """Return the measurements of a queue, oldest first."""
        return list(self._history.get(queue, ()))

    def _run(self) -> None:
        failing = False
        while not self._stop.wait(self._interval_s):
            try:
                self.latest(self._interval_s / 2)
                failing = False
            except RowpostError as error:
                if not failing:  # one line for an outage, however long
                    _log.warning("the queues cannot be measured: %s", error)
                failing = True
            except Exception:  # noqa: BLE001 -- what other logins wrote must not end the history; a page says that it is a bug
                if not failing:
                    _log.exception(
                        "the queues cannot be measured because of a bug in rowpost; please report it with these lines"
                    )
                failing = True

    def _measure(self) -> None:
        rights = self._pool.rights()
        with self._pool.connection() as database:
            rows, controls, present = read_overview(database)
            names = [
                row.queue_name for row in rows if row.kind != "external" and rights.may(Right.MEASURE, row.queue_name)
            ]
            now = time.time()
            self._failed = {name: each for name, each in self._failed.items() if now - each[0] < AGAIN_S}
            measured = measure(database, [name for name in names if name not in self._failed])
        now = time.time()
        self._failed |= {name: (now, each) for name, each in measured.items() if isinstance(each, RowpostError)}
        measured |= {name: error for name, (_, error) in self._failed.items()}
        self._forget({row.queue_name for row in rows})
        kept = max(2, min(KEPT, KEPT_OF_ALL // max(1, len(rows))))
        queues = {}
        workers = Counter(worker.queue for each in present if not each.gone for worker in each.workers)
        for row in rows:
            found = measured.get(row.queue_name)
            problem = str(found) if isinstance(found, RowpostError) else None
            metrics = found if isinstance(found, Metrics) else None
            rates: tuple[float | None, float | None] = (None, None)
            if metrics is not None:
                rates = self._add(row.queue_name, Point(now, metrics, workers[row.queue_name]), kept)
            queues[row.queue_name] = MeasuredQueue(
                row.queue_name,
                row.kind,
                bool(row.delayed),
                row.depth,
                metrics,
                *rates,
                problem,
                controls.get(row.queue_name),
            )
        self._snapshot = MeasuredQueues(now, queues)

    def _forget(self, known: set[str]) -> None:
        for name in self._history.keys() - known:
            del self._history[name]

    def _add(self, name: str, point: Point, kept: int) -> tuple[float | None, float | None]:
        points = self._history.get(name)
        if points is None or points.maxlen != kept:
            points = self._history[name] = deque(points or (), maxlen=kept)
        points.append(point)
        earlier = next((each for each in reversed(points) if point.at - each.at >= RATES_S), points[0])
        return rates_between(earlier, point)


def rates_between(earlier: Point, later: Point) -> tuple[float | None, float | None]:
    """Return messages in and out per second; None if the engine does not count, or has begun to count anew in
    between.
    """
    found = later.metrics.rates(earlier.metrics)
    return tuple(None if rate is None or rate < 0 else rate for rate in found)  # type: ignore[return-value]
