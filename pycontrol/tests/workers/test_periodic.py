"""When a patrol visits its queues: by what visits say, and by what somebody else says meanwhile. No database."""

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
def patrolling(**visits):
    """A patrol of these queues; each visit of one is noted, and then its function called with how many there were."""
    noted = []

    def visit(_, queue):
        noted.append(queue)
        return visits[queue](noted.count(queue), patrol)

    patrol = PeriodicTask(
        Settings(), visits, visit, name="test", duty="visit", tell=lambda event: None, breaker=CircuitBreaker(armed_wait=HOUR),
        connect=lambda *_, **__: Session(),
    )  # fmt: skip
    patrol.start()
    yield patrol, noted
    patrol.stop()
    assert not patrol._thread.is_alive()


def test_a_queue_that_is_expected_earlier_is_visited_earlier():
    with patrolling(Sales=lambda *_: HOUR) as (patrol, noted):
        for number in (1, 2, 3):
            eventually(lambda number=number: len(noted) == number, "a visit")
            eventually(lambda: abs(patrol._sleeps_until) < float("inf"), "it sleeps")
            patrol.expect("Sales", 0.0)
        eventually(lambda: len(noted) == 4, "the last")


def test_a_queue_that_is_expected_later_is_visited_later():
    def clock(count, patrol):
        patrol.expect("Sales", HOUR)
        return 0.05

    with patrolling(Sales=lambda *_: 0.2, Clock=clock) as (_, noted):
        eventually(lambda: noted.count("Clock") > 8, "the clock has ticked on")

    assert noted.count("Sales") == 1


def test_a_patrol_that_sleeps_until_a_visit_that_was_put_off_makes_none():
    with patrolling(Sales=lambda *_: 1.0) as (patrol, noted):
        eventually(lambda: abs(patrol._sleeps_until) < float("inf"), "it sleeps")
        patrol.expect("Sales", HOUR)
        eventually(lambda: HOUR / 2 < patrol._sleeps_until - time.monotonic() < HOUR, "it has woken, and sleeps on")

    assert noted == ["Sales"]


def test_what_is_expected_during_a_visit_changes_nothing_at_what_the_visit_says():
    def sales(count, patrol):
        patrol.expect("Sales", HOUR)
        return 0.0

    with patrolling(Sales=sales) as (_, noted):
        eventually(lambda: len(noted) > 5, "it goes on at once")


def test_a_visit_that_is_due_is_made_whatever_is_expected():
    def other(count, patrol):
        patrol.expect("Sales", HOUR)
        return 0.0

    with patrolling(Sales=lambda *_: 0.0, Other=other) as (_, noted):
        eventually(lambda: noted.count("Sales") > 5, "it goes on at once")


def test_a_visit_that_failed_is_made_again_in_its_own_time():
    def failing(count, patrol):
        raise DatabaseError("no")

    def clock(count, patrol):
        patrol.expect("Sales", 0.0)
        return 0.0

    with patrolling(Sales=failing, Clock=clock) as (_, noted):
        eventually(lambda: noted.count("Clock") > 8, "the clock has ticked on")

    assert noted.count("Sales") == 1


def test_a_queue_that_is_visited_no_more_is_not_expected_either():
    def clock(count, patrol):
        patrol.expect("Sales", 0.0)
        patrol.expect("Unknown", 0.0)
        return 0.0

    with patrolling(Sales=lambda *_: None, Clock=clock) as (_, noted):
        eventually(lambda: noted.count("Clock") > 8, "the clock has ticked on")

    assert noted.count("Sales") == 1


@pytest.mark.parametrize("wait", [0.0, HOUR])
def test_it_stops_at_once(wait):
    with patrolling(Sales=lambda *_: wait) as (_, noted):
        eventually(lambda: noted, "a visit")
