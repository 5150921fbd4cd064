"""The workers of one queue, by replayed histories: observations, and the workers that start and exit. No processes."""

from uuid import uuid4

import pytest

from rowpost.errors import DatabaseUnavailable, Deadlock, LockTimeout, SettingsError
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.workers import events
from rowpost.workers.answers import Answer
from rowpost.workers.protocol import (
    Exit,
    HandlerRefused,
    Receive,
    ReceiveFailed,
    ReceiveRecovered,
    Tried,
    WorkerProgress,
)
from rowpost.workers.supervision.handles import respawn_delay
from tests.support.pool_history import History, idle_history


def test_the_first_peeks_follow_one_another_for_what_a_sender_may_be_about_to_commit():
    history = History(limit=4, peek_delay=1.0)
    history.at(0.0)
    history.ready(1)

    pauses, now = [], 0.0
    for _ in range(14):
        history.peeks(0, now=now)
        pauses.append(round(history.pool.seconds_to_next_peek(now), 3))
        now += pauses[-1]
        history.at(now)

    assert pauses == [*[0.005] * 7, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]


@pytest.mark.promise("one-worker-when-idle")
def test_an_idle_queue_has_one_worker_that_waits_and_one_peek_a_delay():
    history = idle_history(limit=4, peek_delay=1.0)

    due = history.at(0.5)

    assert len(history.processes) == 1
    assert history.commands(1) == []
    assert due == 1.0
    assert history.asked == [(0.0, False)]


@pytest.mark.promise("idle-peek-delay")
def test_the_next_peek_is_asked_when_the_delay_is_over():
    history = idle_history(limit=4, peek_delay=1.0)

    history.at(0.99)
    history.at(1.0)

    assert history.asked == [(0.0, False), (1.0, False)]


@pytest.mark.promise("concurrency-limit")
def test_a_burst_raises_the_workers_to_the_limit_and_not_above():
    history = idle_history(limit=4)

    history.peeks(1000, now=1.0)
    history.peeks(1000, now=2.0)

    assert history.commands(1) == [Receive(1)]
    assert [process.assignment.receive for process in history.processes] == [False, True, True, True]


@pytest.mark.promise("wrong-estimate-costs-little")
def test_after_the_first_empty_receive_the_next_peek_is_asked_at_once():
    history = idle_history(limit=2)
    history.at(1.0)
    history.peeks(1000, now=1.0)

    history.receives(1, 46, -1, now=1.5, handled=46)

    assert history.asked[-1] == (1.5, False)


def test_an_idle_worker_is_commanded_to_receive_before_a_new_one_is_started():
    history = idle_history(limit=4)
    history.peeks(2, now=1.0)
    history.ready(2, now=1.0)
    history.receives(1, 1, -1, now=1.1)
    history.receives(2, 1, -1, now=1.1)

    history.peeks(2, now=1.2)

    assert len(history.processes) == 2
    assert history.commands(1) == [Receive(1), Receive(2)]
    assert history.commands(2) == [Receive(2)]


def test_the_end_of_an_old_round_does_not_make_a_worker_idle_that_was_commanded_to_receive_again():
    history = idle_history(limit=1)
    history.peeks(5, now=1.0)
    stale = WorkerProgress(False, round=0, runs=(-1,))

    history.reports(1, stale, now=1.0)

    assert history.pool.snapshot(1.0).busy == 1


@pytest.mark.promise("one-worker-when-idle")
def test_spare_workers_exit_after_an_idle_time():
    history = idle_history(limit=3)
    history.peeks(100, now=1.0)
    history.ready(2, 3, now=1.0)
    for number in (1, 2, 3):
        history.receives(number, 33, -1, now=2.0)
    history.peeks(0, now=2.0)

    history.at(3.9)
    before = [process.commands[-1:] for process in history.processes]
    history.at(4.0)

    assert [Exit()] not in before
    assert sum(process.commands[-1:] == [Exit()] for process in history.processes) == 2
    assert history.pool.snapshot(4.0).workers == 3


