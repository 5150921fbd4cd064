"""The procedures of leases, on every engine that can be reached."""

import json
from datetime import timedelta

import pytest

from rowpost.deploy.entries import describe_queue
from rowpost.deploy.queues import drop_queue, forget_queue
from rowpost.errors import DeployError, InvalidCount, InvalidReport, LeaseLost, QueueNotFound, ValueTooLong
from rowpost.settings.environment import QueueSettings
from rowpost.transport.maintenance import queue_metrics
from rowpost.wire.message import OutgoingMessage

OWNER = "host/7/1"
NOBODY = "aaaaaaaa-0000-0000-0000-000000000001"


@pytest.fixture
def leases(make_queue, database, sql):
    """A queue of its own with a table of leases, and verbs for it."""
    return Leases(make_queue(lease=True), database, sql)


class Leases:
    def __init__(self, queue, database, sql):
        self.queue, self.database, self.sql = queue, database, sql
        names = describe_queue(QueueSettings(queue.name), database.engine).placeholders(database.dialect)
        self.table = names["leased_table"]

    def send(self, *bodies, **options):
        for body in bodies:
            self.queue.send(body, **options)

    def take(self, count=1, after=None, owner=OWNER, seconds=60):
        return self.database.call_atomically(
            "lease_messages", self.queue.name, count=count, after_row_version=after, owner=owner, seconds=seconds
        )

    def token(self, **options):
        return self.take(**options)[0][5]

    def end(self, token, database=None):
        (database or self.database).call("end_lease", self.queue.name, token=token)

    def put_back(self, token, database=None):
        (database or self.database).call_atomically("return_lease", self.queue.name, token=token)

    def renew(self, *leases, seconds=60):
        # in a transaction: Babelfish counts them wrongly around a TRY_CONVERT that finds nothing
        rows = self.database.call_atomically(
            "renew_leases", self.queue.name, leases=json.dumps(leases), seconds=seconds
        )
        return [row.token for row in rows]

    def return_expired(self, count=10, database=None, **options):
        return (database or self.database).call_atomically("return_expired", self.queue.name, count=count, **options)

    def expire(self):
        """Let all leases expire."""
        self.sql.run(f"UPDATE {self.table} SET due = '2024-01-01'")

    def list(self, count=10):
        return self.database.call("list_leases", self.queue.name, count=count)

    def waiting(self):
        return [row[1] for row in self.database.call("browse_messages", self.queue.name, count=1000)]


def test_the_oldest_messages_are_leased_and_no_longer_wait(leases):
    leases.send(b"first", b"second", b"third")
    first, second, third = leases.waiting()

    rows = leases.take(2)

    assert [(row[1], row[2], bytes(row[4])) for row in rows] == [(first, False, b"first"), (second, False, b"second")]
    assert len({row[5] for row in rows}) == 2
    assert leases.waiting() == [third]
    assert [bytes(row[4]) for row in leases.take(2)] == [b"third"]
    assert leases.take() == []


def test_a_lease_begins_above_a_row_version(leases):
    leases.send(b"first", b"second")

    (row,) = leases.take(after=leases.waiting()[0])

    assert bytes(row[4]) == b"second"


def test_one_message_is_leased_by_its_row_version_unless_it_is_locked(leases, open_database, needs_readpast):
    leases.send(b"first", b"second")
    first, second = leases.waiting()
    other = open_database()
    other.call("receive_message", leases.queue.name, begin=True, row_version=first)
    options = {"owner": OWNER, "seconds": 60}

    locked = leases.database.call_atomically("lease_message", leases.queue.name, row_version=first, **options)
    free = leases.database.call_atomically("lease_message", leases.queue.name, row_version=second, **options)
    again = leases.database.call_atomically("lease_message", leases.queue.name, row_version=second, **options)
    other.rollback()

    assert (locked, len(free), again) == ([], 1, [])
    leases.end(free[0].token)
    assert leases.waiting() == [first]


def test_a_message_that_another_session_has_locked_is_not_leased(leases, open_database, needs_readpast):
    leases.send(b"first", b"second")
    other = open_database()
    other.call("receive_messages", leases.queue.name, begin=True, count=1)

    rows = leases.take(5)
    other.rollback()

    assert [bytes(row[4]) for row in rows] == [b"second"]


