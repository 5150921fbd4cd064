"""How many messages share a transaction: decisions without a database."""

import pytest

from rowpost.batch_size import BatchSize, batch_size
from rowpost.errors import SettingsError

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


def test_a_backlog_of_quick_handlers_doubles_the_size_up_to_the_limit():
    full = [1, 2, 4, 8, 16, 32, 64, 100, 100]

    found = sizes(adaptive(), *((taken, QUICK * taken) for taken in full))

    assert found == [2, 4, 8, 16, 32, 64, 100, 100, 100]


def test_no_more_messages_are_taken_than_fit_into_the_budget_at_the_pace_of_the_last_ones():
    found = sizes(adaptive(), (1, 0.01), (2, 0.02), (4, 0.04), (5, 0.05), (5, 0.1))

    assert found == [2, 4, 5, 5, 2]


def test_handlers_that_take_longer_than_the_budget_have_a_transaction_each():
    found = sizes(adaptive(), (1, 0.2), (1, 0.05), (1, 0.0251))

    assert found == [1, 1, 1]


def test_no_more_messages_are_taken_than_fit_into_eight_megabytes_at_the_size_of_the_last_ones():
    million = 2**20

    grown = adaptive().after(1, QUICK, million).after(2, QUICK, 2 * million).after(4, QUICK, 4 * million)

    assert (grown.now, grown.after(8, QUICK, 8 * million).now, grown.after(8, QUICK, 32 * million).now) == (8, 8, 2)


def test_a_batch_that_is_not_full_has_emptied_the_queue_and_the_next_is_of_one():
    found = sizes(adaptive(now=64), (63, QUICK), (1, QUICK))

    assert found == [1, 2]


def test_an_empty_receive_narrows_too():
    assert adaptive(now=64).after(0, 0.0).now == 1


def test_after_a_failure_as_many_go_alone_as_were_rolled_back_and_then_the_size_grows_again():
    failed = adaptive(now=32).after_failure(3)

    found = sizes(failed, (1, QUICK), (1, QUICK), (1, QUICK), (2, QUICK))

    assert failed.now == 1
    assert found == [1, 1, 2, 4]


def test_a_second_failure_never_shortens_what_goes_alone():
    size = adaptive(now=32).after_failure(5).after(1, QUICK).after_failure(1)

    assert (size.now, size.alone) == (1, 4)


def test_a_fixed_size_knows_no_budget_and_returns_at_once_after_what_went_alone():
    size = batch_size(20, 0.05)

    found = sizes(size, (20, 9.0), (3, QUICK), (0, 0.0))
    after_failure = sizes(size.after_failure(2), (1, 9.0), (1, 9.0))

    assert (size.now, found, after_failure) == (20, [20, 20, 20], [1, 20])


def test_off_is_one_message_at_any_time():
    assert sizes(batch_size("off", 0.05), (1, QUICK), (1, QUICK)) == [1, 1]


@pytest.mark.parametrize("setting", ["on", "", 0, -1, 501, True, 1.5, None])
def test_any_other_setting_is_refused(setting):
    with pytest.raises(SettingsError):
        batch_size(setting, 0.05)
