"""Receiving, peeking, browsing and purging, on every engine that can be reached."""

import threading
from datetime import timedelta

import pytest

from rowpost.errors import DatabaseError, InvalidCount, QueueNotFound
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage


def fill(queue, count):
    queue.send_many(OutgoingMessage(str(number).encode()) for number in range(count))


def bodies(messages):
    return [int(message.body) for message in messages]


@pytest.mark.promise("oldest-first")
def test_a_single_consumer_receives_in_row_version_order(queue):
    fill(queue, 30)

    received = queue.receive(1) + queue.receive(9) + queue.receive(500)

    assert bodies(received) == list(range(30))
    assert [m.row_version for m in received] == sorted(m.row_version for m in received)


@pytest.mark.promise("oldest-first")
def test_rows_that_took_the_place_of_others_come_in_their_order_too(queue, sql):
    fill(queue, 40)
    first = queue.receive(20)
    sql.reuse_space(queue.name)
    fill(queue, 20)

    received = queue.receive(500)

    assert bodies(first) == list(range(20))
    assert bodies(received) == [*range(20, 40), *range(20)]
    assert [m.row_version for m in received] == sorted(m.row_version for m in received)


@pytest.mark.promise("locked-rows-are-skipped")
def test_a_locked_row_is_skipped_without_waiting(queue, open_database, needs_readpast):
    fill(queue, 3)
    other = open_database()
    other.begin()
    held = Queue(queue.name, other).receive(1)

    received = queue.receive(1)

    assert bodies(held) == [0]
    assert bodies(received) == [1]
    other.rollback()
    assert bodies(queue.receive(5)) == [0, 2]


@pytest.mark.promise("peek-skips-locked-rows")
def test_peek_counts_neither_locked_rows_nor_waits_for_them(queue, open_database, needs_readpast):
    fill(queue, 2)
    other = open_database()
    other.begin()
    Queue(queue.name, other).receive(1)

    one_locked = queue.peek()
    Queue(queue.name, other).receive(1)
    all_locked = queue.peek()
    other.rollback()

    assert (one_locked, all_locked, queue.peek()) == (1, 0, 2)


@pytest.mark.promise("peek-skips-locked-rows")
def test_browse_leaves_out_the_rows_that_receivers_have_locked(queue, open_database, needs_readpast):
    fill(queue, 3)
    other = open_database()
    other.begin()
    Queue(queue.name, other).receive(1)

    seen = queue.browse()

    other.rollback()
    assert bodies(seen) == [1, 2]
    assert bodies(queue.browse()) == [0, 1, 2]


@pytest.mark.promise("empty-receive-leaves-no-lock")
def test_an_empty_queue_gives_nothing_and_leaves_no_lock(queue, database, sql):
    database.begin()

    received = queue.receive(10)
    locks = sql.row_locks(queue.name)
    database.commit()

    assert received == []
    assert locks == 0


@pytest.mark.promise("each-message-once")
def test_several_consumers_share_the_messages_without_loss_or_double(queue, open_database):
    fill(queue, 400)
    received: list[int] = []

    def consume():
        own = Queue(queue.name, open_database())
        while batch := own.receive(3):
            received.extend(bodies(batch))

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sorted(received) == list(range(400))


def test_a_rollback_returns_messages_to_their_places(queue, database):
    fill(queue, 3)
    database.begin()
    queue.receive(2)

    database.rollback()

    assert bodies(queue.receive(3)) == [0, 1, 2]


def test_an_anchor_skips_what_lies_at_or_below_it(queue):
    fill(queue, 4)
    versions = [row.row_version for row in queue.browse()]

    above = queue.receive(10, after_row_version=versions[1])

    assert bodies(above) == [2, 3]
    assert bodies(queue.receive(10, after_row_version=None)) == [0, 1]


def test_one_message_is_received_by_its_row_version_once(queue):
    fill(queue, 3)
    middle = queue.browse()[1].row_version

    first, second = queue.receive_one(middle), queue.receive_one(middle)

    assert (first.body, second) == (b"1", None)
    assert bodies(queue.receive(5)) == [0, 2]


def test_a_message_that_somebody_holds_is_not_received_by_row_version(queue, open_database, needs_readpast):
    fill(queue, 1)
    version = queue.browse()[0].row_version
    other = open_database()
    other.begin()
    Queue(queue.name, other).receive(1)

    assert queue.receive_one(version) is None
    other.rollback()
    assert queue.receive_one(version).row_version == version


@pytest.mark.parametrize("count", [0, -1, 501, 5_000_000_000])
def test_a_count_out_of_range_is_refused_and_nothing_is_taken(queue, count):
    fill(queue, 1)

    with pytest.raises(InvalidCount):
        queue.receive(count)

    assert queue.peek() == 1


@pytest.mark.parametrize("verb", ["peek", "browse"])
@pytest.mark.parametrize("count", [0, -5, 10_001])
def test_looking_with_a_count_out_of_range_is_refused(queue, verb, count):
    with pytest.raises(InvalidCount):
        getattr(queue, verb)(count)


