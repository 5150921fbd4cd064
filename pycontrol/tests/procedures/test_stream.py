"""What Spark asks of the database: ranges, the horizon's material, the spool of a drain, the ledger of a job."""

import json
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from rowpost.deploy.grants import grant, grant_role
from rowpost.deploy.queues import forget_queue
from rowpost.errors import (
    DatabaseError,
    DatabaseUnavailable,
    InvalidCount,
    InvalidJobKey,
    JobKeyUsed,
    PermissionDenied,
    SpoolTaken,
)
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from tests.support.logins import logins
from tests.support.workers import eventually

ALL = {"above": 0, "upto": 2**62}
COLUMNS = ("id", "correlation_id", "reply_to_address", "recoverable", "expires", "headers", "body", "row_version")


@pytest.fixture
def stream(database, make_queue):
    """A queue of its own, and calls of its procedures."""
    queue = make_queue()

    def call(procedure, **arguments):
        return database.call(procedure, queue.name, **arguments)

    call.queue = queue
    call.send = lambda *bodies: queue.send_many([OutgoingMessage(body, {"B": body.decode()}) for body in bodies])
    call.read = lambda **bounds: [
        dict(zip(COLUMNS, row, strict=True)) for row in call("read_range", **{**ALL, **bounds})
    ]
    call.spool = lambda **bounds: [
        dict(zip(COLUMNS, row, strict=True)) for row in call("read_spool", **{**ALL, **bounds})
    ]
    call.state = lambda: dict(
        zip(
            ("identity", "first", "last", "settled", "writers", "purged", "consumers", "on_standby"),
            call("describe_stream")[0],
            strict=True,
        )
    )
    return call


def test_a_range_is_read_and_nothing_is_taken(stream):
    stream.send(b"a", b"b", b"c", b"d")
    all_of_them = stream.read()
    first = all_of_them[0]["row_version"]

    middle = stream.read(above=first, upto=all_of_them[2]["row_version"])

    assert [row["body"] for row in all_of_them] == [b"a", b"b", b"c", b"d"]
    assert [row["body"] for row in middle] == [b"b", b"c"]
    assert len(stream.queue.browse()) == 4
    assert all(row["recoverable"] for row in all_of_them)


def test_a_range_leaves_out_the_columns_and_rows_that_are_not_wanted(stream):
    stream.send(b"a", b"b")
    ids = [str(row["id"]) for row in stream.read()]

    assert [(row["headers"], row["body"]) for row in stream.read(with_headers=False, with_body=False)] == [
        ("", None)
    ] * 2
    assert [row["body"] for row in stream.read(ids=[ids[1]])] == [b"b"]
    assert [row["body"] for row in stream.read(headers_contain='"a"')] == [b"a"]
    assert stream.read(headers_contain='"A"') == []


def test_a_null_body_a_large_one_and_any_header_are_read_as_they_are(stream):
    large = bytes(range(256)) * 1024
    stream.queue.send_many([OutgoingMessage(None, ""), OutgoingMessage(large, '{"Ключ": "漢"}')])

    assert [(row["headers"], row["body"]) for row in stream.read()] == [("", None), ('{"Ключ": "漢"}', large)]


def test_a_new_queue_has_drawn_nothing_and_a_quiet_one_is_settled(stream):
    empty = stream.state()
    stream.send(b"a", b"b")
    quiet = stream.state()

    assert (
        empty["first"],
        empty["last"],
        empty["settled"],
        empty["purged"],
        empty["consumers"],
        empty["on_standby"],
    ) == (None, 0, 0, None, 0, False)
    assert (quiet["first"], quiet["last"], quiet["settled"]) == (1, 2, 2)
    assert quiet["identity"] == empty["identity"]


def test_who_writes_is_seen_until_it_ends_and_what_it_drew_is_not_settled(stream, open_database):
    stream.send(b"a")
    other = open_database()
    other.begin()
    Queue(stream.queue.name, other).send(b"slow")
    stream.send(b"c")

    while_writing = stream.state()
    other.commit()
    afterwards = stream.state()

    assert while_writing["last"] == 3 and while_writing["settled"] is None and while_writing["writers"] != "[]"
    assert (afterwards["settled"], afterwards["writers"]) == (3, "[]")


