"""How many messages share a transaction: decisions without a database."""

from dataclasses import replace

import pytest

from rowpost.errors import SettingsError
from rowpost.pipeline.batch_size import BatchSize, batch_size

QUICK = 0.0001  # seconds


def adaptive(**options):
    return BatchSize(**({"limit": 100, "budget": 0.05} | options))


def sizes(size, *steps):
    """The sizes along a history of (taken, seconds)."""
    found = []
    for taken, seconds in steps:
        size = size.after(taken, seconds)
        found.append(size.now)
    return found


def test_a_backlog_of_quick_handlers_quadruples_the_size_up_to_the_limit():
    full = [1, 4, 16, 64, 100, 100]

    found = sizes(adaptive(), *((taken, QUICK * taken) for taken in full))

    assert found == [4, 16, 64, 100, 100, 100]


def test_no_more_messages_are_taken_than_fit_into_the_budget_at_the_pace_of_the_last_ones():
    found = sizes(adaptive(), (1, 0.01), (4, 0.04), (5, 0.05), (5, 0.1))

    assert found == [4, 5, 5, 2]


def test_handlers_that_take_longer_than_the_budget_have_a_transaction_each():
    found = sizes(adaptive(), (1, 0.2), (1, 0.05), (1, 0.0251))

    assert found == [1, 1, 1]


def test_no_more_messages_are_taken_than_fit_into_eight_megabytes_at_the_size_of_the_last_ones():
    million = 2**20

    grown = adaptive().after(1, QUICK, million).after(4, QUICK, 4 * million)

    assert (grown.now, grown.after(8, QUICK, 8 * million).now, grown.after(8, QUICK, 32 * million).now) == (8, 8, 2)


def test_a_batch_that_is_not_full_has_emptied_the_queue_and_the_next_is_of_one():
    found = sizes(adaptive(now=64), (63, QUICK), (1, QUICK))

    assert found == [1, 4]


def test_an_empty_receive_narrows_too():
    assert adaptive(now=64).after(0, 0.0).now == 1


def test_after_a_failure_those_before_it_go_together_it_goes_alone_and_then_the_size_grows_from_one():
    failed = adaptive(now=32).after_failure(place=8)

    found = sizes(failed, (7, QUICK), (1, QUICK), (4, QUICK))

    assert failed.now == 7
    assert found == [1, 4, 16]


def test_after_a_failure_of_the_first_or_of_one_alone_the_next_goes_alone():
    assert adaptive(now=32).after_failure(place=1).now == 1
    assert sizes(adaptive().after_failure(place=1), (1, QUICK)) == [4]


def test_those_before_a_failure_that_fail_again_are_parted_again():
    again = adaptive(now=32).after_failure(place=8).after_failure(place=3)

    assert (again.now, sizes(again, (2, QUICK), (1, QUICK))) == (2, [1, 4])


def test_others_that_took_the_messages_before_a_failure_end_the_plan():
    assert sizes(adaptive(now=32).after_failure(place=8), (5, QUICK)) == [1]


def test_a_loss_that_none_of_the_messages_caused_alone_halves_the_size_until_all_of_them_went_through():
    lost = adaptive(now=32).after_loss(taken=20)

    found = sizes(lost, (10, QUICK), (10, QUICK), (40, QUICK))

    assert lost.now == 10
    assert found == [10, 40, 100]


def test_losses_in_a_row_come_down_to_one_message():
    size = adaptive(now=32)
    found = []
    for _ in range(6):
        size = size.after_loss(size.now)
        found.append(size.now)

    assert found == [16, 8, 4, 2, 1, 1]


def test_a_fixed_size_knows_no_budget_and_comes_back_at_once_after_what_failed():
    size = batch_size(20, 0.05)

    found = sizes(size, (20, 9.0), (3, QUICK), (0, 0.0))
    after_failure = sizes(size.after_failure(place=3), (2, 9.0), (1, 9.0))

    assert (size.now, found, after_failure) == (20, [20, 20, 20], [1, 20])


def test_off_is_one_message_at_any_time():
    assert sizes(batch_size("off", 0.05), (1, QUICK), (1, QUICK)) == [1, 1]


@pytest.mark.parametrize("setting", ["on", "", 0, -1, 501, True, 1.5, None])
def test_any_other_setting_is_refused(setting):
    with pytest.raises(SettingsError):
        batch_size(setting, 0.05)


def test_after_a_conflict_messages_go_alone_and_longer_after_each_further_one():
    first = adaptive(now=32).after_conflict()
    again = replace(first, now=8, held=0).after_conflict()

    assert [sizes(each, *[(1, QUICK)] * 400).index(4) for each in (first, again)] == [63, 255]


def test_a_message_that_fails_alone_does_not_end_the_time_of_going_alone():
    size = adaptive(now=32).after_conflict().after_failure(place=1)

    assert sizes(size, *[(1, QUICK)] * 10) == [1] * 10


def test_batches_that_go_well_make_the_next_conflict_a_shorter_matter():
    size = adaptive(now=4).after_conflict()
    for _ in range(64):
        size = size.after(1, QUICK)

    assert size.after(4, 4 * QUICK).after_conflict().held == adaptive(now=4).after_conflict().held