def test_a_rollback_leaves_the_message_in_its_place(leases):
    leases.send(b"x")
    before = leases.waiting()
    leases.database.begin()
    leases.take()

    leases.database.rollback()

    assert leases.waiting() == before
    assert leases.list() == []


def test_an_expired_message_is_leased_and_said_to_be_expired(leases, sql):
    leases.send(b"x", time_to_be_received=timedelta(milliseconds=1))
    sql.wait_until_expired(leases.queue.name)

    assert [row[2] for row in leases.take()] == [True]


def test_the_end_of_a_lease_removes_the_message_once(leases):
    leases.send(b"x")
    token = leases.token()

    leases.end(token)

    assert (leases.waiting(), leases.list()) == ([], [])
    with pytest.raises(LeaseLost):
        leases.end(token)


def test_a_rollback_of_the_end_leaves_the_message_leased(leases):
    leases.send(b"x")
    token = leases.token()
    leases.database.begin()
    leases.end(token)

    leases.database.rollback()

    assert len(leases.list()) == 1
    leases.end(token)


def test_a_message_comes_back_unchanged_and_to_its_place(leases):
    headers = {"a": "ü", "b": None}
    leases.queue.send(b"first", headers, time_to_be_received=timedelta(hours=1))
    leases.send(b"second")
    before = leases.database.call("browse_messages", leases.queue.name, count=10)

    leases.put_back(leases.token())

    assert leases.database.call("browse_messages", leases.queue.name, count=10) == before
    assert [message.body for message in leases.queue.receive(5)] == [b"first", b"second"]


def test_a_message_that_came_back_lets_later_messages_have_new_row_versions(leases):
    leases.send(b"first")
    leases.put_back(leases.token())
    leases.send(b"second")

    first, second = leases.waiting()

    assert first < second


def test_a_lost_lease_brings_no_message_back(leases):
    leases.send(b"x")
    token = leases.token()
    leases.put_back(token)

    with pytest.raises(LeaseLost):
        leases.put_back(token)

    assert len(leases.waiting()) == 1


def test_an_expired_lease_returns_and_the_late_holder_is_refused(leases):
    leases.send(b"first", b"second")
    before = leases.waiting()
    tokens = [row[5] for row in leases.take(2)]
    assert leases.return_expired() == []
    leases.expire()

    rows = leases.return_expired()

    assert [(row[1], bytes(row[4]), row[5]) for row in rows] == [
        (before[0], b"first", OWNER),
        (before[1], b"second", OWNER),
    ]
    assert leases.waiting() == before
    for token in tokens:
        with pytest.raises(LeaseLost):
            leases.end(token)


def test_no_more_leases_return_than_asked_for(leases):
    leases.send(b"first", b"second", b"third")
    leases.take(3)
    leases.expire()

    assert [len(leases.return_expired(count=2)) for _ in range(3)] == [2, 1, 0]


def test_the_message_of_a_dead_process_returns_at_once_and_no_other_one(leases):
    leases.send(b"first", b"second")
    first, second = leases.waiting()
    leases.take(owner="host/7/1")
    leases.take(owner="host/77/1")

    elsewhere = leases.return_expired(row_version=second, owner="host/7/")
    mine = leases.return_expired(row_version=first, owner="host/7/")

    assert (elsewhere, [row[1] for row in mine]) == ([], [first])
    assert leases.waiting() == [first]


def test_a_lease_that_is_ending_is_neither_renewed_nor_returned(leases, open_database, needs_readpast):
    leases.send(b"x")
    token = leases.token()
    leases.expire()
    other = open_database()
    other.begin()
    leases.end(token, other)

    renewed = leases.renew({"token": str(token)})
    returned = leases.return_expired()
    other.rollback()

    assert (renewed, returned) == ([], [])
    assert leases.renew({"token": str(token)}) == [token]


def test_a_renewal_keeps_the_lease_and_says_which_still_exist(leases):
    leases.send(b"first", b"second")
    first, second = (row[5] for row in leases.take(2))
    leases.expire()
    leases.end(second)

    renewed = leases.renew({"token": str(first)}, {"token": str(second)}, {"token": NOBODY})

    assert renewed == [first]
    assert leases.return_expired() == []