def test_who_writes_is_named_with_its_session_the_oldest_first(stream, open_database):
    one, other = open_database(), open_database()
    for database in (one, other):
        database.begin()
        Queue(stream.queue.name, database).send(b"slow")

    named = stream("list_writers")
    one.rollback()
    afterwards = stream("list_writers")
    other.rollback()

    assert len({row.writer for row in named}) == len({row.process for row in named}) == 2
    assert {row.program for row in named} == {row.program for row in afterwards} != {None}
    assert named[0].since <= named[1].since <= datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=5)
    assert [row.process for row in afterwards] == [named[1].process]
    assert stream("list_writers") == []


def test_a_writer_has_the_name_that_the_state_of_the_stream_gives_it(stream, open_database):
    other = open_database()
    other.begin()
    Queue(stream.queue.name, other).send(b"slow")

    (writer,) = json.loads(stream.state()["writers"])
    (named,) = stream("list_writers")
    other.rollback()

    assert named.writer == (writer if isinstance(writer, str) else writer["writer"])


def test_what_is_not_read_yet_is_counted_up_to_a_number_and_the_oldest_is_named(stream, open_database):
    stream.send(b"a", b"b", b"c")
    second = stream.read()[1]["row_version"]
    other = open_database()
    other.begin()
    Queue(stream.queue.name, other).send(b"not committed")

    counted = [
        tuple(stream("describe_backlog", above=above, count=count)[0])
        for above, count in ((0, 100), (0, 2), (second, 100), (second + 1, 100))
    ]
    other.rollback()

    assert [messages for messages, _ in counted] == [3, 2, 1, 0]
    assert [headers and json.loads(headers)["B"] for _, headers in counted] == ["a", "a", "c", None]


def test_the_row_version_of_a_message_is_found_by_its_place_although_row_versions_have_gaps(stream, open_database):
    stream.send(b"a", b"b", b"c", b"d")
    first, second, third, last = (row["row_version"] for row in stream.read())
    stream.queue.receive(1)
    other = open_database()
    other.begin()
    Queue(stream.queue.name, other).send(b"not committed")

    found = [
        stream("find_row_version", above=above, upto=upto, count=count)[0].row_version
        for above, upto, count in (
            (0, 2**62, 2),
            (second, 2**62, 1),
            (0, third, 2),
            (0, third, 3),
            (last, 2**62, 1),
            (0, 2**62, 2**31 - 1),
        )
    ]
    other.rollback()

    assert found == [third, third, third, None, None, None]
    assert first < second


def test_a_batch_ends_before_its_bytes_exceed_a_bound_and_a_larger_message_is_alone(stream, database, sql):
    sizes = (100, 200, 70_000, 1, 300, 50_000_000)
    stream.queue.send_many([OutgoingMessage(None if size == 1 else os.urandom(size), "é") for size in sizes])
    stored = 2 if database.engine == "sqlserver" and not sql.babelfish else len("é".encode())  # bytes of the headers
    first, second, large, null, fifth, last = (row["row_version"] for row in stream.read(with_body=False))

    found = [
        stream("find_row_version", above=above, upto=upto, count=count, bytes=size)[0].row_version
        for above, upto, count, size in (
            (0, 2**62, 10, 300 + 2 * stored), (0, 2**62, 10, 299 + 2 * stored), (0, 2**62, 1, 10**9), (0, second, 2, 10**9), (0, second, 3, 10**9),
            (second, 2**62, 10, 1000), (large, 2**62, 10, 1000), (fifth, 2**62, 2**31 - 1, 1000), (0, 2**62, 10, None), (last, 2**62, 1, 1),
        )
    ]  # fmt: skip

    assert found == [second, first, first, second, None, large, fifth, last, None, None]
    assert null < fifth


def test_a_sample_measures_the_messages_of_a_small_range(stream, database, sql):
    stream.queue.send_many(
        [OutgoingMessage(b"abc", {}), OutgoingMessage(bytes(3000), {"x": "é"}), OutgoingMessage(b"", {})]
    )
    rows = stream.read()
    first, second, third = (row["row_version"] for row in rows)

    sampled = [tuple(row) for row in stream("sample_range", above=first, upto=second)]

    stored = "utf-16-le" if database.engine == "sqlserver" and not sql.babelfish else "utf-8"
    size = len(rows[1]["headers"].encode(stored)) + 3000
    assert sampled == [(second, size, 1)]
    assert {row_version for row_version, _, _ in stream("sample_range", above=0, upto=third)} == {first, second, third}
    assert list(stream("sample_range", above=third, upto=2**62)) == []


def test_a_sample_of_a_large_queue_is_small_and_stands_for_all_messages(stream, sql):
    if sql.babelfish:
        pytest.skip("Babelfish: TABLESAMPLE returns all rows")
    for _ in range(10):
        stream.queue.send_many([OutgoingMessage(bytes(1000)) for _ in range(1000)])

    sampled = list(stream("sample_range", above=0, upto=2**62))

    assert 500 <= len(sampled) <= 8000
    assert 5_000 <= sum(messages for _, _, messages in sampled) <= 20_000