@pytest.mark.promise("limit-changes-at-run-time")
def test_a_raised_limit_starts_workers_and_a_lowered_limit_stops_them():
    history = idle_history(limit=1)
    history.peeks(1000, now=1.0)

    history.pool.set_limit(3)
    history.peeks(1000, now=1.1)
    raised = len(history.processes)
    history.ready(2, 3, now=1.2)
    history.pool.set_limit(1)
    history.at(1.3)

    assert raised == 3
    assert [process.commands[-1] for process in history.processes] == [Receive(1), Exit(), Exit()]


@pytest.mark.promise("concurrency-limit")
def test_a_worker_that_is_asked_to_exit_counts_for_the_limit_until_it_has_exited():
    history = idle_history(limit=3)
    history.peeks(1000, now=1.0)
    history.ready(2, 3, now=1.0)
    history.pool.set_limit(1)
    history.at(1.1)

    history.pool.set_limit(3)
    history.peeks(1000, now=1.2)
    while_they_finish = len(history.processes)
    history.dies(2, 0, now=2.0)

    assert while_they_finish == 3
    assert len(history.processes) == 4


def test_a_worker_that_is_exiting_does_not_make_the_loop_spin():
    history = idle_history(limit=2)
    history.peeks(2, now=1.0)
    history.ready(2, now=1.0)
    history.receives(1, 1, -1, now=1.1)
    history.pool.set_limit(1)
    history.peeks(0, now=1.2)

    due = history.at(50.0)

    assert due > 50.0 or history.asked[-1] == (50.0, False)


def test_a_starting_worker_is_commanded_to_receive_before_another_is_started():
    history = History(limit=4)
    history.at(0.0)

    history.peeks(1, now=0.1)
    history.ready(1, now=0.2)

    assert len(history.processes) == 1
    assert history.commands(1) == [Receive(1)]
    assert history.pool.snapshot(0.2).busy == 1


def test_a_worker_that_cannot_be_started_is_tried_again_later():
    history = History(limit=1)
    start = history.pool._handles._spawn
    history.pool._handles._spawn = lambda assignment: (_ for _ in ()).throw(OSError("no more processes"))

    due = history.at(0.0)
    history.pool._handles._spawn = start
    history.at(due)

    assert "no more processes" in history.seen(events.Trouble)[0].error
    assert 0.0 < due <= 0.1
    assert len(history.processes) == 1


@pytest.mark.promise("fixed-pollers")
def test_fixed_pollers_are_all_started_at_once():
    history = History(limit=10, strategy="fixed")

    history.peeks(0, now=0.0)

    assert len(history.processes) == 10


@pytest.mark.promise("adaptive-pollers")
def test_hits_in_a_row_start_another_poller_and_misses_in_a_row_stop_one():
    history = History(limit=10, strategy="adaptive")
    history.peeks(0, now=0.0)
    history.ready(1)

    history.receives(1, 6, now=1.0, busy=True)
    after_hits = len(history.processes)
    history.ready(2, now=1.1)
    history.receives(1, -7, now=2.0)

    assert after_hits == 2
    assert history.commands(1) == [Exit()]
    assert history.commands(2) == []


@pytest.mark.promise("long-handler-blocks-nobody")
def test_a_receive_of_more_than_5_seconds_starts_another_poller():
    history = History(limit=10, strategy="adaptive")
    history.peeks(0, now=0.0)
    history.ready(1)

    due = history.at(0.5)
    history.at(4.9)
    before = len(history.processes)
    history.peeks(0, now=5.1)

    assert due <= 5.1
    assert (before, len(history.processes)) == (1, 2)


def test_a_worker_that_died_is_replaced_after_a_growing_delay():
    history = idle_history(limit=1)

    history.dies(1, -9, now=10.0)
    due = history.at(10.05)
    early = len(history.processes)
    history.at(10.1)
    history.dies(2, 1, now=20.0)

    assert (early, len(history.processes)) == (1, 2)
    assert due <= 10.1
    assert [(died.exitcode, died.respawn_in) for died in history.seen(events.WorkerDied)] == [(-9, 0.1), (1, 0.2)]


