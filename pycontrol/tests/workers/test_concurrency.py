"""The three concurrency strategies against the numbers of NServiceBus SQL Server transport versions 1 to 3."""

from dataclasses import FrozenInstanceError
from itertools import pairwise

import pytest

from rowpost.errors import SettingsError
from rowpost.workers.concurrency import (
    AdaptiveStrategy,
    FixedStrategy,
    PeekCounted,
    PeekStrategy,
    Received,
    StillBusy,
    check_peek_delay,
    make_strategy,
    poll_pause,
    spare_workers,
)


# ------------------------------------------------------------------ fixed: transports 1.x and 2.0
@pytest.mark.promise("fixed-pollers")
def test_level_10_with_4_queues_polls_with_40_pollers():
    pollers = sum(FixedStrategy().after(PeekCounted(0), limit=10).workers for _ in range(4))

    assert pollers == 40


@pytest.mark.promise("fixed-pollers")
def test_level_10_with_4_queues_and_the_callback_queue_polls_with_41_pollers():
    pollers = sum(FixedStrategy().after(PeekCounted(0), limit).workers for limit in (10, 10, 10, 10, 1))

    assert pollers == 41


def test_fixed_pollers_stay_whatever_they_find():
    strategy = FixedStrategy()

    for seen in (PeekCounted(0), Received(1, (-50,)), Received(2, (1000,)), StillBusy(1, 60.0)):
        strategy = strategy.after(seen, limit=10)
        assert (strategy.workers, strategy.stop) == (10, None)


# ------------------------------------------------------------------ adaptive: transport 2.1
@pytest.mark.promise("adaptive-pollers")
def test_five_hits_in_a_row_start_nothing():
    assert AdaptiveStrategy().after(Received(1, (5,)), limit=10).workers == 1


@pytest.mark.promise("adaptive-pollers")
def test_more_than_five_hits_in_a_row_start_a_poller_and_zero_the_hits():
    six = AdaptiveStrategy().after(Received(1, (6,)), limit=10)
    eleven = six.after(Received(1, (5,)), limit=10)
    twelve = eleven.after(Received(1, (1,)), limit=10)

    assert [six.workers, eleven.workers, twelve.workers] == [2, 2, 3]


@pytest.mark.promise("adaptive-pollers")
def test_hits_start_no_more_pollers_than_the_limit():
    assert AdaptiveStrategy().after(Received(1, (6000,)), limit=4).workers == 4


@pytest.mark.promise("adaptive-pollers")
def test_six_misses_in_a_row_stop_nothing():
    strategy = AdaptiveStrategy(workers=3).after(Received(1, (-6,)), limit=10)

    assert (strategy.workers, strategy.stop) == (3, None)


@pytest.mark.promise("adaptive-pollers")
def test_seven_misses_in_a_row_stop_the_poller_that_had_them():
    strategy = AdaptiveStrategy(workers=3).after(Received(2, (-6,)), limit=10).after(Received(2, (-1,)), limit=10)

    assert (strategy.workers, strategy.stop) == (2, 2)


@pytest.mark.promise("adaptive-pollers")
def test_the_last_poller_is_never_stopped():
    strategy = AdaptiveStrategy()

    for _ in range(100):
        strategy = strategy.after(Received(1, (-1,)), limit=10)
        assert (strategy.workers, strategy.stop) == (1, None)


@pytest.mark.promise("adaptive-pollers")
def test_a_hit_zeroes_the_misses():
    strategy = AdaptiveStrategy(workers=2).after(Received(1, (-6, 1, -6)), limit=10)

    assert (strategy.workers, strategy.stop) == (2, None)


@pytest.mark.promise("adaptive-pollers")
def test_a_miss_zeroes_the_hits():
    assert AdaptiveStrategy().after(Received(1, (5, -1, 5)), limit=10).workers == 1