@pytest.mark.parametrize("count", [0, 1_000_001, None])
def test_a_count_of_none_or_too_many_is_refused(stream, count):
    with pytest.raises(InvalidCount):
        stream("describe_backlog", above=0, count=count)


@pytest.mark.parametrize("count", [0, None])
def test_a_place_below_one_is_refused(stream, count):
    with pytest.raises(InvalidCount):
        stream("find_row_version", above=0, upto=10, count=count)


def test_another_table_of_the_same_name_is_another_stream(stream, sql, target, make_queue):
    before = stream.state()["identity"]
    sql.drop_queue(stream.queue.name)
    make_queue(stream.queue.name)

    assert stream.state()["identity"] != before


def test_a_purge_says_how_far_it_went(stream):
    stream.send(b"a", b"b", b"c")

    stream("purge_queue", count=2)

    assert stream.state()["purged"] == 2


def test_a_worker_that_is_connected_is_counted(stream, target):
    from rowpost.database.connection import connect_url

    with connect_url(target.settings.engine, target.url, f"rowpost worker {stream.queue.name} 1"):
        assert stream.state()["consumers"] == 1
    with connect_url(target.settings.engine, target.url, f"rowpost worker {stream.queue.name}x 1"):
        # the server ends the session of the first connection some time after its close
        eventually(lambda: stream.state()["consumers"] == 0, "no worker is counted")


def test_messages_move_into_the_spool_oldest_first_and_stay_there_until_they_are_dropped(stream):
    stream.send(b"a", b"b", b"c")
    taken = stream.read()

    moved, spooled_to = stream("move_to_spool", owner="one", count=2)[0]

    assert moved == 2
    assert stream.spool() == stream.spool() == taken[:2]
    assert [row["body"] for row in stream.read()] == [b"c"]
    assert [row["body"] for row in stream.spool(above=spooled_to - 1)] == [b"b"]
    assert stream("drop_spool", owner="one", upto=spooled_to)[0] == (2, False)
    assert stream.spool() == []


def test_a_move_takes_no_more_than_it_is_told(stream):
    stream.send(b"a", b"b", b"c")
    upto = stream.read()[1]["row_version"]

    assert stream("move_to_spool", owner="one", count=10, upto=upto)[0][0] == 2
    assert stream("move_to_spool", owner="one", count=10, upto=upto)[0][0] == 0


def test_a_spool_is_the_first_streams_until_another_takes_it_over(stream):
    stream.send(b"a", b"b")
    stream("move_to_spool", owner="killed before its first batch", count=1)
    stream("move_to_spool", owner="one", count=1)
    stream("confirm_spool", owner="one")

    for procedure, arguments in (
        ("move_to_spool", {"count": 1}),
        ("confirm_spool", {}),
        ("drop_spool", {"upto": 2**62}),
    ):
        with pytest.raises(SpoolTaken):
            stream(procedure, owner="two", **arguments)
    stream("move_to_spool", owner="two", count=1, take_over=True)

    assert len(stream.spool()) == 2
    assert stream("describe_spool")[0][:2] == ("two", False)
    with pytest.raises(SpoolTaken):
        stream("confirm_spool", owner="one")


def test_a_spool_is_released_only_when_it_is_empty(stream):
    stream.send(b"a", b"b")
    stream("move_to_spool", owner="one", count=2)
    stream("confirm_spool", owner="one")
    first = stream("describe_spool")[0][2]

    assert stream("drop_spool", owner="one", upto=first, release=True)[0] == (1, True)
    assert stream("describe_spool")[0][1] is True
    assert stream("drop_spool", owner="one", upto=2**62, release=True)[0] == (1, False)
    assert stream("describe_spool")[0][1:4] == (False, None, None)


def test_a_move_waits_for_another_so_that_numbers_grow_as_they_are_seen(stream, open_database):
    stream.send(b"a", b"b", b"c", b"d")
    one, other = open_database(), open_database()
    one.begin()
    _, first = one.call("move_to_spool", stream.queue.name, owner="one", count=2)[0]
    seen = []
    mover = threading.Thread(
        target=lambda: seen.append(other.call("move_to_spool", stream.queue.name, owner="one", count=1)[0])
    )
    mover.start()
    mover.join(0.3)

    waiting = mover.is_alive()
    one.commit()
    mover.join(20)

    assert waiting
    assert seen[0][1] > first
    assert len(stream.spool(upto=first)) == 2


