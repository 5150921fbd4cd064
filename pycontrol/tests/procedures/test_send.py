"""Sending, on every engine that can be reached."""

import json
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, uuid4

import pytest

from rowpost.errors import InvalidMessage, InvalidMessages, InvalidTimeToBeReceived, QueueNotFound
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage

HEADERS = {"a": 'é漢🚀 / " \\ \n \t', "empty": "", "null": None, "$.diagnostics": "x", "\u2028": "\ufeff"}


@pytest.mark.promise("one-row-per-destination")
def test_a_send_is_exactly_one_row_and_row_versions_grow(queue):
    ids = [queue.send(b"%d" % number) for number in range(5)]

    rows = queue.browse()

    assert [row.id for row in rows] == ids
    assert [row.row_version for row in rows] == sorted({row.row_version for row in rows})


@pytest.mark.promise("plain-insert-is-received")
def test_a_row_inserted_by_plain_sql_is_received(queue, sql):
    row_id = sql.insert_minimal(
        queue.name, headers='{"NServiceBus.EnclosedMessageTypes":"Shop.PlaceOrder"}', body=b"{}"
    )

    (message,) = queue.receive()

    assert (message.id, message.body) == (row_id, b"{}")
    assert message.headers == {"NServiceBus.EnclosedMessageTypes": "Shop.PlaceOrder"}


@pytest.mark.promise("recoverable-is-one")
def test_recoverable_is_written_as_1(queue, sql):
    if queue.database.engine == "postgresql":
        assert "recoverable" not in sql.columns(queue.name)
        return

    queue.send(b"one")
    queue.send_many([OutgoingMessage(b"two"), OutgoingMessage(b"three")])

    assert sql.column_values(queue.name, "Recoverable") == [True, True, True]


@pytest.mark.promise("legacy-columns")
def test_legacy_columns_equal_their_headers_when_switched_on(make_queue, sql):
    name = make_queue().name
    queue = Queue(name, sql.database, legacy_columns=True)
    headers = {"NServiceBus.CorrelationId": "c" * 300, "NServiceBus.ReplyToAddress": "Sales@[dbo]"}
    if queue.database.engine == "postgresql":
        assert {"correlationid", "replytoaddress"}.isdisjoint(sql.columns(name))
        return

    queue.send(b"", headers)
    queue.send_many([OutgoingMessage(b"", headers), OutgoingMessage(b"", {"NServiceBus.ReplyToAddress": "漢"})])

    assert sql.column_values(name, "CorrelationId") == ["c" * 255, "c" * 255, None]
    assert sql.column_values(name, "ReplyToAddress") == ["Sales@[dbo]", "Sales@[dbo]", None]


@pytest.mark.promise("table-without-recoverable")
def test_a_table_without_recoverable_serves_send_and_receive(make_queue, sql):
    queue = make_queue()
    queue.send(b"before")
    if queue.database.engine == "sqlserver":  # PostgreSQL's queue tables never have the column
        sql.drop_column(queue.name, "Recoverable")
    assert "recoverable" not in map(str.lower, sql.columns(queue.name))

    queue.send(b"after")
    queue.send_many([OutgoingMessage(b"batch")])

    assert [message.body for message in queue.receive(10)] == [b"before", b"after", b"batch"]


@pytest.mark.promise("batch-is-atomic")
def test_a_batch_in_which_one_send_fails_stores_no_row(queue, database):
    messages = [OutgoingMessage(b"good"), OutgoingMessage(b"bad", time_to_be_received=timedelta(seconds=-1))]

    with pytest.raises(InvalidTimeToBeReceived):
        queue.send_many(messages)

    assert queue.peek() == 0


def test_a_batch_over_several_round_trips_is_stored_whole_or_not_at_all(queue):
    messages = [OutgoingMessage(b"x")] * 1500 + [OutgoingMessage(b"bad", time_to_be_received=timedelta(0))]

    with pytest.raises(InvalidTimeToBeReceived):
        queue.send_many(messages)

    assert queue.peek() == 0


@pytest.mark.promise("caller-settings-unchanged")
def test_the_callers_settings_are_unchanged_after_every_verb(queue, sql):
    before = sql.session_settings()

    queue.send(b"one")
    queue.send_many([OutgoingMessage(b"two")])
    queue.peek()
    queue.browse()
    queue.receive(2)
    queue.purge()

    assert sql.session_settings() == before


@pytest.mark.promise("joins-callers-transaction")
def test_a_send_inside_the_callers_transaction_follows_its_end(queue, open_database):
    other = open_database()
    lent = Queue(queue.name, other.driver_connection)

    other.begin()
    lent.send(b"rolled back")
    other.rollback()
    other.begin()
    lent.send(b"committed")
    other.commit()

    assert [message.body for message in queue.receive(10)] == [b"committed"]


@pytest.mark.parametrize(
    "time", [timedelta(milliseconds=1), timedelta(minutes=5), timedelta(days=60), timedelta(days=36500)]
)
@pytest.mark.promise("time-to-be-received-sets-expiry")
def test_expires_is_the_servers_clock_plus_the_time_to_be_received(queue, sql, time):
    before = sql.utc_now()

    queue.send(b"", time_to_be_received=time)
    queue.send_many([OutgoingMessage(b"", time_to_be_received=time)])

    tolerance = timedelta(milliseconds=10)  # datetime counts in steps of 3.33 ms
    for row in queue.browse():
        assert before + time - tolerance <= row.expires <= sql.utc_now() + time + tolerance