@pytest.mark.parametrize("procedure", ["purge_queue", "purge_expired"])
@pytest.mark.parametrize("count", [0, 4_001, None])
def test_purging_with_a_count_out_of_range_is_refused(queue, database, procedure, count):
    with pytest.raises(InvalidCount):
        database.call(procedure, queue=queue.name, count=count)


def test_peek_stops_counting_where_it_is_told(queue):
    fill(queue, 25)

    assert (queue.peek(10), queue.peek(25), queue.peek(1000)) == (10, 25, 25)


def test_peek_and_browse_take_nothing(queue):
    fill(queue, 2)

    queue.peek()
    queue.browse()

    assert bodies(queue.receive(5)) == [0, 1]


def test_a_message_that_is_received_while_it_is_browsed_is_left_out_and_never_shown_empty(queue, monkeypatch):
    for body in (b"first", b"second"):
        queue.send(body)
    call = queue.database.call

    def received_between(procedure, *arguments, **options):
        rows = call(procedure, *arguments, **options)
        if procedure == "browse_messages":
            queue.receive()
        return rows

    monkeypatch.setattr(queue.database, "call", received_between)

    assert [message.body for message in queue.browse(2)] == [b"second"]


def test_browse_pages_by_anchor_and_cuts_bodies(queue):
    queue.send_many([OutgoingMessage(b"abcdef"), OutgoingMessage(b"ghijkl")])

    first = queue.browse(1, max_body_bytes=3)
    second = queue.browse(1, after_row_version=first[0].row_version, max_body_bytes=0)

    assert [(row.body, row.body_bytes) for row in first + second] == [(b"abc", 6), (b"", 6)]


@pytest.mark.promise("expired-is-dropped")
def test_an_expired_row_is_flagged_and_a_living_one_is_not(queue, sql):
    queue.send(b"0", time_to_be_received=timedelta(milliseconds=1))
    queue.send(b"1", time_to_be_received=timedelta(minutes=5))
    queue.send(b"2")
    sql.wait_until_expired(queue.name)

    received = queue.receive(3)

    assert [message.expired for message in received] == [True, False, False]


@pytest.mark.promise("purge-of-expired")
def test_purging_10000_expired_rows_leaves_the_10_living_ones_in_3_batches(make_queue, sql):
    queue = make_queue()
    sql.insert_expired(queue.name, 10_000)
    fill(queue, 10)
    batches = []

    purged = queue.purge_expired(batch=4_000, progress=batches.append)

    assert (purged, len(batches)) == (10_000, 3)
    assert bodies(queue.receive(100)) == list(range(10))


@pytest.mark.promise("purge-on-startup")
def test_purge_empties_the_queue_and_counts(queue):
    fill(queue, 120)

    assert queue.purge(batch=50) == 120
    assert queue.peek() == 0


def test_a_purge_that_cannot_be_recorded_for_streams_removes_nothing(make_queue, sql):
    queue = make_queue()
    fill(queue, 3)
    sql.run(f"ALTER TABLE rowpost.purge ADD CONSTRAINT no_purge CHECK (queue_key <> '{queue.name}')")

    try:
        with pytest.raises(DatabaseError):
            queue.purge()
    finally:
        sql.run("ALTER TABLE rowpost.purge DROP CONSTRAINT no_purge")

    assert queue.peek() == 3


def test_a_purge_joins_the_callers_transaction(make_queue, database):
    queue = make_queue()
    fill(queue, 3)

    database.begin()
    purged = queue.purge()
    database.rollback()

    assert (purged, queue.peek()) == (3, 3)


def test_purging_steps_over_what_a_receiver_holds(queue, open_database, needs_readpast):
    fill(queue, 3)
    other = open_database()
    other.begin()
    Queue(queue.name, other).receive(1)

    purged = queue.purge()
    other.rollback()

    assert purged == 2
    assert bodies(queue.receive(3)) == [0]


def test_the_dispatcher_receives_by_name(queue, database):
    fill(queue, 3)

    rows = database.call("receive_messages", queue_name=queue.name, count=2)

    assert [row[4] for row in rows] == [b"0", b"1"]


def test_receiving_from_an_unknown_queue_says_what_to_do(database):
    with pytest.raises(QueueNotFound, match="rowpost queue list"):
        Queue("Nowhere", database).receive()


def test_the_receive_that_opens_a_transaction_is_undone_by_its_rollback(queue, database):
    fill(queue, 1)

    rows = database.call("receive_messages", queue=queue.name, begin=True, count=1)
    inside = database.in_transaction
    database.rollback()

    assert (len(rows), inside, database.in_transaction) == (1, True, False)
    assert queue.peek() == 1


def test_a_receive_that_fails_while_opening_a_transaction_leaves_none_open(queue, database):
    with pytest.raises(InvalidCount):
        database.call("receive_messages", queue=queue.name, begin=True, count=0)

    assert not database.in_transaction
    assert queue.send(b"still usable")