@pytest.mark.parametrize("count", [0, 4001, None])
def test_a_move_of_none_or_too_many_is_refused(stream, count):
    with pytest.raises(InvalidCount):
        stream("move_to_spool", owner="one", count=count)


@pytest.fixture
def ledger(database, sql):
    for table in ("ledger", "staged_message", "job", "job_part"):
        sql.run(f"DELETE FROM rowpost.{table}")
    return lambda part, parts=None, key="job": database.call("claim_ledger", job_key=key, part=part, parts=parts)[0]


def test_a_part_is_claimed_once_and_says_what_it_was(database, ledger):
    database.call("begin_job", job_key="job", destination="q", run="r", mode="direct")
    first = ledger(0)
    database.call("settle_ledger", job_key="job", part=0, messages=7, digest="abc")

    assert (first, ledger(0), ledger(1), ledger(0, key="other")) == (
        (True, None, None), (False, 7, "abc"), (True, None, None), (True, None, None),
    )  # fmt: skip


def test_a_job_of_other_parts_is_refused(ledger):
    ledger(0, 2)
    with pytest.raises(JobKeyUsed):
        ledger(0, 3)
    ledger(0, key="unknown")
    with pytest.raises(JobKeyUsed):
        ledger(1, 3, key="unknown")

    assert ledger(0, 2)[0] is False


def test_parts_that_follow_one_another_are_claimed_in_order_and_leave_one_row(ledger, sql):
    claimed = [ledger(part, 0)[0] for part in (0, 1, 1, 3, 2)]

    assert claimed == [True, True, False, True, False]
    assert sql.run("SELECT part FROM rowpost.ledger") == [(3,)]


def test_a_claim_that_is_rolled_back_can_be_made_again(database, ledger):
    database.begin()
    ledger(0)
    database.rollback()

    assert ledger(0)[0] is True


def test_two_tasks_claim_their_parts_at_the_same_time(ledger, open_database):
    one, other = open_database(), open_database()
    one.begin()
    one.call("claim_ledger", job_key="job", part=1, parts=3)
    other.begin()

    claimed = [other.call("claim_ledger", job_key="job", part=part, parts=3)[0][0] for part in (2, 0)]
    other.commit()
    one.commit()

    assert claimed == [True, True]
    assert [ledger(part, 3)[0] for part in (0, 1, 2)] == [False] * 3


def test_a_part_that_was_sent_before_leaves_the_callers_transaction_usable(database, ledger, sql):
    ledger(0, 2)
    with database.transaction():
        again, other = ledger(0, 2), ledger(1, 2)

    assert (again[0], other[0]) == (False, True)
    assert sql.value("SELECT COUNT(*) FROM rowpost.ledger") == 2


def test_a_task_that_claims_the_part_of_another_waits_for_it(ledger, open_database):
    one, other = open_database(), open_database()
    one.begin()
    one.call("claim_ledger", job_key="job", part=0, parts=1)
    seen = []
    task = threading.Thread(
        target=lambda: seen.append(other.call("claim_ledger", job_key="job", part=0, parts=1)[0][0])
    )
    task.start()
    task.join(0.3)

    waiting = task.is_alive()
    one.commit()
    task.join(20)

    assert waiting
    assert seen == [False]


@pytest.mark.parametrize(
    ("key", "part", "parts"),
    [("", 0, 1), (None, 0, 1), ("k" * 201, 0, 1), ("job", -1, 1), ("job", 0, -1), ("job", 2, 2)],
)
def test_a_key_or_part_that_is_none_is_refused(ledger, key, part, parts):
    with pytest.raises(InvalidJobKey):
        ledger(part, parts, key)


def test_staged_messages_are_sent_by_the_tries_that_count(database, ledger, stream):
    id = UUID("aaaaaaaa-0000-0000-0000-000000000001")
    staged = {
        "t1": [OutgoingMessage(b"1", '{"a": "漢"}', id), OutgoingMessage(None, "")],
        "t2": [OutgoingMessage(b"lost")],
        "t3": [OutgoingMessage(b"3")],
    }
    for attempt, messages in staged.items():
        database.call("stage_messages", job_key="job", attempt=attempt, messages=messages)
    database.call("stage_messages", job_key="other", attempt="t1", messages=[OutgoingMessage(b"other")])

    sent = stream("send_staged", job_key="job", attempts=["t1", "t3"])[0][0]
    again = stream("send_staged", job_key="job", attempts=["t1", "t3"])[0][0]
    dropped = database.call("drop_staged", job_key="job")[0][0]

    rows = stream.read()
    assert (sent, again, dropped) == (3, 0, 1)
    assert [row["body"] for row in rows] == [b"1", None, b"3"]
    assert (rows[0]["id"], rows[0]["headers"]) == (id, '{"a": "漢"}')
    assert database.call("drop_staged", seconds=3600)[0][0] == 0
    assert database.call("drop_staged")[0][0] == 1