def test_the_in_flight_message_of_a_worker_that_died_counts_as_failed():
    history = idle_history(limit=1)
    row_id = uuid4()
    history.processes[0].in_flight = (row_id, 7)

    history.dies(1, -9, now=10.0)
    (crash,) = history.crashes
    moved = Outcome(Kind.MOVED_TO_ERROR, 7, row_id, 6, str(crash.error))
    history.pool.on_answer(Answer("Sales", crash=crash, outcome=moved), 10.1)

    assert (crash.pid, crash.row_id, crash.row_version) == (1000, row_id, 7)
    assert "signal 9" in str(crash.error)
    assert [event.attempts for event in history.seen(events.MovedToError)] == [6]
    assert history.pool.snapshot(10.1).moved_to_error == 1


def test_a_worker_that_died_without_a_message_counts_against_no_message():
    history = idle_history(limit=1)

    history.dies(1, -9, now=10.0)

    assert history.crashes == []


def test_work_done_ends_the_growth_of_the_delay():
    history = idle_history(limit=1)
    for now in (10.0, 20.0, 30.0):
        history.dies(len(history.processes), -9, now)
        history.at(now + 5.0)

    history.ready(4, now=36.0)
    history.receives(4, 5, -1, now=37.0)
    history.dies(4, -9, now=40.0)

    assert history.seen(events.WorkerDied)[-1].respawn_in == 0.1
    assert respawn_delay(100) == 10.0


@pytest.mark.promise("outage")
def test_failing_for_30_seconds_gives_one_critical_event_and_one_worker_until_it_recovers():
    history = idle_history(limit=4)
    history.peeks(1000, now=1.0)
    history.ready(2, 3, 4, now=1.0)
    down = Answer("Sales", error=DatabaseUnavailable("refused"))

    for now in range(2, 60):
        history.at(float(now))
        history.pool.on_answer(down, float(now))
        history.reports(1, ReceiveFailed("refused"), float(now))
    leaving = sum(Exit() in process.commands for process in history.processes)
    critical = history.pool.snapshot(60.0).critical
    history.reports(1, ReceiveRecovered(), now=60.0)
    history.peeks(1000, now=61.0)

    assert [event.error for event in history.seen(events.Critical)] == ["Failed to receive from Sales: refused"]
    assert (leaving, critical) == (3, True)
    assert len(history.seen(events.Recovered)) == 1
    assert history.pool.snapshot(61.0).target == 4


@pytest.mark.promise("outage")
def test_less_than_30_seconds_of_failures_are_no_critical_event():
    history = idle_history(limit=4)

    for now in range(1, 30):
        history.at(float(now))
        history.pool.on_answer(Answer("Sales", error=DatabaseUnavailable("refused")), float(now))
    history.at(30.5)
    history.peeks(0, now=30.5)

    assert history.seen(events.Critical) == []
    assert len(history.seen(events.Trouble)) == 1


def test_a_peek_that_failed_is_repeated_after_50_ms_and_after_ten_seconds_once_the_breaker_has_triggered():
    history = idle_history(limit=1)
    down = Answer("Sales", error=DatabaseUnavailable("refused"))

    history.at(1.0)
    history.pool.on_answer(down, 1.0)
    armed = history.at(1.0)
    history.at(31.5)
    history.pool.on_answer(down, 31.5)

    assert armed == 1.05
    assert history.at(31.5) == 41.5


@pytest.mark.promise("deadlock-is-retried")
def test_a_deadlock_victim_among_the_peeks_does_not_arm_the_circuit_breaker():
    history = idle_history(limit=1)

    history.at(1.0)
    history.pool.on_answer(Answer("Sales", error=Deadlock("victim")), 1.0)
    history.at(60.0)

    assert history.seen(events.Trouble) == history.seen(events.Critical) == []


def test_a_peek_that_works_does_not_hide_a_receive_that_fails():
    history = idle_history(limit=1)

    history.reports(1, ReceiveFailed("permission denied"), 1.0)
    for now in range(1, 40):
        history.peeks(1, now=float(now))

    assert len(history.seen(events.Critical)) == 1