def test_each_poller_counts_for_itself():
    strategy = AdaptiveStrategy(workers=2)

    for poller in (1, 2) * 3:
        strategy = strategy.after(Received(poller, (1,)), limit=10)

    assert strategy.workers == 2


def test_a_receive_busy_for_more_than_5_seconds_adds_one_poller_once_per_message():
    strategy = AdaptiveStrategy()

    at_five = strategy.after(StillBusy(1, 5.0), limit=10)
    over = at_five.after(StillBusy(1, 5.1), limit=10)
    later = over.after(StillBusy(1, 9.0), limit=10)
    next_message = later.after(Received(1, (1,)), limit=10).after(StillBusy(1, 6.0), limit=10)

    assert [step.workers for step in (at_five, over, later, next_message)] == [1, 2, 2, 3]


@pytest.mark.promise("limit-changes-at-run-time")
def test_a_lowered_limit_lowers_the_number_of_adaptive_pollers():
    assert AdaptiveStrategy(workers=8).after(PeekCounted(0), limit=3).workers == 3


def test_idle_pollers_back_off_from_50_milliseconds_to_one_second():
    pauses = [poll_pause(misses) for misses in range(1, 9)]

    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert all(earlier <= later for earlier, later in pairwise(pauses))


# ------------------------------------------------------------------ peek: transport 3 and later
@pytest.mark.promise("concurrency-limit")
def test_a_peek_starts_as_many_receivers_as_messages_wait_up_to_the_limit():
    targets = [PeekStrategy().after(PeekCounted(waiting), limit=4).workers for waiting in (1, 3, 4, 5, 1000)]

    assert targets == [1, 3, 4, 4, 4]


@pytest.mark.promise("long-handler-blocks-nobody")
def test_a_waiting_message_gets_a_second_receiver_while_one_is_busy():
    assert PeekStrategy().after(PeekCounted(1, busy=1), limit=4).workers == 2


@pytest.mark.promise("wrong-estimate-costs-little")
def test_the_first_empty_receive_ends_the_round_and_the_next_peek_is_at_once():
    receiving = PeekStrategy().after(PeekCounted(1000), limit=2)

    after_46_of_1000 = receiving.after(Received(1, (23, -1)), limit=2).after(Received(2, (23, -1)), limit=2)
    first_end = receiving.after(Received(1, (46, -1)), limit=2)

    assert receiving.receiving
    assert (first_end.receiving, first_end.peek_in) == (False, 0.0)
    assert not after_46_of_1000.receiving


@pytest.mark.promise("idle-peek-delay")
def test_an_empty_queue_is_peeked_once_a_delay():
    assert PeekStrategy(peek_delay=1.0).after(PeekCounted(0), limit=4).peek_in == 1.0


@pytest.mark.promise("idle-peek-delay")
def test_after_work_the_next_peek_is_at_once():
    strategy = PeekStrategy(peek_delay=5.0).after(PeekCounted(3), limit=4).after(Received(1, (3, -1)), limit=4)

    assert strategy.peek_in == 0.0


def test_a_batch_taken_below_the_limit_is_followed_by_a_peek_at_once():
    strategy = PeekStrategy().after(PeekCounted(1), limit=4).after(Received(1, (1,)), limit=4)

    assert strategy.peek_in == 0.0


def test_at_the_limit_nobody_peeks_before_a_receive_finds_nothing():
    strategy = PeekStrategy().after(PeekCounted(4), limit=4).after(Received(1, (4,)), limit=4)

    assert strategy.peek_in is None
    assert strategy.receiving


def test_a_late_empty_receive_of_a_finished_round_starts_no_second_peek():
    strategy = PeekStrategy().after(PeekCounted(9), limit=4).after(Received(1, (9, -1)), limit=4)

    assert strategy.after(Received(2, (-1,)), limit=4).peek_in is None


