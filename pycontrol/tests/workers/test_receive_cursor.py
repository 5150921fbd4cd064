"""Where the receives of one and of several workers start: what is skipped, and what is found again."""

import pytest

from rowpost.workers.protocol import SharedHighWaterMark
from rowpost.workers.worker.receive_cursor import ReceiveCursor

LONG_AGO, NOW = 100.0, 100.5


@pytest.fixture
def shared():
    """A worker has just scanned from the start."""
    return SharedHighWaterMark(row_version=1000, scanned_at=LONG_AGO, scan_seconds=0.0)


def receive(cursor, count, first, last, now=NOW, taken=None):
    """Return where the receive started."""
    start = cursor.start(now, count)
    cursor.removed(count if taken is None else taken, first, last)
    return start


def test_slow_full_scans_are_rare():
    """A million dead rows, which an old transaction holds, take a tenth of a second each time."""
    cursor, now, scans = ReceiveCursor(), 1000.0, 0
    while now < 1100.0:
        now += 0.001  # a message
        start = cursor.start(now, 1)
        if start is None:
            scans, now = scans + 1, now + 0.1
            cursor.full_scan_ended(now, 0.1)
        cursor.removed(1, 1, 1)

    assert 1 < scans <= 100.0 / (20 * 0.1) + 1


def test_a_pool_scans_as_often_as_one_worker_does(shared):
    cursors = [ReceiveCursor(shared) for _ in range(16)]

    scans = [cursor.start(LONG_AGO + 1.0, 500) for cursor in cursors].count(None)

    assert scans == 1


def test_workers_that_find_nothing_together_do_not_all_scan_from_the_start(shared):
    """They would go over the same dead rows, sixteen times, when a backlog ends."""
    cursors = [ReceiveCursor(shared) for _ in range(16)]

    scans = [cursor.needs_full_scan(NOW) for cursor in cursors].count(True)
    cursors[0].full_scan_ended(NOW + 0.01, seconds=0.01)

    assert scans == 1
    assert (cursors[1].needs_full_scan(NOW + 0.2), cursors[1].needs_full_scan(NOW + 0.22)) == (False, True)


def test_a_scan_that_never_ends_is_followed_by_another(shared):
    lost, cursor = ReceiveCursor(shared), ReceiveCursor(shared)
    assert lost.start(LONG_AGO + 1.0, 500) is None

    assert cursor.start(LONG_AGO + 4.0, 500) is None


def test_workers_that_receive_concurrently_start_above_one_another(shared):
    first, second = ReceiveCursor(shared), ReceiveCursor(shared)

    starts = [cursor.start(NOW, 500) for cursor in (first, second, first)]

    assert starts == [1000, 1500, 2000]


def test_a_new_worker_starts_where_the_others_are(shared):
    assert ReceiveCursor(shared).start(NOW, 500) == 1000


def test_what_may_come_back_is_received_again_whatever_others_took_meanwhile(shared):
    cursor, other = ReceiveCursor(shared, row_version=900), ReceiveCursor(shared)
    cursor.start(NOW, 100)
    cursor.rolled_back()
    receive(other, 500, 1101, 1600)

    half = receive(cursor, 50, 1001, 1050)
    rest = receive(cursor, 100, 1051, 1700)
    next_ones = receive(cursor, 100, 1701, 1800)

    assert (half, rest, next_ones) == (900, 1050, 1700)
    mark = shared.row_version
    assert cursor.start(NOW, 100) == max(1800, mark)


def test_rows_that_appear_below_are_taken_to_their_end(shared):
    """A large transaction commits late: the worker that finds its first rows goes on with the others."""
    cursor = ReceiveCursor(shared, row_version=990)
    cursor.start_scan(100)
    cursor.removed(100, 301, 400)

    assert cursor.start(NOW, 500) == 400


def test_a_worker_that_removes_less_than_it_reserved_releases_the_rest(shared):
    cursor, other = ReceiveCursor(shared), ReceiveCursor(shared)
    receive(cursor, 500, 1001, 1020, taken=20)

    assert other.start(NOW, 500) == 1020


def test_a_worker_that_finds_nothing_resets_the_shared_mark(shared):
    """What it reserved was beyond the end of the queue, and messages will come there."""
    cursor, other = ReceiveCursor(shared, row_version=1000), ReceiveCursor(shared, row_version=980)
    cursor.start(NOW, 500)
    cursor.found_nothing()
    mark = shared.row_version

    assert (mark, other.start(NOW, 500), cursor.row_version) == (0, 980, 1000)


def test_a_scan_that_waited_for_a_lock_does_not_put_off_the_next_one_for_long():
    cursor = ReceiveCursor()

    cursor.full_scan_ended(100.0, seconds=60.0)

    assert not cursor.needs_full_scan(109.0)
    assert cursor.needs_full_scan(110.0)