@pytest.mark.promise("purge-on-startup")
def test_a_queue_is_purged_before_its_first_worker_starts():
    history = History(limit=2, purge_on_startup=True)

    history.at(0.0)
    before = len(history.processes)
    history.pool.on_answer(Answer("Sales", count=500, purged=True), 0.1)
    history.at(0.1)

    assert history.asked[0] == (0.0, True)
    assert (before, len(history.processes)) == (0, 1)
    assert [event.count for event in history.seen(events.Purged)] == [500]


@pytest.mark.promise("peek-delay-range")
def test_a_long_peek_delay_gives_one_warning_and_a_short_one_is_refused():
    history = History(peek_delay=11.0)

    history.at(0.0)
    history.at(1.0)

    assert len(history.seen(events.Warned)) == 1
    with pytest.raises(SettingsError):
        History(peek_delay=0.05)


@pytest.mark.promise("stop")
def test_a_stop_asks_each_worker_to_exit_and_starts_none():
    history = idle_history(limit=2)
    history.peeks(1000, now=1.0)

    history.pool.stop(now=False)
    history.peeks(1000, now=2.0)
    running = history.pool.finished
    history.dies(1, 0, now=2.0)
    history.dies(2, 0, now=2.0)

    assert [process.commands[-1] for process in history.processes] == [Exit(), Exit()]
    assert (running, history.pool.finished) == (False, True)
    assert [event.reason for event in history.seen(events.WorkerStopped)] == ["stop", "stop"]


@pytest.mark.promise("stop")
def test_a_second_stop_interrupts():
    history = idle_history(limit=2)

    history.pool.stop(now=False)
    history.pool.stop(now=True)
    history.dies(1, -9, now=1.0)

    assert history.processes[0].interrupted
    assert history.seen(events.WorkerStopped)[0].reason == "interrupted"


def test_a_handler_that_cannot_be_found_is_critical_once_and_no_worker_is_started_again():
    history = idle_history(limit=2)

    history.reports(1, HandlerRefused("no such module"), now=0.1)
    history.dies(1, 0, now=0.2)
    history.at(30.0)

    assert [event.error for event in history.seen(events.Critical)] == ["no such module"]
    assert len(history.processes) == 1
    assert history.pool.finished


@pytest.mark.promise("failing-recoverability")
def test_a_message_that_cannot_be_moved_is_critical_once():
    history = idle_history(limit=1)
    stuck = Outcome(Kind.UNMOVABLE, 7, None, 6, "message 7 cannot be moved to 'error'")

    for now in (1.0, 2.0, 3.0):
        history.receives(1, 1, now=now, busy=True, failures=(stuck,))

    assert [event.error for event in history.seen(events.Critical)] == ["message 7 cannot be moved to 'error'"]


def test_the_rest_after_a_slow_peek_is_bounded():
    history = idle_history(limit=4, peek_delay=1.0)
    history.at(1.0)

    history.pool.on_answer(Answer("Sales", 0, seconds=97.0), 98.0)

    assert history.pool.seconds_to_next_peek(98.0) == 10.0


def test_senders_are_asked_to_notify_for_longer_than_the_longest_rest():
    asked = []
    history = idle_history(limit=4, peek_delay=0.5)
    history.pool._ask = lambda name, *, purge, wake_up_ttl_s: asked.append(wake_up_ttl_s)

    history.at(1.0)

    assert asked == [7.0]


def test_a_peek_without_an_answer_is_reported_once():
    history = idle_history(limit=4, peek_delay=1.0)
    history.at(1.0)

    assert history.at(5.9) == 6.0
    assert history.seen(events.Trouble) == []
    history.at(6.0)
    history.at(60.0)
    (told,) = history.seen(events.Trouble)
    assert "Sales" in told.error and "5 s" in told.error

    history.peeks(0, now=61.0)
    history.at(62.0)
    history.at(67.0)
    assert len(history.seen(events.Trouble)) == 2