def test_staged_messages_are_sent_in_the_order_of_the_tasks(database, ledger, stream):
    for attempt, body in (("b", b"1"), ("a", b"2"), ("b", b"3"), ("c", b"4")):
        database.call("stage_messages", job_key="job", attempt=attempt, messages=[OutgoingMessage(body)])

    stream("send_staged", job_key="job", attempts=["c", "b", "a"])

    assert [row["body"] for row in stream.read()] == [b"4", b"1", b"3", b"2"]


def test_more_staged_and_spooled_messages_than_one_statement_writes_are_sent_and_dropped(database, ledger, stream):
    messages = [OutgoingMessage(b"%d" % number) for number in range(4001)]
    for attempt in ("t1", "t2"):
        database.call("stage_messages", job_key="job", attempt=attempt, messages=messages)

    sent = stream("send_staged", job_key="job", attempts=["t1"])[0][0]
    dropped = database.call("drop_staged", job_key="job")[0][0]
    for _ in range(2):
        stream("move_to_spool", owner="one", count=4000)

    assert (sent, dropped) == (4001, 4001)
    assert stream("drop_spool", owner="one", upto=2**62)[0] == (4001, False)


def test_staging_refuses_what_is_no_messages_and_no_key(database, ledger):
    with pytest.raises(InvalidJobKey):
        database.call("stage_messages", job_key="", attempt="t", messages=[OutgoingMessage(b"x")])
    with pytest.raises(InvalidCount):
        database.call("drop_staged", seconds=-1)


@pytest.fixture
def job(database, ledger, stream):
    """Calls of the procedures of one job, with its key filled in."""

    def call(procedure, **arguments):
        return database.call_atomically(procedure, job_key="job", **arguments)

    call.begin = lambda run="r1", mode="staged": call("begin_job", destination=stream.queue.name, run=run, mode=mode)[0]
    call.stage = lambda attempt, *bodies: call(
        "stage_messages", attempt=attempt, messages=[OutgoingMessage(body) for body in bodies]
    )
    call.end = lambda run="r1", done=True, **known: call("end_job", run=run, done=done, **known)[0].ended
    call.show = lambda: call("list_jobs", count=10)[0]

    def seal(**parts):
        """Seal with one keyword for each attempt: its number of messages, and a digest of one letter."""
        attempts, counts, digests = (
            list(parts),
            [str(count) for count, _ in parts.values()],
            [letter * 64 for _, letter in parts.values()],
        )
        attempts = [each.replace("_", "/") for each in attempts]
        return call(
            "seal_job",
            attempts=attempts,
            messages=counts,
            digests=digests,
            digest="".join(sorted(set("".join(digests)))) * 32,
        )

    def send(part, attempt, count, letter):
        with database.transaction():
            claimed = database.call("claim_ledger", job_key="job", part=part)[0].claimed
            if claimed:
                assert stream("send_staged", job_key="job", attempts=[attempt])[0].sent == count
                call("settle_ledger", part=part, messages=count, digest=letter * 64)
        return claimed

    call.seal, call.send = seal, send
    return call


def test_a_job_is_sent_part_by_part_after_it_was_sealed(job, stream):
    began = job.begin()
    job.stage("r1/0", b"a", b"b")
    job.stage("r1/1", b"c")
    job.stage("r1/1b", b"c")

    left = job.seal(r1_0=(2, "a"), r1_1=(1, "b"))
    unsent = stream.read()
    sent = [job.send(0, "r1/0", 2, "a"), job.end(), job.send(1, "r1/1", 1, "b"), job.send(1, "r1/1", 1, "b")]

    assert (began.state, began.mode, began.messages) == ("running", "staged", None)
    assert [tuple(row) for row in left] == [(0, "r1/0", 2, "a" * 64), (1, "r1/1", 1, "b" * 64)]
    assert unsent == []
    assert sent == [True, False, True, False]  # the job cannot end before its second part is sent
    assert job.end() is True
    assert [row["body"] for row in stream.read()] == [b"a", b"b", b"c"]
    assert (
        job.show().state,
        job.show().parts,
        job.show().parts_sent,
        job.show().messages_sent,
        job.show().messages_staged,
    ) == ("done", 2, 2, 3, 1)