@pytest.mark.promise("time-to-be-received-sets-expiry")
def test_no_time_to_be_received_leaves_expires_null(queue):
    queue.send(b"")

    assert queue.browse()[0].expires is None


@pytest.mark.parametrize("time", [timedelta(0), timedelta(milliseconds=-1), timedelta(days=-1), timedelta(days=40000)])
def test_a_time_to_be_received_that_is_not_positive_or_beyond_the_calendar_is_refused(queue, time):
    with pytest.raises(InvalidTimeToBeReceived):
        queue.send(b"", time_to_be_received=time)
    with pytest.raises(InvalidTimeToBeReceived):
        queue.send_many([OutgoingMessage(b"", time_to_be_received=time)])

    assert queue.peek() == 0


@pytest.mark.promise("text-round-trips")
def test_headers_and_body_come_back_byte_for_byte(queue):
    body = bytes(range(256))
    queue.send(body, HEADERS)
    queue.send_many([OutgoingMessage(body, HEADERS), OutgoingMessage("漢🚀".encode(), {"a": "b"})])

    one, two, three = queue.receive(3)

    assert one.headers == two.headers == HEADERS
    assert one.body == two.body == body
    assert (three.headers, three.body) == ({"a": "b"}, "漢🚀".encode())


@pytest.mark.promise("text-round-trips")
def test_headers_as_nservicebus_writes_them_are_read(queue):
    text = '{"a":"b\\/c","rocket":"\\uD83D\\uDE80","none":null,"quote":"\\u0022"}'
    queue.send(b"", text)

    (message,) = queue.receive()

    assert message.raw_headers == text
    assert message.headers == {"a": "b/c", "rocket": "🚀", "none": None, "quote": '"'}


def test_a_null_body_is_stored_as_null_and_read_as_empty(queue, sql):
    queue.send(None)
    queue.send_many([OutgoingMessage(None), OutgoingMessage(b"")])

    assert sql.column_values(queue.name, "Body") == [None, None, b""]
    assert [message.body for message in queue.receive(3)] == [b"", b"", b""]


def test_send_many_keeps_the_order_over_batches(queue):
    count = 2300

    sent = queue.send_many(OutgoingMessage(str(number).encode()) for number in range(count))

    received = []
    while batch := queue.receive(500):
        received += [int(message.body) for message in batch]
    assert sent == count
    assert received == list(range(count))


def test_sending_no_messages_stores_none(queue):
    assert queue.send_many([]) == 0
    assert queue.peek() == 0


def test_a_megabyte_of_headers_is_stored(queue):
    headers = {"big": "漢" * 350_000}
    queue.send(b"", headers)

    (message,) = queue.receive()

    assert message.headers == headers


def test_a_row_id_that_the_sender_gives_is_kept(queue):
    given, batched = uuid4(), uuid4()

    queue.send(b"", id=given)
    queue.send_many([OutgoingMessage(b"", id=batched)])

    assert [message.id for message in queue.receive(2)] == [given, batched]


@pytest.mark.parametrize(
    "headers",
    [{"a": 1}, {1: "a"}, {"a": ["b"]}, {"nul": "\0"}, {"half": "\ud83d"}],
    ids=["number", "number as name", "list", "NUL", "half a surrogate pair"],
)
def test_headers_that_cannot_be_stored_are_refused_before_anything_is_sent(queue, headers):
    with pytest.raises(InvalidMessage):
        queue.send(b"", headers)

    assert queue.peek() == 0


def test_a_body_of_text_is_refused_with_what_to_do(queue):
    with pytest.raises(InvalidMessage, match="encode"):
        queue.send("text")


def test_the_dispatcher_sends_by_name(queue, database):
    row_id = uuid4()

    database.call(
        "send_message", queue_name=queue.name, headers='{"a":"b"}', body=b"x", id=row_id, time_to_be_received_ms=60000
    )

    (message,) = queue.browse()
    assert (message.id, message.headers, message.body) == (row_id, {"a": "b"}, b"x")
    assert message.expires > datetime.now(UTC)


def test_the_dispatcher_names_a_queue_that_is_not_registered(database):
    with pytest.raises(QueueNotFound, match="Nowhere"):
        database.call("send_message", queue_name="Nowhere", headers="")


def test_malformed_rows_are_refused_by_number(queue, sql):
    with pytest.raises(InvalidMessages):
        sql.send_malformed_messages(queue.name)

    assert queue.peek() == 0


def test_the_six_messages_of_the_wire_pass_unchanged(queue, wire_messages):
    for entry in wire_messages:
        queue.send(entry["body"].encode(), entry["headers"])

    received = queue.receive(len(wire_messages))

    assert [message.headers for message in received] == [entry["headers"] for entry in wire_messages]
    assert all(json.loads(message.body) == {"OrderId": 42} for message in received)


def test_messages_sent_together_without_ids_get_ids_of_their_own_that_are_random_uuids(queue):
    for _ in range(3):
        queue.send_many([OutgoingMessage(b"x")] * 200)

    ids = [message.id for message in queue.browse(1000)]
    assert len(set(ids)) == 600
    assert {(each.version, each.variant) for each in ids} == {(4, RFC_4122)}
