"""The headers of messages that cross a bridge, and of those that cannot."""

from datetime import UTC, datetime

import pytest

from rowpost.errors import InvalidMessage, QueueNotFound
from rowpost.recoverability.policy import Host
from rowpost.workers.bridge.headers import failed_headers, is_subscription_message, transferred_headers

PROXY = '"public"."Stock"'
HOST = Host("bridge test", "app01")
AT = datetime(2026, 4, 29, 21, 56, 55, 590807, UTC)


def there(address):
    if address.startswith("unknown"):
        raise InvalidMessage(f"no {address}")
    return f"{address} over there"


def cross(headers, **options):
    return transferred_headers(headers, there, transfer="shop->warehouse", proxy=PROXY, **options)


def fail(headers, error=None):
    return failed_headers(headers, error or QueueNotFound("gone"), proxy=PROXY, host=HOST, at=AT, message_id="row")


def test_a_message_keeps_its_headers_but_the_reply_address():
    headers = {
        "NServiceBus.MessageId": "1",
        "traceparent": "00-a-b-01",
        "Shop.Null": None,
        "NServiceBus.ReplyToAddress": "Sales",
    }

    assert cross(headers) == {
        **headers, "NServiceBus.ReplyToAddress": "Sales over there", "NServiceBus.Bridge.Transfer": "shop->warehouse",
    }  # fmt: skip


def test_the_queue_of_a_waiting_process_is_a_reply_address_too():
    assert (
        cross({"NServiceBus.SqlServer.CallbackQueue": "Sales.web1"})["NServiceBus.SqlServer.CallbackQueue"]
        == "Sales.web1 over there"
    )


def test_a_reply_address_outside_of_the_bridge_is_refused():
    with pytest.raises(InvalidMessage, match="no unknown"):
        cross({"NServiceBus.ReplyToAddress": "unknown"})


def test_a_failed_message_is_retried_where_it_failed():
    crossed = cross({"NServiceBus.FailedQ": "Sales", "NServiceBus.ReplyToAddress": "Stock"})

    assert crossed == {"NServiceBus.FailedQ": "Sales over there", "NServiceBus.ReplyToAddress": "Stock over there"}


def test_an_audited_message_keeps_all_headers():
    headers = {
        "NServiceBus.ProcessingEnded": "x",
        "NServiceBus.ReplyToAddress": "unknown",
        "ServiceControl.Retry.UniqueMessageId": "1",
    }

    assert cross(headers) == headers


def test_a_retry_of_service_control_is_acknowledged_over_the_bridge():
    headers = {
        "ServiceControl.Retry.UniqueMessageId": "1", "ServiceControl.Retry.AcknowledgementQueue": "SC", "NServiceBus.ReplyToAddress": "Sales",
    }  # fmt: skip

    assert cross(headers) == {
        **headers, "ServiceControl.Retry.AcknowledgementQueue": "SC over there", "NServiceBus.ReplyToAddress": "Sales over there",
    }  # fmt: skip


def test_reply_addresses_of_failed_messages_can_stay():
    assert cross({"NServiceBus.FailedQ": "Sales", "NServiceBus.ReplyToAddress": "unknown"}, reply_of_failed=False) == {
        "NServiceBus.FailedQ": "Sales over there", "NServiceBus.ReplyToAddress": "unknown",
    }  # fmt: skip


def test_a_message_that_cannot_cross_says_why_and_returns_to_its_proxy():
    failed = fail({"NServiceBus.MessageId": "1"})

    assert failed["NServiceBus.FailedQ"] == failed["NServiceBus.MessagingBridge.FailedQ"] == PROXY
    assert failed["NServiceBus.MessagingBridge.ExceptionInfo.Message"] == "gone"
    assert failed["NServiceBus.MessagingBridge.TimeOfFailure"] == "2026-04-29 21:56:55:590807 Z"


def test_what_crosses_after_a_retry_is_what_was_sent():
    headers = {"NServiceBus.MessageId": "1", "NServiceBus.ReplyToAddress": "Sales"}

    assert cross(fail(headers)) == cross(headers)
    assert cross(fail(fail(headers))) == cross(headers)


def test_a_failed_message_that_cannot_cross_keeps_its_failure():
    headers = {
        "NServiceBus.MessageId": "1",
        "NServiceBus.FailedQ": "Sales",
        "NServiceBus.ExceptionInfo.Message": "no stock",
    }

    failed = fail(headers)

    assert failed.items() >= headers.items()
    assert failed["NServiceBus.MessagingBridge.FailedQ"] == PROXY
    assert cross(failed) == cross(headers)


@pytest.mark.parametrize(
    ("intent", "asks"), [("Subscribe", True), ("unsubscribe", True), ("Publish", False), (None, False)]
)
def test_messages_that_ask_for_subscriptions_are_known(intent, asks):
    assert is_subscription_message({"NServiceBus.MessageIntent": intent}) is asks