def test_rounds_that_bring_nothing_never_make_the_monitor_spin():
    strategy, pauses = PeekStrategy(peek_delay=1.0), []

    for _ in range(8):
        strategy = strategy.after(PeekCounted(5), limit=1).after(Received(1, (-1,)), limit=1)
        pauses.append(strategy.peek_in)

    assert pauses == [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_hit_ends_the_back_off_of_empty_rounds():
    strategy = PeekStrategy()
    for _ in range(5):
        strategy = strategy.after(PeekCounted(5), limit=1).after(Received(1, (-1,)), limit=1)

    strategy = strategy.after(PeekCounted(5), limit=1).after(Received(1, (5, -1)), limit=1)

    assert strategy.peek_in == 0.0


@pytest.mark.promise("one-worker-when-idle")
def test_an_idle_queue_needs_one_worker():
    strategy = (
        PeekStrategy()
        .after(PeekCounted(100), limit=8)
        .after(Received(1, (100, -1)), limit=8)
        .after(PeekCounted(0), limit=8)
    )

    assert strategy.workers == 1


@pytest.mark.promise("one-worker-when-idle")
def test_all_idle_workers_but_one_exit():
    idle = {1: 9.0, 2: 3.0, 3: 5.0, 4: 0.1}

    assert spare_workers(idle, workers=4, target=1, idle_timeout=2.0) == [1, 3, 2]
    assert spare_workers({1: 9.0, 2: 9.0}, workers=2, target=1, idle_timeout=2.0) == [1]
    assert spare_workers({1: 9.0}, workers=1, target=1, idle_timeout=2.0) == []
    assert spare_workers({1: 9.0, 2: 1.0}, workers=2, target=0, idle_timeout=2.0) == [1]
    assert spare_workers(idle, workers=4, target=3, idle_timeout=2.0) == [1]


@pytest.mark.parametrize("seconds", [0.0999, 0.05, 0.0, -1.0])
@pytest.mark.promise("peek-delay-range")
def test_a_peek_delay_below_100_milliseconds_is_refused(seconds):
    with pytest.raises(SettingsError):
        check_peek_delay(seconds)


@pytest.mark.parametrize("seconds", [0.1, 1.0, 10.0])
@pytest.mark.promise("peek-delay-range")
def test_a_peek_delay_of_100_milliseconds_to_10_seconds_is_accepted_silently(seconds):
    assert check_peek_delay(seconds) is None


@pytest.mark.promise("peek-delay-range")
def test_a_peek_delay_above_10_seconds_is_accepted_with_a_warning():
    warning = check_peek_delay(10.1)

    assert warning is not None
    assert "10.1" in warning


# ------------------------------------------------------------------ one interface
@pytest.mark.parametrize(("name", "polls"), [("fixed", True), ("adaptive", True), ("peek", False)])
def test_every_strategy_is_a_frozen_value_behind_one_interface(name, polls):
    strategy = make_strategy(name, peek_delay=2.0, limit=3)

    later = (
        strategy.after(PeekCounted(0), limit=3).after(Received(1, (1, -1)), limit=3).after(StillBusy(1, 1.0), limit=3)
    )

    assert later.polls == polls
    assert 1 <= later.workers <= 3
    with pytest.raises(FrozenInstanceError):
        strategy.workers = 9


@pytest.mark.parametrize("strategy", [FixedStrategy(), AdaptiveStrategy()])
def test_pollers_have_no_receive_mode_so_that_a_peek_may_be_requested_at_any_time(strategy):
    assert not strategy.after(PeekCounted(5), limit=3).receiving


def test_an_unknown_strategy_is_refused():
    with pytest.raises(SettingsError):
        make_strategy("guess")


def test_wake_ups_are_requested_from_the_second_peek_after_work_and_quick_peeks_follow():
    strategy, seen = PeekStrategy(peek_delay=1.0, peeks=0), []

    for _ in range(9):
        requested, strategy = strategy.wants_wake_up, strategy.after(PeekCounted(0), limit=4)
        seen.append((requested, strategy.peek_in))

    assert seen == [(False, 0.005)] + [(True, 0.005)] * 6 + [(True, 0.04), (True, 0.08)]
