"""The headers of a failed message."""

from datetime import UTC, datetime

import pytest

from rowpost.recoverability.policy import Host, describe, failure_headers
from rowpost.wire.message import decode_headers, encode_headers

AT = datetime(2026, 4, 29, 21, 58, 0, 406166, UTC)


def fail(headers, error, message_id="row-id"):
    try:
        raise error
    except type(error) as raised:
        return failure_headers(
            headers, raised, queue="Billing", host=Host("Billing", "APP02"), at=AT, message_id=message_id
        )


def test_the_failure_is_described_as_a_dotnet_endpoint_describes_it():
    headers = fail({"NServiceBus.MessageId": "id-1"}, ValueError("no such order"))

    stack = headers.pop("NServiceBus.ExceptionInfo.StackTrace")
    assert headers == {
        "NServiceBus.MessageId": "id-1",
        "NServiceBus.FailedQ": "Billing",
        "NServiceBus.TimeOfFailure": "2026-04-29 21:58:00:406166 Z",
        "NServiceBus.ExceptionInfo.ExceptionType": "builtins.ValueError",
        "NServiceBus.ExceptionInfo.Message": "no such order",
        "NServiceBus.ExceptionInfo.Source": __name__,
        "NServiceBus.ProcessingMachine": "APP02",
        "NServiceBus.ProcessingEndpoint": "Billing",
        "$.diagnostics.hostid": Host("Billing", "APP02").id,
        "$.diagnostics.hostdisplayname": "APP02",
    }
    assert stack.startswith("Traceback")
    assert stack.rstrip().endswith("ValueError: no such order")


def test_the_wire_example_keeps_its_headers(wire_messages):
    original = {"A": "é漢🚀", "B": "", "C": None, "NServiceBus.Retries.Timestamp": "2026-04-29 21:57:28:410222 Z"}

    headers = fail(original, ValueError())

    assert {name: headers[name] for name in original} == original
    for message in wire_messages:
        kept = fail(message["headers"], ValueError())
        dropped = {"NServiceBus.Retries", "NServiceBus.FLRetries"}
        assert {n for n in message["headers"] if n not in kept and ".ExceptionInfo." not in n} <= dropped


@pytest.mark.parametrize("name", ["NServiceBus.Retries", "NServiceBus.FLRetries", "NServiceBus.ExceptionInfo.HelpLink"])
def test_what_described_earlier_retries_and_failures_is_dropped(name):
    assert name not in fail({name: "2"}, ValueError())


class Answering(Exception):
    """Answers for every attribute, and refuses new ones."""

    def __getattr__(self, name):
        return 5

    def __setattr__(self, name, value):
        raise RuntimeError(name)


def test_facts_about_an_error_are_headers_and_an_error_that_refuses_them_is_described_without():
    error = ValueError("x")
    for facts in ({"Handler type": "a", "Order": "1"}, {"Order": "2"}):
        describe(error, facts)
    describe(Answering(), {"Order": "1"})

    data = "NServiceBus.ExceptionInfo.Data."
    assert {name: value for name, value in fail({}, error).items() if name.startswith(data)} == {
        f"{data}Handler type": "a",
        f"{data}Order": "2",
    }
    assert fail({}, Answering("y"))["NServiceBus.ExceptionInfo.Message"] == "y"


def test_an_older_failed_queue_is_replaced():
    assert fail({"NServiceBus.FailedQ": "Another"}, ValueError())["NServiceBus.FailedQ"] == "Billing"


@pytest.mark.parametrize("headers", [{}, {"NServiceBus.MessageId": None}, {"NServiceBus.MessageId": ""}])
def test_a_missing_message_id_becomes_the_rows_id(headers):
    assert fail(headers, ValueError())["NServiceBus.MessageId"] == "row-id"


def test_a_long_message_is_cut_at_16384_characters_and_a_long_trace_is_bounded_with_its_end_kept():
    headers = fail({}, ValueError("x" * 100_000 + "the end"))

    assert len(headers["NServiceBus.ExceptionInfo.Message"]) == 16384
    assert len(headers["NServiceBus.ExceptionInfo.StackTrace"]) == 32768
    assert headers["NServiceBus.ExceptionInfo.StackTrace"].rstrip().endswith("the end")


def test_the_cause_is_the_inner_exception_and_a_suppressed_context_is_not():
    def raise_from(cause):
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from (inner if cause else None)

    found = []
    for cause in (True, False):
        try:
            raise_from(cause)
        except ValueError as error:
            found.append(fail({}, error).get("NServiceBus.ExceptionInfo.InnerExceptionType"))

    assert found == ["builtins.KeyError", None]


@pytest.mark.parametrize("text", ["half \ud83d of a pair", "NUL \0 inside", "é漢🚀"])
def test_whatever_an_exception_says_can_be_stored(text):
    headers = fail({"From.Sender": text}, ValueError(text))

    assert decode_headers(encode_headers(headers))["NServiceBus.ExceptionInfo.ExceptionType"] == "builtins.ValueError"


def test_an_exception_whose_text_cannot_be_had_is_described_all_the_same():
    class Unspeakable(Exception):
        def __str__(self):
            raise RuntimeError

    headers = fail({}, Unspeakable())

    assert "RuntimeError" in headers["NServiceBus.ExceptionInfo.Message"]


def test_the_host_id_is_the_same_for_the_same_endpoint_and_machine_only():
    ids = {Host(endpoint, machine).id for endpoint in ("A", "B") for machine in ("M", "N")}

    assert len(ids) == 4
    assert {len(host_id) for host_id in ids} == {32}