def test_a_job_that_was_sealed_gives_its_parts_to_a_later_run_of_the_same_messages_and_refuses_others(job):
    job.begin()
    job.stage("r1/0", b"a")
    job.stage("r1/1", b"b")
    job.seal(r1_0=(1, "a"), r1_1=(1, "b"))
    job.send(0, "r1/0", 1, "a")

    again = job.begin("r2")
    left = job.seal(x=(2, "b"), y=(0, "a"))
    with pytest.raises(JobKeyUsed):
        job.seal(x=(3, "b"), y=(0, "a"))
    with pytest.raises(JobKeyUsed):
        job.seal(x=(2, "c"))

    assert (again.state, again.messages) == ("sending", 2)
    assert [row.attempt for row in left] == ["r1/1"]


def test_a_direct_job_that_ran_before_is_staged_and_its_parts_are_compared(job, ledger):
    first = job.begin(mode="direct")
    ledger(1)
    job("settle_ledger", part=1, messages=5, digest="b" * 64)

    again = job.begin("r2", mode="direct")
    for wrong in ({"r2_0": (3, "a")}, {"r2_0": (3, "a"), "r2_1": (4, "b")}, {"r2_0": (3, "a"), "r2_1": (5, "c")}):
        with pytest.raises(JobKeyUsed):
            job.seal(**wrong)
    left = job.seal(r2_0=(3, "a"), r2_1=(5, "b"))

    assert (first.mode, again.mode) == ("direct", "staged")
    assert [row.part for row in left] == [0]


def test_a_run_that_ended_or_was_followed_by_another_stores_nothing(job):
    job.begin("r1")
    job.begin("r2")
    with pytest.raises(JobKeyUsed):
        job.stage("r1/0", b"late")
    job.stage("r2/0", b"x")

    assert job.end("r1", done=False) is False
    assert job.end("r2", done=False) is True
    with pytest.raises(JobKeyUsed):
        job.stage("r2/0", b"late")
    assert (job.show().state, job.show().messages_staged) == ("failed", 1)


def test_a_part_is_not_settled_when_its_job_has_ended_or_was_forgotten(job, ledger):
    job.begin(mode="direct")
    ledger(0)
    job.end(done=False)

    with pytest.raises(JobKeyUsed):
        job("settle_ledger", part=0, messages=1, digest="a")
    job("forget_job")
    with pytest.raises(JobKeyUsed):
        job("settle_ledger", part=0, messages=1, digest="a")


def test_a_job_ends_after_the_task_that_is_storing_messages(job, database, open_database, not_on_babelfish):
    not_on_babelfish("ignores the hint REPEATABLEREAD: a job's end does not wait for a task")
    job.begin()
    other = open_database()
    other.begin()
    other.call("stage_messages", job_key="job", attempt="r1/0", messages=[OutgoingMessage(b"x")])
    ended = []
    end = threading.Thread(target=lambda: ended.append(job.end(done=False)))
    end.start()
    end.join(0.3)

    waiting = end.is_alive()
    other.commit()
    end.join(20)

    assert (waiting, ended) == (True, [True])


def test_the_staged_messages_of_a_run_are_dropped_and_those_that_are_being_sent_are_kept(job, database):
    job.begin("r1")
    job.stage("r1/0", b"a")
    job.begin("r2")
    job.stage("r2/0:Sales", b"b")  # the part of one of its queues
    job.stage("r2/1:Sales", b"b")

    of_a_run = job("drop_staged", run="r1")[0].dropped
    job.seal(r2_0=(1, "b"))
    rest = [job("drop_staged")[0].dropped, database.call("drop_staged")[0].dropped]

    assert (of_a_run, rest) == (1, [1, 0])
    assert job.show().messages_staged == 1


def test_a_job_that_is_forgotten_says_what_it_sent_and_its_key_is_free(job, ledger):
    job.begin(mode="direct")
    for part in (0, 1):
        ledger(part)
        job("settle_ledger", part=part, messages=5, digest="b" * 64)

    forgotten = [tuple(row) for row in job("forget_job")]

    assert forgotten == [("running", 2, 10)]
    assert job("forget_job") == []
    assert job.begin(mode="direct").mode == "direct"


