"""Replay what a pool of workers sees, without processes: for tests of the pool."""

from dataclasses import dataclass, field

from rowpost.settings.environment import Settings, WorkerSettings
from rowpost.workers.answers import Answer
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.protocol import Assignment, Ready, WorkerProgress
from rowpost.workers.supervision.pool import WorkerPool
from rowpost.workers.worker.process import Alone

__all__ = ["History", "Process", "idle_history"]


@dataclass
class Process(Alone):
    """Stands for a worker process; records the commands that it gets."""

    assignment: Assignment
    pid: int
    commands: list = field(default_factory=list)
    interrupted: bool = False
    killed: bool = False
    in_flight: tuple | None = None
    in_flight_since: float | None = None

    def send(self, command):
        self.commands.append(command)

    def interrupt(self):
        self.interrupted = True

    def kill(self):
        self.killed = True

    expire = kill


class History:
    """A worker pool, the processes that it started, the peeks that it requested and the events that it emitted."""

    def __init__(self, warm=None, idle=None, **worker):
        self.processes, self.asked, self.crashes, self.events, self.now = [], [], [], [], 0.0
        self.pool = WorkerPool(
            "Sales",
            WorkerSettings("shop:place", **worker),
            assign=lambda number, receive: Assignment(Settings(), "Sales", "shop:place", number, receive=receive),
            spawn=self.spawn,
            ask=lambda name, *, purge, wake_up_ttl_s: self.asked.append((self.now, purge)),
            count_crash=self.crashes.append,
            emit=self.events.append,
            breaker=CircuitBreaker(seconds=30.0),
            idle_timeout=2.0,
            warm=warm,
            idle=idle,
        )

    def spawn(self, assignment):
        self.processes.append(Process(assignment, pid=1000 + len(self.processes)))
        return self.processes[-1]

    def at(self, now):
        self.now = now
        return self.pool.tick(now)

    def peeks(self, count, now):
        self.pool.on_answer(Answer("Sales", count), now)
        return self.at(now)

    def reports(self, number, report, now):
        self.pool.on_report(next(h for h in self.pool.handles if h.number == number), report, now)
        return self.at(now)

    def ready(self, *numbers, now=0.0):
        for number in numbers:
            self.reports(number, Ready(1000 + number), now)

    def receives(self, number, *runs, now, busy=False, **counts):
        handle = next(h for h in self.pool.handles if h.number == number)
        return self.reports(number, WorkerProgress(busy, handle.round, runs, **counts), now)

    def dies(self, number, exitcode, now):
        self.pool.on_exit(next(h for h in self.pool.handles if h.number == number), exitcode, now)
        return self.at(now)

    def commands(self, number):
        return self.processes[number - 1].commands

    def seen(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def idle_history(**worker):
    """Return a pool with an idle worker whose peeks have found nothing for so long that they are a peek delay apart."""
    history = History(**worker)
    now, due = -100.0, history.at(-100.0)
    history.ready(1, now=now)
    while now < 0.0:
        history.at(now)
        due = history.peeks(0, now=now)
        now = min(0.0, due)
    history.at(0.0)
    history.peeks(0, now=0.0)
    del history.asked[:-1]
    return history