def test_progress_is_shown_and_stays_if_it_is_not_given_again(leases):
    leases.send(b"x")
    token = str(leases.token())
    before = leases.list()[0]

    leases.renew({"token": token, "percent": 40, "text": "page 4 of 10 – ü"})
    leases.renew({"token": token})
    after = leases.list()[0]

    assert (before.progress_percent, before.progress_text) == (None, None)
    assert (after.progress_percent, after.progress_text) == (40, "page 4 of 10 – ü")
    assert (after.owner, after.id, after.row_version, after.headers, after.body_bytes) == (OWNER, *before[:2], "", 1)
    assert after.leased_at == before.leased_at < after.due


def test_what_is_no_progress_is_not_recorded_and_long_text_is_cut(leases):
    leases.send(b"x")
    token = str(leases.token())

    renewed = leases.renew(
        {"token": token, "percent": 101, "text": "x" * 300}, {"token": "x"}, {"token": None}, {}, 5, None
    )

    assert len(renewed) == 1
    assert (leases.list()[0].progress_percent, leases.list()[0].progress_text) == (None, "x" * 200)


@pytest.mark.parametrize("text", ["", "x", "{}", "5", '"x"', "null"])
def test_leases_that_are_no_json_array_are_refused(leases, text):
    with pytest.raises(InvalidReport):
        leases.database.call("renew_leases", leases.queue.name, leases=text, seconds=60)


@pytest.mark.parametrize("seconds", [None, 0, 86_401])
def test_a_lease_lasts_from_a_second_to_a_day(leases, seconds):
    leases.send(b"x")
    row_version = leases.waiting()[0]
    call, name = leases.database.call, leases.queue.name

    for attempt in (
        lambda: leases.take(seconds=seconds),
        lambda: call("lease_message", name, row_version=row_version, owner=OWNER, seconds=seconds),
        lambda: call("renew_leases", name, leases="[]", seconds=seconds),
    ):
        with pytest.raises(InvalidCount):
            attempt()


@pytest.mark.parametrize(
    ("verb", "count"), [("take", 0), ("take", 501), ("return_expired", 0), ("return_expired", 501), ("list", 0), ("list", 1001)]
)  # fmt: skip
def test_a_count_beyond_its_range_is_refused(leases, verb, count):
    with pytest.raises(InvalidCount):
        getattr(leases, verb)(count=count)


@pytest.mark.parametrize("owner", ["", "x" * 201])
def test_an_owner_has_1_to_200_characters(leases, owner):
    leases.send(b"x")
    row_version = leases.waiting()[0]

    with pytest.raises(ValueTooLong):
        leases.take(owner=owner)
    with pytest.raises(ValueTooLong):
        leases.database.call("lease_message", leases.queue.name, row_version=row_version, owner=owner, seconds=60)


def test_a_purge_leaves_leased_messages(leases):
    leases.send(b"leased", b"waiting")
    token = leases.token()

    purged = leases.database.call("purge_queue", leases.queue.name, count=100)[0].purged

    assert purged == 1
    leases.end(token)


def test_metrics_count_leased_messages(leases, make_queue):
    leases.send(b"leased", b"waiting")
    leases.take()

    metrics = queue_metrics(leases.database, leases.queue.name)

    assert (metrics.depth, metrics.leased) == (1, 1)
    assert queue_metrics(leases.database, make_queue().name).leased is None


@pytest.mark.parametrize("leave", [drop_queue, forget_queue])
def test_a_queue_is_not_dropped_while_a_message_is_leased(leases, leave):
    leases.send(b"x")
    token = leases.token()

    with pytest.raises(DeployError, match=f"{OWNER} holds the message"):
        leave(leases.database, leases.queue.name)

    leases.end(token)
    leave(leases.database, leases.queue.name)


def test_a_queue_that_declares_no_leases_has_no_procedures_of_them(make_queue, database):
    with pytest.raises(QueueNotFound):
        database.call("list_leases", make_queue().name, count=1)


def test_many_messages_are_leased_and_returned_at_once(leases):
    messages = [OutgoingMessage(b"%d" % number) for number in range(500)]
    leases.database.call("send_messages", leases.queue.name, messages=messages)
    before = leases.waiting()

    leases.take(500)
    leases.expire()
    leases.return_expired(count=500)

    assert leases.waiting() == before
