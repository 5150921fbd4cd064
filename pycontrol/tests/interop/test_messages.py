"""Messages between NServiceBus and rowpost, both ways: requests, events, delays, expiry, instances, traces, audit."""

import time

from rowpost.wire.headers import (
    ENCLOSED_MESSAGE_TYPES,
    MESSAGE_ID,
    ORIGINATING_ENDPOINT,
    PROCESSING_ENDPOINT,
    REPLY_TO_ADDRESS,
    TRACE_PARENT,
)

#: a trace of W3C's: version, trace, span, flags
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BIG = 10_000_000  # bytes
MANY = 300
ORDER = {"OrderId": 42}


def test_a_command_is_handled_and_answered(stage):
    asker, answerer = stage.both()

    asker.send(
        "PlaceOrder",
        {"OrderId": 42, "Amount": 19.9, "Note": "Ž€🙂", "When": "2026-11-22T10:00:00+02:00"},
        to=stage.answerer,
    )

    (came,) = answerer.wait_for("handled", "PlaceOrder")
    (reply,) = asker.wait_for("handled", "OrderAccepted")
    assert came["body"] == {"OrderId": 42, "Amount": 19.9, "Note": "Ž€🙂", "When": "2026-11-22T10:00:00+02:00"}
    assert came["headers"][ORIGINATING_ENDPOINT] == stage.asker
    assert reply["body"] == ORDER
    assert reply["headers"]["NServiceBus.RelatedTo"] == came["headers"][MESSAGE_ID]
    assert reply["headers"]["NServiceBus.ConversationId"] == came["headers"]["NServiceBus.ConversationId"]
    assert stage.rows("error") == []


def test_a_command_goes_where_its_route_says(stage):
    answerer = stage.start("answerer")
    asker = stage.start("asker", route=f"BillOrder:{stage.answerer}")

    asker.send("BillOrder", ORDER)

    assert answerer.wait_for("handled", "BillOrder")[0]["body"] == ORDER


def test_a_header_of_the_sender_arrives(stage):
    asker, answerer = stage.both()

    asker.send("BillOrder", ORDER, to=stage.answerer, headers={"Tenant": 'Ž "1"'})

    assert answerer.wait_for("handled", "BillOrder")[0]["headers"]["Tenant"] == 'Ž "1"'


def test_an_event_reaches_the_subscriber_of_its_class_once(stage):
    asker, answerer = stage.both()

    asker.publish("OrderBilled", {"OrderId": 42, "Amount": 19.9})
    asker.send("BillOrder", ORDER, to=stage.answerer)

    (event,) = answerer.wait_for("handled", "OrderBilled")
    answerer.wait_for("handled", "BillOrder")
    assert event["body"] == {"OrderId": 42, "Amount": 19.9}
    assert len(answerer.handled("OrderBilled")) == 1


def test_an_event_reaches_the_subscriber_of_its_interface_once(stage):
    asker, answerer = stage.both()

    asker.publish("OrderPlaced", ORDER)
    asker.send("BillOrder", ORDER, to=stage.answerer)

    (event,) = answerer.wait_for("handled", "OrderPlaced")
    answerer.wait_for("handled", "BillOrder")
    types = [each.partition(",")[0] for each in event["headers"][ENCLOSED_MESSAGE_TYPES].split(";")]
    assert event["body"] == ORDER
    assert types == ["Shop.Messages.OrderPlaced", "Shop.Messages.IOrderEvent"]
    assert len(answerer.handled("OrderPlaced")) == 1


def test_an_event_of_a_handler_reaches_both_sides_once(stage):
    asker, answerer = stage.both()

    asker.send("PlaceOrder", ORDER, to=stage.answerer)

    for each in (asker, answerer):
        assert [came["body"] for came in each.wait_for("handled", "OrderPlaced")] == [ORDER]


def test_a_delayed_command_arrives_no_sooner(stage):
    asker, answerer = stage.both()
    sent_ms = time.time() * 1000

    asker.send("Timed", ORDER, to=stage.answerer, delayMs=2_000)

    (came,) = answerer.wait_for("timed", 42)
    assert came["at"] >= sent_ms + 2_000 - 10  # the clock of the server's table counts in steps


def test_a_command_that_expired_is_not_handled(stage):
    asker, answerer = stage.both()
    assert answerer.stop() == 0

    asker.send("Ephemeral", ORDER, to=stage.answerer)
    asker.send("BillOrder", ORDER, to=stage.answerer)
    stage.wait_until_expired(stage.answerer)
    again = stage.start("answerer")

    again.wait_for("handled", "BillOrder")
    assert again.stop() == 0
    assert again.handled("Ephemeral") == []
    assert stage.rows("error") == []


def test_a_command_that_does_not_expire_in_time_is_handled(stage):
    asker, answerer = stage.both()

    asker.send("Ephemeral", ORDER, to=stage.answerer)

    (came,) = answerer.wait_for("handled", "Ephemeral")
    assert came["headers"]["NServiceBus.TimeToBeReceived"] == "00:00:02"


def test_a_reply_reaches_the_instance_that_asked(stage):
    answerer = stage.start("answerer")
    asker = stage.start("asker", instance="web1")

    asker.send("PlaceOrder", ORDER, to=stage.answerer, instanceReply=1)

    (came,) = answerer.wait_for("handled", "PlaceOrder")
    assert f"{stage.asker}.web1" in came["headers"][REPLY_TO_ADDRESS]
    assert asker.wait_for("handled", "OrderAccepted")[0]["body"] == ORDER


def test_a_trace_goes_on_through_a_handler(stage):
    stage.start("answerer", trace="on")
    asker = stage.start("asker")

    asker.send("PlaceOrder", ORDER, to=stage.answerer, headers={TRACE_PARENT: f"00-{TRACE}-{SPAN}-01"})

    (reply,) = asker.wait_for("handled", "OrderAccepted")
    assert reply["headers"][TRACE_PARENT].split("-")[1] == TRACE


def test_a_handled_message_has_a_copy_in_the_audit_queue(stage):
    asker, answerer = stage.both()

    asker.send("BillOrder", ORDER, to=stage.answerer)

    (came,) = answerer.wait_for("handled", "BillOrder")
    (copy,) = stage.wait_for_rows("audit", about=lambda row: row.headers.get(MESSAGE_ID) == came["headers"][MESSAGE_ID])
    assert copy.headers[PROCESSING_ENDPOINT] == stage.answerer
    assert copy.body == b'{"OrderId":42}'


def test_a_body_of_ten_megabytes_arrives_whole(stage):
    asker, answerer = stage.both(audit="off")

    asker.send("Parcel", {"OrderId": 1, "Data": "QUFB" * (BIG // 3)}, to=stage.answerer)

    assert answerer.wait_for("handled", "Parcel")[0]["body"]["OrderId"] == BIG // 3 * 3


def test_one_queue_that_both_sides_read_gives_each_message_once(stage):
    sides = [stage.start("answerer", audit="off"), stage.start("asker", name=stage.answerer, audit="off")]

    sides[0].send("Count", {"OrderId": 0}, to=stage.answerer, repeat=MANY)
    stage.wait_until(lambda: stage.rows(stage.answerer) == [])
    assert [each.stop() for each in sides] == [0, 0]

    counted = sorted(report["counted"] for each in sides for report in each.reports if "counted" in report)
    assert counted == list(range(MANY))
