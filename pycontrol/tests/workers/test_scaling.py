"""The number of worker processes follows the number of messages: the three strategies with real processes."""

from itertools import pairwise

import pytest

from rowpost.settings.environment import QueueSettings
from rowpost.workers import events
from rowpost.workers.answers import Answer
from rowpost.workers.protocol import WorkerProgress
from rowpost.workers.supervision.monitor import QueueMonitor
from rowpost.workers.worker.process import spawn_worker
from tests.support.workers import concurrent, eventually, running


class Recorded:
    """Starts worker processes and keeps what they report of their receives."""

    def __init__(self) -> None:
        self.runs: list[int] = []

    def __call__(self, assignment):
        process = spawn_worker(assignment)
        reports = process.reports

        def recording():
            for report in reports():
                if isinstance(report, WorkerProgress):
                    self.runs += report.runs
                yield report

        process.reports = recording
        return process


class Exaggerating(QueueMonitor):
    """A monitor whose first peek returns the wrong estimate of 1000 messages."""

    def _peek(self, peeks):
        self.first = getattr(self, "first", True)
        answers = super()._peek(peeks)
        self.first, first = False, self.first
        return [Answer(answer.queue, 1000) for answer in answers] if first else answers


@concurrent
@pytest.mark.promise("concurrency-limit")
def test_a_burst_sees_one_worker_then_the_limit_then_one_again(shop, tmp_path):
    gate = tmp_path / "gate"

    with shop.run("wait_for_file", limit=4) as supervisor:
        supervisor.until(lambda: supervisor.workers(shop.name) == 1, "one worker at rest")
        shop.send(40, str(gate).encode())
        supervisor.until(lambda: running(gate) == 4, "four handlers at a time")
        at_the_top = supervisor.supervisor.snapshot().queue(shop.name)
        gate.touch()
        supervisor.until(lambda: shop.handled() == 40, "all are handled")
        supervisor.until(lambda: supervisor.workers(shop.name) == 1, "one worker at rest again")

    assert (at_the_top.workers, at_the_top.busy, at_the_top.target) == (4, 4, 4)
    assert running(gate) <= 4
    assert shop.handled_twice() == 0


@concurrent
@pytest.mark.promise("limit-changes-at-run-time")
def test_a_raised_limit_takes_effect_while_running(shop, tmp_path):
    gate = tmp_path / "gate"

    with shop.run("wait_for_file", limit=1) as supervisor:
        shop.send(20, str(gate).encode())
        supervisor.until(lambda: running(gate) == 1, "one handler")
        supervisor.supervisor.set_limit(shop.name, 3)
        supervisor.until(lambda: running(gate) == 3, "three handlers")
        gate.touch()
        supervisor.until(lambda: shop.handled() == 20, "all are handled")

    assert shop.handled_twice() == 0


@pytest.mark.promise("limit-changes-at-run-time")
def test_a_lowered_limit_takes_effect_while_running(shop):
    with shop.run("slow", limit=3) as supervisor:
        shop.send(200, b"0.02")
        supervisor.until(lambda: supervisor.workers(shop.name) == 3, "three workers")
        supervisor.supervisor.set_limit(shop.name, 1)
        supervisor.until(lambda: supervisor.workers(shop.name) == 1, "one worker")
        left = shop.depth()
        supervisor.until(lambda: shop.handled() == 200, "all are handled")

    assert left > 0
    assert shop.handled_twice() == 0


@concurrent  # on Babelfish a peek counts the message that another worker is just handling
@pytest.mark.promise("wrong-estimate-costs-little")
def test_a_peek_that_says_1000_costs_at_most_two_empty_receives_of_two_workers(shop):
    shop.send(46)
    recorded = Recorded()

    with shop.run(limit=2, peek_delay=5.0, spawn=recorded, monitor=Exaggerating) as supervisor:
        supervisor.until(lambda: shop.handled() == 46, "all are handled")
        supervisor.until(lambda: supervisor.seen(events.Peeked)[-1].count == 0, "a peek that finds nothing")
        first, second, *others = supervisor.seen(events.Peeked)

    # on a busy machine a worker may leave messages to the next round: it scans the whole queue more rarely if that was slow
    rounds = 1 + sum(peek.count > 0 for peek in (second, *others))
    assert (first.count, second.count < 46) == (1000, True)
    assert second.at - first.at < 5.0
    assert 46 + 1 <= sum(abs(run) for run in recorded.runs) <= 46 + 2 * rounds


