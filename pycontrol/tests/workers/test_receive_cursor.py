"""Where workers begin, alone and beside others: what is skipped, and what is found again."""

import pytest

from rowpost.workers.receive_cursor import ReceiveCursor, SharedHighWaterMark

LONG_AGO, NOW = 100.0, 100.5


@pytest.fixture
def frontier():
    """Somebody has just looked from the start."""
    return SharedHighWaterMark(at=1000, looked_at=LONG_AGO, cost=0.0)


def receive(anchor, count, first, last, now=NOW, taken=None):
    anchor.claim(anchor.begin(now), count)
    anchor.took(count if taken is None else taken, first, last)


def test_looks_from_the_start_that_are_dear_are_few():
    """A million dead rows, which an old transaction holds, take a tenth of a second each time."""
    anchor, now, looks = ReceiveCursor(), 1000.0, 0
    while now < 1100.0:
        now += 0.001  # a message
        begin = anchor.begin(now)
        anchor.claim(begin, 1)
        if begin is None:
            looks, now = looks + 1, now + 0.1
            anchor.looked(now, 0.1)
        anchor.took(1, 1, 1)

    assert 1 < looks <= 100.0 / (20 * 0.1) + 1


def test_a_crew_looks_as_often_as_one_worker_does(frontier):
    crew = [ReceiveCursor(frontier) for _ in range(16)]

    looks = [anchor.begin(LONG_AGO + 1.0) for anchor in crew].count(None)

    assert looks == 1


def test_workers_that_find_nothing_together_do_not_all_look_from_the_start(frontier):
    """They would go over the same dead rows, sixteen times, when a backlog ends."""
    crew = [ReceiveCursor(frontier) for _ in range(16)]

    looks = [anchor.looks_back(NOW) for anchor in crew].count(True)
    crew[0].looked(NOW + 0.01, seconds=0.01)

    assert looks == 1
    assert (crew[1].looks_back(NOW + 0.2), crew[1].looks_back(NOW + 0.22)) == (False, True)


def test_a_look_that_never_ends_is_followed_by_another(frontier):
    lost, anchor = ReceiveCursor(frontier), ReceiveCursor(frontier)
    assert lost.begin(LONG_AGO + 1.0) is None

    assert anchor.begin(LONG_AGO + 4.0) is None


def test_workers_that_receive_side_by_side_begin_above_one_another(frontier):
    first, second = ReceiveCursor(frontier), ReceiveCursor(frontier)

    begins = []
    for anchor in (first, second, first):
        begins.append(anchor.begin(NOW))
        anchor.claim(begins[-1], 500)

    assert begins == [1000, 1500, 2000]


def test_a_new_worker_begins_where_the_others_are(frontier):
    assert ReceiveCursor(frontier).begin(NOW) == 1000


def test_what_may_come_back_is_received_again_whatever_others_took_meanwhile(frontier):
    anchor, other = ReceiveCursor(frontier, at=900), ReceiveCursor(frontier)
    anchor.claim(anchor.begin(NOW), 100)
    anchor.gave_back()
    receive(other, 500, 1101, 1600)

    begins = [anchor.begin(NOW)]
    receive(anchor, 50, 1001, 1050)  # half of what it gave back
    begins.append(anchor.begin(NOW))
    receive(anchor, 100, 1051, 1700)
    begins.append(anchor.begin(NOW))
    receive(anchor, 100, 1701, 1800)

    assert begins == [900, 1050, 1700]
    assert anchor.begin(NOW) == max(1800, frontier.at)


def test_rows_that_appear_below_are_taken_to_their_end(frontier):
    """A large transaction commits late: the worker that finds its first rows goes on with the others."""
    anchor = ReceiveCursor(frontier, at=990)
    anchor.claim(None, 100)
    anchor.took(100, 301, 400)

    assert anchor.begin(NOW) == 400


def test_one_that_takes_less_than_it_claimed_gives_the_rest_free(frontier):
    anchor, other = ReceiveCursor(frontier), ReceiveCursor(frontier)
    receive(anchor, 500, 1001, 1020, taken=20)

    assert other.begin(NOW) == 1020


def test_one_that_finds_nothing_leaves_others_to_their_own(frontier):
    """What it claimed was beyond the end of the queue, and messages will come there."""
    anchor, other = ReceiveCursor(frontier, at=1000), ReceiveCursor(frontier, at=980)
    anchor.claim(anchor.begin(NOW), 500)
    anchor.found_nothing()

    assert (anchor.begin(NOW), other.begin(NOW)) == (1000, 980)