def test_cleaning_keeps_what_is_in_use_and_deletes_what_is_old(job, database, sql, ledger):
    def clean(staged=3600, old=7200, count=100):
        time.sleep(0.01)  # ages are compared in milliseconds
        return tuple(database.call("clean_jobs", staged_seconds=staged, ledger_seconds=old, count=count)[0])

    job.begin()
    job.stage("r1/0", b"a", b"b", b"c")
    database.call("claim_ledger", job_key="a stream", part=7, parts=0)
    young = clean()
    of_a_running_job = clean(staged=0, old=7200)
    limited = clean(staged=0, old=7200, count=1)
    rest = clean(staged=0, old=7200)
    job.begin("r2")
    job.stage("r2/0:Sales", b"x")
    job.seal(r2_0=(1, "a"))
    of_a_sealed_job = clean(staged=0, old=7200)
    job.send(0, "r2/0:Sales", 1, "a")
    job.end()
    old = clean(staged=0, old=0)

    assert young == (0, 0, 0)
    assert of_a_running_job[0] == 1  # it has done nothing for 0 seconds
    assert of_a_running_job[1] + limited[1] + rest[1] == 3
    assert limited[1] <= 1
    assert of_a_sealed_job == (0, 0, 0)
    assert old == (0, 0, 1)
    assert job("list_jobs", count=1) == []
    assert sql.run("SELECT job_key FROM rowpost.ledger") == [("a stream",)]


@pytest.mark.parametrize("wrong", [{"count": 0}, {"count": 4001}, {"staged_seconds": -1}, {"ledger_seconds": -1}])
def test_cleaning_refuses_ages_and_numbers_out_of_range(database, ledger, wrong):
    with pytest.raises(InvalidCount):
        database.call("clean_jobs", **{"staged_seconds": 1, "ledger_seconds": 1, "count": 1, **wrong})
    with pytest.raises(InvalidCount):
        database.call("list_jobs", count=0)


@pytest.mark.parametrize("key", ["", "k" * 201])
def test_a_job_needs_a_key_and_none_is_cut(database, ledger, key):
    with pytest.raises(InvalidJobKey):
        database.call("begin_job", job_key=key, destination="q", run="r", mode="staged")
    with pytest.raises(InvalidJobKey):
        database.call("stage_messages", job_key=key, attempt="t", messages=[OutgoingMessage(b"x")])
    with pytest.raises(InvalidJobKey):
        ledger(0, 1, key)


def test_a_key_that_is_too_long_names_no_other_job(database, ledger):
    database.call("begin_job", job_key="k" * 200, destination="q", run="r", mode="staged")

    database.call("forget_job", job_key="k" * 201)

    assert [row.job_key for row in database.call("list_jobs", job_key="k" * 200, count=5)] == ["k" * 200]
    assert database.call("list_jobs", job_key="k" * 201, count=5) == []


@pytest.fixture
def login(target, sql):
    with logins(sql, target.url) as made:
        yield made


def test_an_analyst_who_reads_bodies_reads_a_queue_and_takes_nothing(stream, login, sql, database):
    stream.send(b"a")
    name, queue = login.make("analyst"), stream.queue.name
    sql.run(grant_role(database.dialect, "rowpost_body_reader", name))

    with login.open(name) as analyst:
        assert [row[6] for row in analyst.call("read_range", queue, **ALL)] == [b"a"]
        assert analyst.call("describe_spool", queue) == []
        for procedure, arguments in (
            ("move_to_spool", {"owner": "one", "count": 1}), ("read_spool", ALL), ("drop_spool", {"owner": "one", "upto": 1}),
            ("send_staged", {"job_key": "job", "attempts": []}),
        ):  # fmt: skip
            with pytest.raises(PermissionDenied):
                analyst.call(procedure, queue, **arguments)
        with pytest.raises(PermissionDenied):
            analyst.call("claim_ledger", job_key="job", part=0)


def test_an_analyst_who_reads_bodies_learns_how_far_a_queue_is(stream, login, sql, database):
    if sql.babelfish:
        pytest.skip("Babelfish: IDENT_CURRENT asks for a right on the sequence behind the identity")
    stream.send(b"a")
    name = login.make("analyst")
    sql.run(grant_role(database.dialect, "rowpost_body_reader", name))

    with login.open(name) as analyst:
        assert analyst.call("describe_stream", stream.queue.name)[0][2] == 1


