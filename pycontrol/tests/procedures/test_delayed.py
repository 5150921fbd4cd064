"""Delayed messages, on every engine that can be reached."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.errors import InvalidCount, InvalidDelay, MessageNotFound
from rowpost.transport.delayed_messages import DelayedMessages
from rowpost.transport.queue import Queue
from rowpost.wire.message import encode_headers

FORWARD = "NServiceBus.SqlServer.ForwardDestination"


@pytest.fixture
def delayed(make_queue, database):
    """A queue of its own, with verbs for its delayed table."""
    return Delayed(make_queue(), database)


class Delayed:
    def __init__(self, queue, database):
        self.queue, self.database = queue, database

    def store(self, body, delay, headers=None):
        self.database.call(
            "delay_message",
            queue=self.queue.name,
            headers=encode_headers(headers or {}),
            body=body,
            delay_ms=int(delay / timedelta(milliseconds=1)),
        )

    def move(self, count=500, database=None):
        rows = (database or self.database).call("move_due_messages", queue=self.queue.name, begin=True, count=count)
        (database or self.database).commit()
        return rows[0]


@pytest.mark.promise("delay-is-kept")
def test_a_message_waits_for_its_time_and_moves_in_order_of_due(delayed):
    delayed.store(b"later", timedelta(hours=1))
    delayed.store(b"second", timedelta(milliseconds=-1))
    delayed.store(b"first", timedelta(seconds=-1))

    moved, forwards, next_due_ms = delayed.move()

    assert [m.body for m in delayed.queue.receive(5)] == [b"first", b"second"]
    assert (moved, forwards) == (2, 0)
    assert 3_590_000 < next_due_ms <= 3_600_000


@pytest.mark.promise("delay-range")
def test_a_delay_of_100_days_is_stored_exactly_and_a_negative_one_is_due_at_once(delayed):
    delayed.store(b"far", timedelta(days=100))

    moved, _, next_due_ms = delayed.move()
    delayed.store(b"past", timedelta(days=-100))
    moved_then = delayed.move()[0]

    assert (moved, moved_then) == (0, 1)
    assert abs(next_due_ms - 100 * 86_400_000) < 60_000


def test_an_empty_delayed_table_has_nothing_due(delayed):
    assert delayed.move() == (0, 0, None)


def test_when_more_are_due_than_were_moved_the_next_is_due_now(delayed):
    for number in range(5):
        delayed.store(b"%d" % number, timedelta(seconds=-10 + number))

    assert delayed.move(3)[0] == 3
    assert [m.body for m in delayed.queue.receive(5)] == [b"0", b"1", b"2"]
    assert delayed.move(3)[0] == 2


@pytest.mark.promise("movers-move-once")
def test_two_movers_move_every_message_once(delayed, open_database, target):
    for number in range(300):
        delayed.store(b"%d" % number, timedelta(seconds=-1))
    moved = []

    def run():
        database = open_database()
        while sum(moved) < 300:
            moved.append(delayed.move(40, database)[0] or 0)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    bodies = sorted(int(m.body) for m in delayed.queue.receive(500))
    assert bodies == list(range(300))


def test_only_one_mover_is_elected_at_a_time(delayed, open_database):
    delayed.store(b"x", timedelta(seconds=-1))
    other = open_database()
    other.call("move_due_messages", queue=delayed.queue.name, begin=True, count=5)

    refused = delayed.move()[0]
    other.rollback()

    assert refused is None
    assert delayed.move()[0] == 1


def test_a_rollback_leaves_due_messages_where_they_were(delayed):
    delayed.store(b"x", timedelta(seconds=-1))
    delayed.database.call("move_due_messages", queue=delayed.queue.name, begin=True, count=5)

    delayed.database.rollback()

    assert delayed.queue.peek() == 0
    assert delayed.move()[0] == 1


def test_messages_of_nservicebus_that_name_a_forward_destination_are_handed_over(delayed, database):
    delayed.store(b"elsewhere", timedelta(seconds=-1), {FORWARD: "Billing@[dbo]@[nsb]", "a": "b"})
    delayed.store(b"own", timedelta(seconds=-1))

    moved, forwards, _ = delayed.move()
    rows = database.call("receive_due_messages", queue=delayed.queue.name, count=10)

    assert (moved, forwards) == (1, 1)
    assert [(row[1], row[2]) for row in rows] == [
        (encode_headers({FORWARD: "Billing@[dbo]@[nsb]", "a": "b"}), b"elsewhere")
    ]
    assert delayed.move()[1] == 0


@pytest.mark.parametrize("delay", [timedelta(days=40_000), timedelta(days=-40_000)])
def test_a_delay_beyond_the_calendar_is_refused(delayed, delay):
    with pytest.raises(InvalidDelay):
        delayed.store(b"", delay)


@pytest.mark.parametrize("procedure", ["move_due_messages", "receive_due_messages"])
@pytest.mark.parametrize("count", [0, 501, None])
def test_a_count_out_of_range_is_refused(delayed, database, procedure, count):
    with pytest.raises(InvalidCount):
        database.call(procedure, queue=delayed.queue.name, count=count)


def test_a_queue_without_a_delayed_table_has_no_procedures_for_it(make_queue, database):
    queue = make_queue(delayed=False)

    assert database.call("check_queue", queue_name=queue.name) == []
    assert Queue(queue.name, database).peek() == 0


# ------------------------------------------------------------------ what operators do
def test_delayed_messages_are_browsed_the_next_ones_first(delayed):
    for body, hours in ((b"late", 3), (b"soon", 1), (b"later", 4)):
        delayed.store(
            body,
            timedelta(hours=hours),
            {"NServiceBus.MessageId": body.decode(), "NServiceBus.EnclosedMessageTypes": "Shop.X, Shop"},
        )
    messages = DelayedMessages(delayed.queue.name, delayed.database)

    found, later = messages.browse(2), messages.browse(10, timedelta(hours=2), max_body_bytes=2)

    assert [(each.message_id, each.message_type, each.body) for each in found] == [
        ("soon", "Shop.X", b"soon"),
        ("late", "Shop.X", b"late"),
    ]
    assert [(each.body, each.body_bytes) for each in later] == [(b"la", 4), (b"la", 5)]
    assert abs(found[0].due - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=5)


def test_a_delayed_message_is_due_at_another_time(delayed):
    delayed.store(b"this", timedelta(hours=1))
    delayed.store(b"other", timedelta(hours=2))
    messages = DelayedMessages(delayed.queue.name, delayed.database)
    (this, _) = messages.browse()

    messages.reschedule(this.key, timedelta(hours=3))
    moved = [each.body for each in messages.browse()]
    messages.reschedule(messages.browse()[1].key, timedelta(0))
    delayed.move()

    assert (moved, [each.body for each in delayed.queue.receive(5)]) == ([b"other", b"this"], [b"this"])


def test_a_delayed_message_is_cancelled_and_returned(delayed):
    delayed.store(b"this", timedelta(hours=1))
    delayed.store(b"other", timedelta(hours=2))
    messages = DelayedMessages(delayed.queue.name, delayed.database)
    this = messages.browse(1)[0]

    cancelled = messages.cancel(this.key)

    assert (cancelled, [each.body for each in messages.browse()]) == (this, [b"other"])


@pytest.mark.parametrize(
    "key",
    [
        "",
        "no key",
        "2026-11-24 10:00:00.000 1",
        "aaaaaaaa-0000-0000-0000-000000000001",
        "aaaaaaaa-0000-0000-0000-00000000000'",
    ],
)
def test_a_delayed_message_that_is_not_there_is_named(delayed, key):
    delayed.store(b"x", timedelta(hours=1))
    messages = DelayedMessages(delayed.queue.name, delayed.database)

    with pytest.raises(MessageNotFound, match="has no delayed message"):
        messages.cancel(key)
    with pytest.raises(MessageNotFound, match="has no delayed message"):
        messages.reschedule(key, timedelta(0))
    assert len(messages.browse()) == 1


@pytest.mark.parametrize("count", [0, 1001])
def test_a_page_of_delayed_messages_is_bounded(delayed, count):
    with pytest.raises(InvalidCount):
        DelayedMessages(delayed.queue.name, delayed.database).browse(count)


def test_a_message_is_not_postponed_beyond_a_century(delayed):
    with pytest.raises(InvalidDelay):
        DelayedMessages(delayed.queue.name, delayed.database).reschedule("x", timedelta(days=40_000))
    with pytest.raises(InvalidDelay):
        DelayedMessages(delayed.queue.name, delayed.database).browse(1, timedelta(days=40_000))
