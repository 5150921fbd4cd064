"""Messages that fail on one side: retries, the error queue, returns from it, corrupt rows, and what a failed handler sent."""

import pytest

from rowpost.transport.error_queue import ErrorQueue
from rowpost.wire.headers import (
    CONTENT_TYPE,
    ENCLOSED_MESSAGE_TYPES,
    EXCEPTION_MESSAGE,
    FAILED_QUEUE,
    MESSAGE_ID,
    RETRIES_TIMESTAMP,
    RETRY_ACKNOWLEDGEMENT_QUEUE,
    RETRY_UNIQUE_MESSAGE_ID,
)
from rowpost.wire.message import encode_headers
from tests.support.schema import named

ORDER = {"OrderId": 42}
CONTROL = "ServiceControl"
UNIQUE = "6e1f2d3c-0000-4000-8000-000000000042"
MODES = ("None", "ReceiveOnly", "SendsAtomicWithReceive")


def failed(stage):
    """Let a message fail at the answerer, and return its row in the error queue."""
    asker, answerer = stage.both()
    asker.send("Fail", ORDER, to=stage.answerer)
    (row,) = stage.wait_for_rows("error")
    return answerer, row


def test_a_message_that_fails_ends_in_the_error_queue(stage):
    _, row = failed(stage)

    assert row.headers[EXCEPTION_MESSAGE] == "no such order: 42"
    assert stage.answerer in row.headers[FAILED_QUEUE]
    assert row.body == b'{"OrderId":42}'


def test_a_message_is_retried_after_a_delay_before_it_ends_in_the_error_queue(stage):
    asker, _ = stage.both(immediate=0, delayedRetries=1)

    asker.send("Fail", ORDER, to=stage.answerer)

    (row,) = stage.wait_for_rows("error")
    assert RETRIES_TIMESTAMP in row.headers  # only a delayed retry writes it
    assert stage.answerer in row.headers[FAILED_QUEUE]


def test_rowpost_errors_retry_returns_a_message_of_either_side(stage):
    answerer, row = failed(stage)
    answerer.tell("mend")

    ErrorQueue(stage.database, named("error")).retry(row.row_version)

    assert answerer.wait_for("handled", "Fail")[0]["body"] == ORDER
    assert stage.rows("error") == []


def test_a_message_that_servicecontrol_retries_is_acknowledged(stage, make_queue):
    make_queue(CONTROL)
    answerer, row = failed(stage)
    answerer.tell("mend")
    returned = {
        name: value for name, value in row.headers.items() if "ExceptionInfo" not in name and name != FAILED_QUEUE
    }

    stage.insert(
        stage.answerer,
        encode_headers({**returned, RETRY_UNIQUE_MESSAGE_ID: UNIQUE, RETRY_ACKNOWLEDGEMENT_QUEUE: CONTROL}),
        row.body,
    )

    assert answerer.wait_for("handled", "Fail")[0]["body"] == ORDER
    (acknowledgement,) = stage.wait_for_rows(CONTROL)
    assert acknowledgement.headers[RETRY_UNIQUE_MESSAGE_ID] == UNIQUE
    assert acknowledgement.headers["ServiceControl.Retry.Successful"]


#: rows that cannot be handled, by what is wrong. A row without a body is not here: NServiceBus never removes it.
CORRUPT = {
    "headers that are no JSON": ("{no json", b'{"OrderId":1}'),
    "no headers": ("", b'{"OrderId":1}'),
    "no type": ("{}", b'{"OrderId":1}'),
    "a body that is no JSON": (
        encode_headers({MESSAGE_ID: UNIQUE, CONTENT_TYPE: "application/json", ENCLOSED_MESSAGE_TYPES: "Shop.Messages.BillOrder"}), b"{no json",
    ),
    "a number that is too long": (
        encode_headers({MESSAGE_ID: UNIQUE, CONTENT_TYPE: "application/json", ENCLOSED_MESSAGE_TYPES: "Shop.Messages.BillOrder"}),
        b'{"OrderId":' + b"9" * 5_000 + b"}",
    ),
}  # fmt: skip


def test_corrupt_rows_move_to_the_error_queue_and_the_next_one_is_handled(stage):
    asker, answerer = stage.both()

    for headers, body in CORRUPT.values():
        stage.insert(stage.answerer, headers, body)
    asker.send("BillOrder", ORDER, to=stage.answerer)

    assert answerer.wait_for("handled", "BillOrder")[0]["body"] == ORDER
    stage.wait_until(lambda: len(stage.rows("error")) == len(CORRUPT))
    assert sorted(row.body for row in stage.rows("error")) == sorted(body for _, body in CORRUPT.values())
    stage.wait_until(lambda: stage.rows(stage.answerer) == [])  # a handler reports before its transaction ends


@pytest.mark.parametrize("mode", MODES)
def test_what_a_failed_handler_sent_is_never_seen(stage, mode):
    asker = stage.start("asker")
    once = (
        {"immediate": 0} if mode == "None" else {}
    )  # in this mode a message has left its queue already, so NServiceBus refuses retries
    answerer = stage.start("answerer", mode=mode, **once)

    asker.send("Relay", {"OrderId": 1, "To": stage.asker, "ThenFail": True}, to=stage.answerer)
    stage.wait_for_rows("error")
    asker.send("Relay", {"OrderId": 2, "To": stage.asker, "ThenFail": False}, to=stage.answerer)

    answerer.wait_for("handled", "Relay")
    asker.wait_for("handled", "BillOrder")
    assert asker.stop() == 0
    assert [each["body"]["OrderId"] for each in asker.handled("BillOrder")] == [2]
    assert stage.rows(stage.asker) == []