def test_a_reader_of_bodies_streams_a_queue_and_has_no_other_right_on_its_table(stream, login, sql, database):
    if database.engine != "postgresql":
        pytest.skip("SQL Server: a reader has no right on the table at all; test_rights tries that")
    stream.send(b"a", b"b")
    name, queue = login.make("analyst"), stream.queue.name
    table = sql.table(queue)
    sql.run(grant_role(database.dialect, "rowpost_body_reader", name))

    with login.open(name) as analyst:
        read = [
            batch.to_pydict()
            for batch in analyst.stream("read_range", queue, columns=("id", "body"), chunk_bytes=1 << 20, **ALL)
        ]
        assert [sorted(each["body"]) for each in read] == [[b"a", b"b"]]
        assert [UUID(id) for id in read[0]["id"]]
        for statement in (
            f"INSERT INTO {table} (id, headers) VALUES (gen_random_uuid(), '')", f"UPDATE {table} SET body = NULL", f"DELETE FROM {table}",
            f"TRUNCATE {table}", f"SELECT seq FROM {table} FOR UPDATE", f"SELECT ctid FROM {table}", "SELECT * FROM rowpost.spooled_message",
        ):  # fmt: skip
            with pytest.raises(PermissionDenied), analyst.translated():
                analyst.driver_connection.execute(statement)
    forget_queue(database, queue)
    assert sql.run(f"SELECT has_any_column_privilege('{name}', '{table}', 'SELECT')") == [(False,)]


def test_a_range_is_planned_with_the_query_that_reads_it_whoever_reads(stream, login, sql, database):
    if database.engine != "postgresql":
        pytest.skip("PostgreSQL stores the rows of a function that it cannot inline")
    name = login.make("analyst")
    sql.run(grant_role(database.dialect, "rowpost_body_reader", name))

    with login.open(name) as analyst:
        call = f'SELECT row_version FROM rowpost."read_range:{stream.queue.name}"(p_above => 0, p_upto => 9)'
        plan = [line for (line,) in analyst.driver_connection.execute(f"EXPLAIN (VERBOSE) {call}").fetchall()]

    assert not any("Function Scan" in line for line in plan)
    assert not any("body" in line for line in plan if "Output" in line)


def terminate_copies(sql, queue):
    """Ends the sessions that copy the queue's rows out; how many they were."""
    of_it = f"query LIKE 'COPY (%read_range:{queue}%' AND pid <> pg_backend_pid()"
    return len(sql.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {of_it}"))


def test_an_error_in_the_midst_of_the_rows_is_told(stream, open_database, sql, database):
    if database.engine != "postgresql":
        pytest.skip("the driver's own way on SQL Server; the lost connection is tried there")
    stream.queue.send_many([OutgoingMessage(bytes(50_000)) for _ in range(400)])
    chunks = open_database().stream("read_range", stream.queue.name, columns=COLUMNS, chunk_bytes=100_000, **ALL)
    next(chunks)

    sql.run(
        f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY (%read_range:{stream.queue.name}%' AND pid <> pg_backend_pid()"
    )

    with pytest.raises(DatabaseError, match="cancel"):
        for _ in chunks:
            pass


def test_a_login_that_may_send_to_a_queue_writes_it_through_ledger_and_staging(stream, login, sql, ledger):
    name, queue = login.make("loader"), stream.queue.name
    grant(sql.database, name, send_to=[queue], tables=sql.babelfish)

    with login.open(name) as loader:
        assert loader.call("claim_ledger", job_key="job", part=0)[0][0] is True
        loader.call("send_messages", queue, messages=[OutgoingMessage(b"a")])
        loader.call("begin_job", job_key="job", destination=queue, run="t", mode="staged")
        loader.call("settle_ledger", job_key="job", part=0, messages=1, digest="d")
        loader.call("stage_messages", job_key="job", attempt="t/0", messages=[OutgoingMessage(b"b")])
        assert loader.call("send_staged", queue, job_key="job", attempts=["t/0"])[0][0] == 1
        with pytest.raises(PermissionDenied):
            loader.call("read_range", queue, **ALL)

    assert [row["body"] for row in stream.read()] == [b"a", b"b"]


def test_a_range_comes_in_chunks_and_a_connection_that_is_lost_in_the_midst_is_named(
    stream, open_database, database, sql
):
    stream.queue.send_many([OutgoingMessage(bytes(50_000)) for _ in range(400)])
    reader = open_database()
    session = reader.driver_connection.execute("SELECT @@SPID").fetchval() if reader.engine == "sqlserver" else None
    chunks = reader.stream("read_range", stream.queue.name, columns=COLUMNS, chunk_bytes=100_000, **ALL)
    next(chunks)

    if reader.engine == "postgresql":
        assert terminate_copies(sql, stream.queue.name) == 1
    else:
        sql.run(f"KILL {session}")

    with pytest.raises(DatabaseUnavailable):
        for _ in chunks:
            pass
