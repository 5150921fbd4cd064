"""Where batches of the log end: at whole transactions, with at most as many messages as the limit, never behind the target."""

import random
from datetime import datetime

import pytest

from rowpost.spark.source.log_ahead import LookAhead, Transaction

AT = datetime(2026, 1, 1)


def known(*transactions):
    ahead = LookAhead()
    for end, messages in transactions:
        ahead.add(Transaction(end, messages, AT))
    return ahead


def test_a_batch_has_as_many_whole_transactions_as_fit():
    ahead = known((10, 3), (20, 3), (30, 3))

    assert ahead.end(6, 100) == 20
    assert ahead.end(8, 100) == 20
    assert ahead.end(9, 100) == 30
    assert ahead.end(None, 100) == 30


def test_a_transaction_that_is_larger_than_the_limit_is_a_batch_of_its_own():
    assert known((10, 50), (20, 1)).end(6, 100) == 10


def test_a_batch_ends_before_the_target_of_a_run_that_ends():
    ahead = known((10, 3), (20, 3))

    assert ahead.end(100, 19) == 10
    assert ahead.end(100, 9) is None


def test_transactions_without_messages_are_no_batch_but_known():
    ahead = known((10, 0), (20, 0))

    assert (ahead.end(5, 100), ahead.messages, ahead.scanned) == (None, 0, 20)


def test_what_is_read_is_forgotten_and_the_rest_is_behind():
    ahead = known((10, 3), (20, 4))

    ahead.begin(10)

    assert (ahead.messages, ahead.scanned, ahead.end(100, 100)) == (4, 20, 20)
    assert [each.messages for each in ahead.after(10)] == [4]
    assert ahead.after(20) == []


@pytest.mark.parametrize("position", [5, 99])
def test_a_position_that_is_not_known_begins_anew(position):
    ahead = known((10, 3), (20, 4))
    ahead.begin(10)

    ahead.begin(position)

    assert (ahead.messages, ahead.scanned) == (0, position)


@pytest.mark.parametrize("seed", range(50))
def test_batches_cover_a_random_log_without_gap_or_overlap(seed):
    chance = random.Random(seed)
    ends = sorted(chance.sample(range(1, 10_000), 200))
    log = [Transaction(end, chance.randrange(12), AT) for end in ends]
    ahead, position, batches, limit = LookAhead(), 0, [], chance.randint(1, 40)
    while position < ends[-1]:
        ahead.begin(position)
        while ahead.messages < limit and ahead.scanned < ends[-1]:
            ahead.add(next(each for each in log if each.end > ahead.scanned))
        end = ahead.end(limit, 10_000) or ahead.scanned
        batches.append([each for each in log if position < each.end <= end and each.messages])
        position = end

    assert [each for batch in batches for each in batch] == [each for each in log if each.messages]
    assert all(sum(each.messages for each in batch) <= limit or len(batch) == 1 for batch in batches)
