"""The circuit breaker: it delays work after each failure, and reduces the concurrency after 30 s of failures."""

import pytest

from rowpost.errors import DatabaseUnavailable, Deadlock
from rowpost.workers.circuit_breaker import CircuitBreaker, arms_circuit_breaker


def test_a_new_breaker_neither_waits_nor_limits():
    breaker = CircuitBreaker()

    assert (breaker.wait, breaker.concurrency(8), breaker.armed, breaker.triggered) == (0.0, 8, False, False)


def test_the_first_failure_arms_and_each_failure_waits_twice_as_long_up_to_one_second():
    breaker, changes, waits = CircuitBreaker(), [], []

    for second in range(7):
        breaker = breaker.after_failure(now=100.0 + second)
        changes.append(breaker.change)
        waits.append(breaker.wait)

    assert changes == ["armed", *[None] * 6]
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert breaker.armed_at == 100.0
    assert breaker.after_success().after_failure(now=200.0).wait == 0.05


def test_a_success_disarms():
    breaker = CircuitBreaker().after_failure(now=100.0).after_success()

    assert (breaker.change, breaker.armed, breaker.wait) == ("disarmed", False, 0.0)


@pytest.mark.promise("outage")
def test_less_than_30_seconds_of_failures_raise_no_critical_event():
    breaker = CircuitBreaker().after_failure(now=0.0)

    for second in range(1, 30):
        breaker = breaker.at(float(second)).after_failure(float(second))
        assert breaker.change is None
    assert not breaker.at(29.99).triggered


@pytest.mark.promise("outage")
def test_after_30_seconds_there_is_one_critical_event_and_concurrency_1():
    breaker, changes = CircuitBreaker().after_failure(now=0.0), []

    for second in range(1, 120):
        breaker = breaker.at(float(second))
        changes.append(breaker.change)
        breaker = breaker.after_failure(float(second))
        changes.append(breaker.change)

    assert changes.count("triggered") == 1
    assert changes.index("triggered") == 2 * 29
    assert (breaker.concurrency(8), breaker.wait) == (1, 10.0)


@pytest.mark.promise("outage")
def test_time_alone_triggers_without_a_second_failure():
    breaker = CircuitBreaker().after_failure(now=0.0)

    assert breaker.triggers_at == 30.0
    assert breaker.at(30.0).change == "triggered"
    assert breaker.at(30.0).triggers_at is None


@pytest.mark.promise("outage")
def test_recovery_restores_the_concurrency_and_the_next_outage_counts_anew():
    triggered = CircuitBreaker().after_failure(now=0.0).at(31.0)

    recovered = triggered.after_success()
    again = recovered.after_failure(now=100.0)

    assert (recovered.change, recovered.concurrency(8), recovered.wait) == ("recovered", 8, 0.0)
    assert (again.change, again.at(129.0).change, again.at(130.0).change) == ("armed", None, "triggered")


def test_a_success_without_a_failure_changes_nothing():
    breaker = CircuitBreaker()

    assert breaker.after_success() is breaker
    assert breaker.after_failure(0.0).after_success().after_success().change is None


@pytest.mark.promise("deadlock-is-retried")
def test_a_deadlock_victim_does_not_arm_the_breaker():
    assert not arms_circuit_breaker(Deadlock("victim"))
    assert arms_circuit_breaker(DatabaseUnavailable("refused"))


def test_the_time_is_a_setting():
    assert CircuitBreaker(seconds=2.0).after_failure(now=10.0).at(12.0).triggered
