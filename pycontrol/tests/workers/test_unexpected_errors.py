"""A defect in a thread of the supervisor is reported as critical, and the thread goes on. No database."""

from collections import deque
from dataclasses import replace
from uuid import uuid4

import pytest

from rowpost.settings.environment import QueueSettings, Settings, WorkerSettings
from rowpost.workers import events
from rowpost.workers.answers import Answer, Control, Crash, WakeUp
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.supervision.monitor import QueueMonitor
from rowpost.workers.supervision.supervisor import Supervisor
from rowpost.workers.tasks.periodic import PeriodicTask
from tests.support.pool_history import idle_history
from tests.support.workers import eventually

DEFECT = ValueError("Exceeds the limit (4300 digits) for integer string conversion")


class BrokenSession:
    """Stands for a connection whose calls raise, one by one, what a list says, and then count no message."""

    closed = False
    engine = "postgresql"

    def __init__(self, errors: deque) -> None:
        self._errors = errors

    def listen(self):
        return False

    def limit_lock_waits(self, milliseconds):
        pass

    def call_all(self, calls, **_):
        if self._errors:
            raise self._errors.popleft()
        return [[(0, None, False, None, None, None)] for _ in calls]

    def close(self):
        self.closed = True


@pytest.fixture
def settings():
    queues = tuple(QueueSettings(name, worker=WorkerSettings("shop:place")) for name in ("Sales", "Billing"))
    return replace(Settings(), queues=queues)


def monitoring(settings, errors):
    """A running monitor, its answers and failures, and the sessions that it opened."""
    answers, sessions = [], []

    def post(value):
        if not isinstance(value, WakeUp):
            answers.append(value)

    def connect(*_, **__):
        sessions.append(BrokenSession(errors))
        return sessions[-1]

    monitor = QueueMonitor(settings, post, connect=connect)
    monitor.start()
    return monitor, answers, sessions


def test_an_unexpected_error_of_a_peek_answers_every_queue_and_the_monitor_goes_on(settings):
    monitor, answers, sessions = monitoring(settings, deque([DEFECT]))

    monitor.ask("Sales")
    eventually(lambda: len(answers) == 1, "an answer")
    monitor.ask("Billing")
    eventually(lambda: len(answers) == 2, "the next answer")
    monitor.stop()

    assert [(answer.queue, answer.error, answer.unexpected) for answer in answers] == [
        ("Sales", DEFECT, True),
        ("Billing", None, False),
    ]
    assert [session.closed for session in sessions] == [True, True]


def test_an_unexpected_error_of_a_crash_count_is_answered_and_the_monitor_goes_on(settings):
    monitor, answers, _ = monitoring(settings, deque())
    crash = Crash("Unknown", 4312, -9, uuid4(), 7)  # no such queue in the settings

    monitor.count_crash(crash)
    eventually(lambda: len(answers) == 1, "an answer")
    monitor.ask("Sales")
    eventually(lambda: len(answers) == 2, "the next answer")
    monitor.stop()

    assert (answers[0].crash, answers[0].outcome) == (crash, None)
    assert answers[0].error is not None


def test_an_unexpected_error_outside_of_a_request_is_posted_and_the_monitor_goes_on(settings, monkeypatch):
    monitor, answers, _ = monitoring(settings, deque())
    errors = deque([DEFECT])
    execute = monitor._execute
    monkeypatch.setattr(
        monitor, "_execute", lambda requests: execute(requests) if not errors else _raise(errors.popleft())
    )

    monitor.ask("Sales")
    eventually(lambda: answers, "the failure")
    monitor.ask("Billing")
    eventually(lambda: len(answers) == 2, "an answer")
    monitor.stop()

    assert (type(answers[0]), answers[0].queue) == (events.Critical, "Sales, Billing")
    assert "ValueError: Exceeds the limit" in answers[0].error
    assert answers[1:] == [Answer("Billing", seconds=answers[1].seconds, next_due=float("inf"), control=Control())]


def _raise(error):
    raise error


def test_the_supervisor_emits_the_events_of_its_monitor(settings):
    seen, event = [], events.Critical(queue="Sales, Billing", error="a defect")
    supervisor = Supervisor(settings, seen.append)

    supervisor._post(event)
    supervisor._open_inbox(0.0)

    assert seen == [event]


def test_an_unexpected_error_of_a_peek_is_critical_at_once_and_once_and_the_peek_is_repeated():
    history = idle_history(limit=1)

    for now in (1.0, 2.0, 3.0):
        history.at(now)
        history.pool.on_answer(Answer("Sales", error=DEFECT), now)

    assert [event.error for event in history.seen(events.Critical)] == [f"Failed to peek Sales: ValueError: {DEFECT}"]
    assert history.seen(events.Trouble) == []
    assert [now for now, _ in history.asked[1:]] == [1.0, 2.0, 3.0]


def test_a_crash_that_cannot_be_counted_for_an_unexpected_error_is_critical():
    history = idle_history(limit=1)
    crash = Crash("Sales", 1000, -9, uuid4(), 7)

    history.pool.on_answer(Answer("Sales", crash=crash, error=DEFECT), 1.0)

    (event,) = history.seen(events.Critical)
    assert "ValueError: Exceeds the limit" in event.error


class Session:
    """Stands for a connection."""

    closed = False

    def rollback(self):
        """Nothing to roll back."""

    def close(self):
        self.closed = True


def executing(action, connect=lambda *_, **__: Session()):
    seen = []
    task = PeriodicTask(
        Settings(), ["Sales"], action, name="test", activity="process", emit=seen.append,
        breaker=CircuitBreaker(armed_wait=0.01), connect=connect,
    )  # fmt: skip
    task.start()
    return task, seen


def test_an_unexpected_error_of_a_periodic_task_is_critical_and_the_task_goes_on_with_a_new_connection():
    sessions = []

    def action(database, queue):
        sessions.append(database)
        if len(sessions) < 3:
            raise DEFECT

    task, seen = executing(action)
    eventually(lambda: len(sessions) == 3, "it goes on")
    task.stop()

    assert [event.error for event in seen] == [f"Failed to process Sales: ValueError: {DEFECT}"]
    assert isinstance(seen[0], events.Critical)
    assert len(set(map(id, sessions))) == 3
    assert [session.closed for session in sessions] == [True, True, True]


def test_an_unexpected_error_while_a_periodic_task_connects_is_critical_and_the_task_goes_on():
    errors, executed = deque([DEFECT]), []

    def connect(*_, **__):
        if errors:
            raise errors.popleft()
        return Session()

    task, seen = executing(lambda database, queue: executed.append(queue), connect)
    eventually(lambda: executed == ["Sales"], "it goes on")
    task.stop()

    assert isinstance(seen[0], events.Critical)
