"""Finding messages by an id, failed attempts and records of outboxes, on every engine that can be reached."""

from uuid import uuid4

import pytest

from rowpost.errors import InvalidCount
from rowpost.transport.message_search import search
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage, encode_headers


def store(queue, *headers):
    queue.send_many(OutgoingMessage(b"body", each) for each in headers)


def look(queue, wanted, **options):
    return search(queue.database, [queue.name], wanted, **options)


def test_messages_are_found_by_the_value_of_any_header_the_newest_first(queue):
    store(
        queue,
        {"NServiceBus.MessageId": "m-1"},
        {"NServiceBus.MessageId": "m-10"},
        {"NServiceBus.RelatedTo": "m-1", "Shop.Null": None},
    )

    found = look(queue, "m-1")

    assert [each.headers for each in found.messages] == [
        {"NServiceBus.RelatedTo": "m-1", "Shop.Null": None},
        {"NServiceBus.MessageId": "m-1"},
    ]
    assert [(each.message.body, each.message.body_bytes) for each in found.messages] == [(b"", 4)] * 2
    assert (found.unfinished, found.unseen) == ({}, ())


@pytest.mark.parametrize("wanted", ["a+b=c 'x' \"y\"", "Zürich/42", "%_[a-z]", "x" * 300])
def test_an_id_is_found_however_its_characters_are_written(queue, wanted):
    escaped = (
        encode_headers({"NServiceBus.MessageId": wanted})
        .replace("+", "\\u002B")
        .replace("'", "\\u0027")
        .replace("ü", "\\u00FC")
    )
    store(queue, {"NServiceBus.MessageId": wanted}, escaped, {"NServiceBus.MessageId": f"{wanted}2"})

    found = look(queue, wanted)

    assert [each.message.message_id for each in found.messages] == [wanted] * 2


def test_an_id_that_differs_in_case_is_another_one(queue):
    store(queue, {"NServiceBus.MessageId": "abc"}, {"NServiceBus.MessageId": "ABC"})

    assert [each.message.message_id for each in look(queue, "ABC").messages] == ["ABC"]


@pytest.mark.parametrize("headers", ["", "{broken"])
def test_a_message_is_found_by_the_id_of_its_row(queue, headers):
    row = queue.send(b"x", headers)
    queue.send(b"y", headers)

    (found,) = look(queue, str(row).upper()).messages

    assert (found.message.id, found.headers) == (row, {})


def test_only_the_newest_messages_are_looked_through(queue):
    store(queue, {"NServiceBus.MessageId": "old"}, *({"NServiceBus.MessageId": f"new {number}"} for number in range(3)))
    lowest = queue.browse(2)[1].row_version

    found, all_of_them = look(queue, "old", look_through=3), look(queue, "old", look_through=None)

    assert (found.messages, dict(found.unfinished)) == ((), {queue.name: lowest})
    assert ([each.message.message_id for each in all_of_them.messages], all_of_them.unfinished) == (["old"], {})


def test_more_than_a_thousand_are_found_in_several_calls(queue):
    store(
        queue, *({"NServiceBus.MessageId": f"m-{number}", "NServiceBus.ConversationId": "c"} for number in range(2100))
    )

    found = look(queue, "c")

    assert [each.message.message_id for each in found.messages] == [f"m-{number}" for number in reversed(range(2100))]


def test_a_queue_that_is_gone_is_named(queue, database):
    assert search(database, ["Gone", queue.name], "m-1").unseen == ("Gone",)


@pytest.mark.parametrize("wanted", ["", "   ", "ü", "\n"])
def test_a_text_that_cannot_be_searched_for_is_refused(queue, wanted):
    with pytest.raises(InvalidCount, match="Use the id of a message"):
        look(queue, wanted)


@pytest.mark.parametrize(("text", "count"), [("x", 0), ("x", 100_001), ("", 1), ("x" * 201, 1)])
def test_a_search_is_bounded(queue, text, count):
    with pytest.raises(InvalidCount):
        queue.database.call("search_messages", queue=queue.name, text=text, count=count)


def test_a_message_that_a_receiver_has_locked_does_not_hold_the_search(queue, open_database, needs_readpast):
    store(queue, {"NServiceBus.MessageId": "m-1"}, {"NServiceBus.MessageId": "m-1"})
    other = open_database()
    other.begin()
    Queue(queue.name, other).receive(1)

    seen = len(look(queue, "m-1").messages)
    other.rollback()

    assert seen == (2 if queue.database.engine == "postgresql" else 1)


def test_the_attempts_at_a_message_are_listed_by_queue(database):
    row = uuid4()
    for queue in ("Sales", "Billing", "Sales"):
        database.call("record_failure", queue_key=queue, id=row)

    assert [each[:2] for each in database.call("list_failures", id=row)] == [("Billing", 1), ("Sales", 2)]
    assert database.call("list_failures", id=uuid4()) == []


def test_the_record_of_an_outbox_says_whether_its_operations_are_sent(database):
    message = str(uuid4())
    database.call("record_handled", endpoint="Sales", message_id=message)
    database.call("store_operations", endpoint="Sales", message_id=message, operations="[]")

    stored = database.call("read_handled", endpoint="Sales", message_id=message)
    database.call("settle_operations", endpoint="Sales", message_id=message)
    sent = database.call("read_handled", endpoint="Sales", message_id=message)

    assert ([row.sent for row in stored], [row.sent for row in sent]) == ([False], [True])
    assert database.call("read_handled", endpoint="Billing", message_id=message) == []