def test_a_locked_queue_is_reported_once_until_a_peek_succeeds():
    history = idle_history(limit=4, peek_delay=1.0)
    locked = Answer("Sales", 0, error=LockTimeout("canceling statement due to lock timeout"))

    for now in (1.0, 2.0, 3.0):
        history.at(now)
        history.pool.on_answer(locked, now)
    (told,) = history.seen(events.Trouble)
    assert "Sales" in told.error and "lock on its table" in told.error
    assert history.pool.seconds_to_next_peek(3.0) == 1.0

    history.at(4.0)
    history.peeks(0, now=4.0)
    history.at(5.0)
    history.pool.on_answer(locked, 5.0)
    assert len(history.seen(events.Trouble)) == 2


# ------------------------------------------------------------------ processes with several messages
def died_with_two():
    """Return a pool of three workers; workers 1 and 2, of one process, died with messages in flight."""
    history = idle_history(limit=3)
    history.peeks(3, now=1.0)
    history.ready(2, 3, now=1.0)
    for worker, row_version in zip(history.processes, (7, 5), strict=False):
        worker.lost, worker.in_flight, worker.is_last = 2, (uuid4(), row_version), row_version == 5
    for handle in history.pool.handles[:2]:
        history.pool.on_exit(handle, -9, 1.1)
    history.at(2.0)
    return history


def test_messages_of_a_process_that_died_with_several_are_tried_alone_and_not_counted():
    history = died_with_two()

    alone = history.processes[3].assignment
    assert (history.crashes, alone.suspects, alone.receive) == ([], (5, 7), True)
    assert history.commands(3) == [Exit()]
    assert len(history.processes) == 4
    assert [event.count for event in history.seen(events.Quarantined)] == [2]
    assert len(history.seen(events.WorkerDied)) == 1


def test_nothing_else_is_received_until_all_suspects_were_tried():
    history = died_with_two()
    history.ready(4, now=2.0)
    history.dies(3, 0, now=2.1)
    history.reports(4, Tried(5), 2.2)
    history.peeks(100, now=2.3)
    before = len(history.processes)

    history.reports(4, Tried(7), 2.4)
    history.peeks(100, now=2.5)

    assert (before, len(history.processes)) == (4, 6)


def test_a_suspect_that_is_found_later_is_tried_by_another_worker():
    history = died_with_two()
    history.ready(4, now=2.0)
    history.processes[2].lost, history.processes[2].in_flight = 2, (uuid4(), 9)
    history.dies(3, -9, now=2.1)
    history.reports(4, Tried(5), 2.2)
    before = len(history.processes)

    history.reports(4, Tried(7), 2.3)
    history.at(9.0)

    assert before == 4
    assert history.commands(4)[-1] == Exit()
    assert history.processes[-1].assignment.suspects == (9,)


def test_a_suspect_that_another_worker_has_taken_stays_one_until_that_worker_has_ended():
    history = died_with_two()
    history.ready(4, now=2.0)
    history.processes[2].in_flight = (uuid4(), 5)  # taken before it was asked to exit
    history.reports(4, Tried(5), 2.1)
    history.reports(4, Tried(7), 2.2)
    history.dies(4, 0, now=2.3)
    history.at(9.0)
    before = len(history.processes)

    history.processes[2].in_flight = None
    history.dies(3, 0, now=9.1)
    history.at(9.2)

    assert before == 4
    assert history.processes[-1].assignment.suspects == (5,)


def test_a_death_of_the_one_that_is_tried_alone_counts():
    history = died_with_two()
    history.ready(4, now=2.0)
    worker = history.processes[3]
    worker.in_flight = (uuid4(), 5)

    history.dies(4, -9, now=2.1)
    history.at(4.0)

    (crash,) = history.crashes
    assert crash.row_version == 5
    assert history.processes[-1].assignment.suspects == (5, 7)  # until the answer says what became of it


def test_a_suspect_that_was_moved_to_the_error_queue_is_none_any_more():
    history = died_with_two()
    history.ready(4, now=2.0)
    history.processes[3].in_flight = (uuid4(), 5)
    history.dies(4, -9, now=2.1)
    (crash,) = history.crashes

    history.pool.on_answer(Answer("Sales", crash=crash, outcome=Outcome(Kind.MOVED_TO_ERROR, 5, uuid4(), 1, "x")), 2.2)
    history.at(4.0)

    assert history.processes[-1].assignment.suspects == (7,)
