"""When a periodic task executes its action: as the last execution or `schedule` says. No database."""

import time
from contextlib import contextmanager

import pytest

from rowpost.errors import DatabaseError
from rowpost.settings.environment import Settings
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.tasks.periodic import PeriodicTask
from tests.support.workers import eventually

HOUR = 3600.0


class Session:
    """Stands for a connection."""

    closed = False

    def rollback(self):
        """Nothing to roll back."""

    def close(self):
        self.closed = True


@contextmanager
def executing(**actions):
    """Run a task for these queues; each execution is noted, then the queue's function is called with their number and the task."""
    noted = []

    def action(_, queue):
        noted.append(queue)
        return actions[queue](noted.count(queue), task)

    task = PeriodicTask(
        Settings(), actions, action, name="test", activity="process", emit=lambda event: None, breaker=CircuitBreaker(armed_wait=HOUR),
        connect=lambda *_, **__: Session(),
    )  # fmt: skip
    task.start()
    yield task, noted
    task.stop()
    assert not task._thread.is_alive()


def test_a_queue_that_is_scheduled_earlier_is_processed_earlier():
    with executing(Sales=lambda *_: HOUR) as (task, noted):
        for number in (1, 2, 3):
            eventually(lambda number=number: len(noted) == number, "an execution")
            eventually(lambda: abs(task._waits_until) < float("inf"), "it waits")
            task.schedule("Sales", 0.0)
        eventually(lambda: len(noted) == 4, "the last")


def test_a_queue_that_is_scheduled_later_is_processed_later():
    def clock(count, task):
        task.schedule("Sales", HOUR)
        return 0.05

    with executing(Sales=lambda *_: 0.2, Clock=clock) as (_, noted):
        eventually(lambda: noted.count("Clock") > 8, "the other queue was processed")

    assert noted.count("Sales") == 1


def test_a_task_that_waits_for_a_postponed_execution_executes_nothing():
    with executing(Sales=lambda *_: 1.0) as (task, noted):
        eventually(lambda: abs(task._waits_until) < float("inf"), "it waits")
        task.schedule("Sales", HOUR)
        eventually(lambda: HOUR / 2 < task._waits_until - time.monotonic() < HOUR, "it has woken up, and waits again")

    assert noted == ["Sales"]


def test_a_schedule_during_an_execution_does_not_override_its_result():
    def sales(count, task):
        task.schedule("Sales", HOUR)
        return 0.0

    with executing(Sales=sales) as (_, noted):
        eventually(lambda: len(noted) > 5, "it goes on at once")


def test_a_due_execution_is_not_postponed():
    def other(count, task):
        task.schedule("Sales", HOUR)
        return 0.0

    with executing(Sales=lambda *_: 0.0, Other=other) as (_, noted):
        eventually(lambda: noted.count("Sales") > 5, "it goes on at once")


def test_a_failed_execution_is_retried_at_its_own_time():
    def failing(count, task):
        raise DatabaseError("no")

    def clock(count, task):
        task.schedule("Sales", 0.0)
        return 0.0

    with executing(Sales=failing, Clock=clock) as (_, noted):
        eventually(lambda: noted.count("Clock") > 8, "the other queue was processed")

    assert noted.count("Sales") == 1


def test_a_queue_that_is_finished_cannot_be_scheduled():
    def clock(count, task):
        task.schedule("Sales", 0.0)
        task.schedule("Unknown", 0.0)
        return 0.0

    with executing(Sales=lambda *_: None, Clock=clock) as (_, noted):
        eventually(lambda: noted.count("Clock") > 8, "the other queue was processed")

    assert noted.count("Sales") == 1


@pytest.mark.parametrize("wait", [0.0, HOUR])
def test_it_stops_at_once(wait):
    with executing(Sales=lambda *_: wait) as (_, noted):
        eventually(lambda: noted, "an execution")