@pytest.mark.promise("idle-peek-delay")
def test_an_idle_queue_is_peeked_once_a_delay_and_at_once_after_work(shop):
    with shop.run(limit=2, peek_delay=0.4) as supervisor:
        supervisor.until(
            lambda: len(supervisor.seen(events.Peeked)) >= 18,
            "five peeks at rest, after the quick ones of the beginning",
        )
        idle = [event.at for event in supervisor.seen(events.Peeked)]
        shop.send(20)
        supervisor.until(lambda: shop.handled() == 20, "all are handled")
        supervisor.idle()
        peeks = supervisor.seen(events.Peeked)[len(idle) :]
        last_full = max(
            (number for number, peek in enumerate(peeks) if peek.count), default=-1
        )  # none if the worker was as quick as the peek
        after_work, end_of_work = peeks[last_full + 1].at, supervisor.seen(events.Handled)[-1].at

    assert min(later - earlier for earlier, later in pairwise(idle[-5:])) >= 0.39
    assert after_work - end_of_work < 0.2


@pytest.mark.promise("peek-delay-range")
def test_a_peek_delay_above_10_seconds_works_with_one_warning(shop):
    shop.send(3)

    with shop.run(peek_delay=11.0) as supervisor:
        supervisor.until(lambda: shop.handled() == 3, "all are handled")

    assert len(supervisor.seen(events.Warned)) == 1


@concurrent
@pytest.mark.promise("fixed-pollers")
def test_level_10_with_4_queues_and_a_callback_queue_polls_with_41_processes(shop):
    primary = [f"{shop.name}.{suffix}" for suffix in ("Timeouts", "TimeoutsDispatcher", "Retries")]
    secondary = f"{shop.name}.WEB01"
    for name in (*primary, secondary):
        shop.make_queue(name)
    others = tuple(shop.worked(name, limit=10, strategy="fixed") for name in primary)
    callback = shop.worked(secondary, limit=1, strategy="fixed", secondary=True)

    with shop.run(limit=10, strategy="fixed", others=(*others, callback)) as supervisor:
        supervisor.until(lambda: len(supervisor.seen(events.WorkerStarted)) == 41, "41 pollers")
        shop.send(200)
        supervisor.until(lambda: shop.handled() == 200, "all are handled")
        workers = [queue.workers for queue in supervisor.supervisor.snapshot().queues]

    assert workers == [10, 10, 10, 10, 1]
    assert sum(workers) == 41
    assert shop.handled_twice() == 0


@pytest.mark.promise("adaptive-pollers")
def test_adaptive_pollers_follow_the_messages_up_and_down_to_one(shop):
    with shop.run("slow", limit=3, strategy="adaptive") as supervisor:
        supervisor.until(lambda: supervisor.workers(shop.name) == 1, "one poller at rest")
        shop.send(300, b"0.005")
        supervisor.until(lambda: supervisor.workers(shop.name) == 3, "three pollers at work")
        supervisor.until(lambda: shop.handled() == 300, "all are handled")
        supervisor.until(lambda: supervisor.workers(shop.name) == 1, "one poller at rest again")

    assert max(event.workers for event in supervisor.seen(events.TargetChanged)) == 3
    assert shop.handled_twice() == 0


@concurrent
@pytest.mark.parametrize("strategy", ["peek", "fixed"])
@pytest.mark.promise("long-handler-blocks-nobody")
def test_a_long_handler_stops_neither_its_own_queue_nor_another(shop, tmp_path, strategy):
    gate, other = tmp_path / "gate", shop.make_queue()
    others = (shop.worked(other.name, "note", limit=1, strategy=strategy),)

    with shop.run("wait_for_file", limit=2, strategy=strategy, others=others) as supervisor:
        shop.send(1, str(gate).encode())
        supervisor.until(lambda: running(gate) == 1, "the long handler")
        other.send(b"other")
        supervisor.until(lambda: shop.handled() == 1, "the other queue's message")
        peeks = len(supervisor.seen(events.Peeked, shop.name))
        shop.send(1, str(gate).encode())
        supervisor.until(lambda: running(gate) == 2, "the same queue's second message")
        supervisor.until(lambda: len(supervisor.seen(events.Peeked, shop.name)) > peeks, "further peeks")
        gate.touch()
        supervisor.until(lambda: shop.handled() == 3, "all are handled")


@concurrent
def test_several_queues_have_limits_of_their_own(shop, tmp_path):
    gate, other = tmp_path / "gate", shop.make_queue()
    other_gate = tmp_path / "other"
    others = (
        QueueSettings("Billing"),
        shop.worked(other.name, "wait_for_file", limit=3),
    )

    with shop.run("wait_for_file", limit=1, others=others) as supervisor:
        shop.send(10, str(gate).encode())
        for _ in range(10):
            other.send(str(other_gate).encode())
        supervisor.until(lambda: (running(gate), running(other_gate)) == (1, 3), "one here, three there")
        gate.touch()
        other_gate.touch()
        eventually(lambda: shop.handled() == 20, "all are handled")

    assert (running(gate), running(other_gate)) == (1, 3)
    assert [queue.queue for queue in supervisor.supervisor.snapshot().queues] == [shop.name, other.name]
