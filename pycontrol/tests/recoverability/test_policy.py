"""What becomes of a failed message, decided without a database; and crews whose handlers fail, hang or die."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from rowpost.errors import MessageNotDeserialized, NoHandler, SettingsError
from rowpost.recoverability.discard import Discard
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.recoverability.policy import (
    Decision,
    Failure,
    MoveTo,
    Recoverability,
    Treatment,
    delayed_headers,
    delayed_rounds,
)
from rowpost.wire.message import Message
from rowpost.workers import events
from rowpost.workers.answers import Answer, Crash
from rowpost.workers.protocol import Backoff, CrashPolicy, Exit, InFlight, Ready, Tally, WorkerProgress
from rowpost.workers.supervision.health import Throttle
from tests.support.pool_history import idle_history

SECOND = timedelta(seconds=1)


# ------------------------------------------------------------------ decisions
@pytest.mark.parametrize(
    ("attempts", "delayed", "decided"),
    [
        (1, 0, (Decision.RETRY, 0)),
        (5, 0, (Decision.RETRY, 0)),
        (6, 0, (Decision.DELAY, 10)),
        (1, 1, (Decision.RETRY, 0)),
        (6, 1, (Decision.DELAY, 20)),
        (6, 2, (Decision.DELAY, 30)),
        (6, 3, (Decision.ERROR, 0)),
        (9, 3, (Decision.ERROR, 0)),
    ],
)
@pytest.mark.promise("default-retries")
def test_five_immediate_retries_then_delays_of_10_20_and_30_seconds(attempts, delayed, decided):
    decision, delay, *_ = Recoverability().decide(Failure(ValueError(), attempts, delayed, {}))

    assert (decision, delay.total_seconds()) == decided


@pytest.mark.parametrize("error", [MessageNotDeserialized("x"), NoHandler("x")])
@pytest.mark.promise("unreadable-body-fails-at-once")
def test_an_error_that_no_retry_can_fix_is_unrecoverable(error):
    assert Recoverability().decide(Failure(error, 1, 0, {}))[0] is Decision.ERROR


@pytest.mark.parametrize(
    ("said", "decided"),
    [
        (SECOND, Treatment(Decision.DELAY, SECOND)),
        (Decision.RETRY, Treatment(Decision.RETRY)),
        (MoveTo("vip"), Treatment(Decision.ERROR, error_queue="vip")),
        (Discard("old"), Treatment(Decision.DISCARD, discard=Discard("old"))),
    ],
)
def test_a_policy_names_a_decision_or_a_delay_or_a_reason_or_an_error_queue(said, decided):
    assert Recoverability(policy=lambda failure: said).decide(Failure(ValueError(), 1, 0, {})) == decided


@pytest.mark.parametrize("said", [None, 5, "retry", Decision.DISCARD])
def test_anything_else_from_a_policy_is_an_error_of_it(said):
    with pytest.raises((TypeError, ValueError), match=r"a policy (returns|that discards)"):
        Recoverability(policy=lambda failure: said).decide(Failure(ValueError(), 1, 0, {}))


def test_exponential_delays_double_up_to_the_longest():
    growing = Recoverability(0, 1_000, SECOND, backoff="exponential")
    limited = Recoverability(0, 1_000, SECOND, backoff="exponential", longest_delay=timedelta(seconds=60))
    linear = Recoverability(0, 1_000, SECOND, longest_delay=timedelta(seconds=3))

    def delays(policy, rounds):
        return [policy.decide(Failure(ValueError(), 1, each, {})).delay.total_seconds() for each in rounds]

    assert delays(growing, range(5)) == [1, 2, 4, 8, 16]
    assert delays(limited, (5, 6, 7, 999)) == [32, 60, 60, 60]
    assert delays(linear, range(5)) == [1, 2, 3, 3, 3]
    assert growing.decide(Failure(ValueError(), 1, 999, {})).delay == timedelta(days=36525)


def test_an_unknown_backoff_is_refused():
    with pytest.raises(SettingsError, match="Use one of: linear, exponential"):
        Recoverability(backoff="random")


@pytest.mark.parametrize(("text", "rounds"), [("2", 2), (None, 0), ("", 0), ("-1", 0), ("two", 0), ("²", 0)])
def test_the_rounds_behind_a_message_stand_in_its_header(text, rounds):
    assert delayed_rounds({"NServiceBus.Retries": text}) == rounds


def test_a_second_round_has_its_own_deliver_at_and_the_first_rounds_timestamp():
    first, second = datetime(2026, 4, 29, 21, 0, 0, 0, UTC), datetime(2026, 4, 29, 22, 0, 0, 0, UTC)

    once = delayed_headers({}, 1, first, SECOND, "M1")
    twice = delayed_headers(once, 2, second, 2 * SECOND, "M1")

    assert (once["NServiceBus.Retries"], twice["NServiceBus.Retries"]) == ("1", "2")
    assert twice["NServiceBus.Retries.Timestamp"] == "2026-04-29 21:00:00:000000 Z"
    assert twice["NServiceBus.DeliverAt"] == "2026-04-29 22:00:02:000000 Z"
    assert twice["NServiceBus.MessageId"] == "M1"


# ------------------------------------------------------------------ the in-flight message
def test_the_supervisor_reads_the_in_flight_message_and_its_start():
    memory = bytearray(InFlight.SIZE)
    in_flight = InFlight(memory)
    message = Message(uuid4(), 2**40, False, "", b"")

    before = (in_flight.message, in_flight.since)
    in_flight.starting(message)
    holding = (InFlight(memory).message, InFlight(memory).since is not None)
    in_flight.ended()

    assert before == (None, None)
    assert holding == ((message.id, 2**40), True)
    assert (in_flight.message, in_flight.since) == (None, None)


@pytest.mark.parametrize(
    ("exitcode", "overdue", "kind", "words"),
    [
        (-9, False, ChildProcessError, "signal 9"),
        (0, False, ChildProcessError, "exit code 0"),
        (-9, True, TimeoutError, "time limit of 2.5 s"),
    ],
)
def test_a_crash_says_how_the_worker_ended(exitcode, overdue, kind, words):
    crash = Crash("Sales", 1, exitcode, uuid4(), 7, CrashPolicy(5, 3, SECOND, "error", 2.5), overdue)

    assert isinstance(crash.error, kind)
    assert words in str(crash.error)


# ------------------------------------------------------------------ time limits
def timed(limit=2.0):
    """A pool whose worker 1 has reported that its handlers have a time limit."""
    history = idle_history(limit=1)
    history.reports(1, Ready(1000, CrashPolicy(5, 3, SECOND, "error", limit)), 0.0)
    history.peeks(1, now=0.0)
    return history


def test_a_handler_that_exceeds_its_time_limit_is_killed_with_its_worker():
    history = timed()
    worker = history.processes[0]
    worker.in_flight_since, worker.in_flight = 10.0, (uuid4(), 7)

    due = history.at(11.0)
    early = worker.killed
    history.at(12.0)
    history.dies(1, -9, now=12.1)

    assert (early, worker.killed) == (False, True)
    assert due <= 12.0
    assert [event.seconds for event in history.seen(events.TimedOut)] == [2.0]
    assert [event.reason for event in history.seen(events.WorkerStopped)] == ["time limit"]
    assert history.seen(events.WorkerDied) == []
    assert [(crash.overdue, crash.row_version) for crash in history.crashes] == [(True, 7)]


def test_a_busy_worker_is_looked_at_again_before_any_handler_can_exceed_its_limit():
    history = timed()

    assert history.at(100.0) <= 102.0


def test_a_worker_that_was_stopped_by_force_does_not_count_against_its_message():
    history = timed()
    history.processes[0].in_flight = (uuid4(), 7)

    history.pool.stop(now=True)
    history.dies(1, -9, now=1.0)

    assert history.crashes == []


def test_the_time_limit_does_not_count_against_a_handler_that_is_interrupted():
    history = timed()
    history.processes[0].in_flight_since, history.processes[0].in_flight = 10.0, (uuid4(), 7)

    history.pool.stop(now=True)
    history.at(100.0)
    history.dies(1, -15, now=100.0)

    assert history.processes[0].interrupted
    assert not history.processes[0].killed
    assert history.crashes == []


def test_a_handler_that_hangs_while_the_pool_stops_is_still_killed_at_its_limit():
    history = timed()
    history.processes[0].in_flight_since, history.processes[0].in_flight = 10.0, (uuid4(), 7)

    history.pool.stop(now=False)
    history.at(12.5)

    assert history.processes[0].killed


# ------------------------------------------------------------------ the consecutive-failures rate limit
@pytest.mark.parametrize(
    ("steps", "active"),
    [
        ([(2, False)], False),
        ([(3, False)], True),
        ([(2, False), (1, False)], True),
        ([(2, False), (2, True)], False),
        ([(5, False), (0, False)], True),
        ([(5, False), (0, True)], False),
        ([(5, False), (3, True)], True),
    ],
)
def test_i7_a_throttle_counts_failures_since_the_last_success(steps, active):
    throttle = Throttle(limit=3, wait=0.5)

    for failures, succeeded in steps:
        throttle = throttle.after(failures, succeeded=succeeded)

    assert throttle.active is active
    assert throttle.backoff == (0.5 if active else 0.0)


def test_i7_a_throttle_without_a_limit_never_starts():
    assert not Throttle().after(10**6, succeeded=False).active


@dataclass
class Streak:
    kinds: str
    handled: int
    streak: int


@pytest.mark.parametrize("case", [Streak("FFH", 1, 0), Streak("HFF", 1, 2), Streak("FDM", 0, 3), Streak("FPX", 0, 1)])
def test_i7_a_report_tells_the_failures_since_its_last_success(case):
    kinds = {
        "F": Kind.FAILED,
        "H": Kind.HANDLED,
        "D": Kind.DELAYED,
        "M": Kind.MOVED_TO_ERROR,
        "P": Kind.CORRUPT,
        "X": Kind.EXPIRED,
    }
    tally = Tally()

    for letter in case.kinds:
        tally.add(Outcome(kinds[letter], 1, uuid4()))
    report = tally.take(busy=True, round_=1)

    assert (report.handled, report.streak) == (case.handled, case.streak)
    assert tally.take(busy=True, round_=1).streak == 0


def throttled():
    """A crew with three busy workers, after five failures in a row."""
    history = idle_history(limit=3, throttle_after=5, throttle_wait=0.5)
    history.peeks(100, now=1.0)
    history.ready(2, 3, now=1.0)
    for number in (1, 2, 3):
        history.receives(number, 1, now=1.1, busy=True, handled=1)
    history.receives(2, 5, now=2.0, busy=True, failed=5, streak=5)
    return history


def test_i7_after_enough_failures_one_worker_stays_and_is_told_to_take_its_time():
    history = throttled()

    left = [number for number in (1, 2, 3) if Exit() not in history.commands(number)]

    assert len(left) == 1
    assert Backoff(0.5) in history.commands(left[0])
    assert [(e.failures, e.wait) for e in history.seen(events.ThrottlingStarted)] == [(5, 0.5)]
    assert history.pool.snapshot(2.0).throttled


def test_i7_the_first_success_restores_the_workers():
    history = throttled()
    (left,) = [number for number in (1, 2, 3) if Exit() not in history.commands(number)]
    for number in {1, 2, 3} - {left}:
        history.dies(number, 0, now=2.1)

    history.receives(left, 1, now=3.0, busy=True, handled=1)

    assert history.commands(left)[-1] == Backoff(0.0)
    assert len(history.seen(events.ThrottlingEnded)) == 1
    assert not history.pool.snapshot(3.0).throttled


def test_i7_crashes_count_among_the_failures():
    history = idle_history(limit=1, throttle_after=2)
    crash = Crash("Sales", 1000, -9, uuid4(), 7)

    for _ in range(2):
        history.pool.on_answer(Answer("Sales", crash=crash, outcome=Outcome(Kind.FAILED, 7, crash.row_id, 1, "x")), 1.0)

    assert history.pool.snapshot(1.0).throttled


# ------------------------------------------------------------------ what is told
def test_a_delayed_retry_is_an_event_and_a_figure_of_its_own():
    history = idle_history(limit=1)
    history.peeks(1, now=0.0)
    outcome = Outcome(Kind.DELAYED, 7, uuid4(), 6, "ValueError: no")

    history.reports(1, WorkerProgress(True, 1, (1,), delayed=1, failures=(outcome,), streak=1), 1.0)

    assert [event.attempts for event in history.seen(events.Delayed)] == [6]
    assert history.pool.snapshot(1.0).delayed == 1
