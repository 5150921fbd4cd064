"""What the command line reads and how it shows things: pure."""

import io
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta

import pytest
import typer

from rowpost import errors
from rowpost.cli.exits import ExitCode, Refused, exit_code
from rowpost.cli.formats import parse_duration
from rowpost.cli.message import Envelope, content_type, read_header_options
from rowpost.cli.printing import describe_body, visible
from rowpost.cli.session import Session, _Console

NOW = datetime(2026, 11, 20, 12, 0, 0, 123456, UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("60d", 5_184_000),
        ("250ms", 0.25),
        ("1.5h", 5400),
        (" 5M ", 300),
        ("-5m", -300),
    ],
)
def test_a_span_of_time_is_read_with_its_units(text: str, seconds: float):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5y", "--5m", "1e9d", "99999999999d"])
def test_a_span_without_a_unit_or_beyond_all_calendars_is_refused(text: str):
    with pytest.raises(typer.BadParameter):
        parse_duration(text)


def test_a_message_gets_the_practical_minimum_of_headers():
    envelope = Envelope({}, type_name="Shop.PlaceOrder", sender="Shop", reply_to="Replies", machine="APP01")

    headers = envelope.headers(b'{"OrderId": 1}', "id-1", NOW)

    assert headers == {
        "NServiceBus.MessageId": "id-1",
        "NServiceBus.MessageIntent": "Send",
        "NServiceBus.ContentType": "application/json",
        "NServiceBus.ConversationId": "id-1",
        "NServiceBus.CorrelationId": "id-1",
        "NServiceBus.OriginatingEndpoint": "Shop",
        "NServiceBus.OriginatingMachine": "APP01",
        "NServiceBus.TimeSent": "2026-11-20 12:00:00:123456 Z",
        "NServiceBus.EnclosedMessageTypes": "Shop.PlaceOrder",
        "NServiceBus.ReplyToAddress": "Replies",
    }


def test_headers_that_are_given_win_and_the_ids_follow_a_given_message_id():
    envelope = Envelope({"NServiceBus.MessageId": "mine", "NServiceBus.MessageIntent": "Reply"})

    headers = envelope.headers(b"", "made", NOW)

    assert headers["NServiceBus.MessageId"] == headers["NServiceBus.CorrelationId"] == "mine"
    assert headers["NServiceBus.MessageIntent"] == "Reply"


def test_a_raw_message_has_only_what_was_given():
    assert Envelope({"a": None}, raw=True).headers(b"{}", "made", NOW) == {"a": None}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b' \n{"a": 1}', "application/json"),
        (b"\xef\xbb\xbf[1]", "application/json"),
        (b"<order/>", "text/xml"),
        (b"", "application/octet-stream"),
        (b"\x00{", "application/octet-stream"),
    ],
)
def test_the_content_type_follows_from_the_first_character(body: bytes, kind: str):
    assert content_type(body) == kind


@pytest.mark.parametrize("option", ["name", "=value", ""])
def test_a_header_option_without_name_or_equals_is_refused(option: str):
    with pytest.raises(typer.BadParameter):
        read_header_options([option])


def test_what_steers_a_terminal_is_spelt_out_and_nothing_else():
    assert visible("tab\tline\n é 😀 [b]") == "tab\tline\n é 😀 [b]"
    assert visible("\x1b[2J\r\x9b\u202e\u2066\ud800\x7f") == "\\x1b[2J\\r\\x9b\\u202e\\u2066\\ud800\\x7f"


@pytest.mark.parametrize(
    ("body", "whole", "shown"),
    [
        (b"", None, "(no body)"),
        (b"", 7, "(7 bytes, not shown)"),
        (b"text", None, "text"),
        ("gr\u00fc".encode()[:3], 9, "gr\n(9 bytes, truncated)"),
        (b"\x00\x01", None, "(binary, 2 bytes)\n00 01"),
        (b"\xff" * 17, None, "(binary, 17 bytes)\n" + "ff " * 15 + "ff\nff"),
    ],
)
def test_a_body_is_shown_as_text_or_as_its_first_bytes(body: bytes, whole: int | None, shown: str):
    assert describe_body(body, whole) == shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SettingsError("x"), ExitCode.SETTINGS),
        (errors.DatabaseUnavailable("x"), ExitCode.UNAVAILABLE),
        (errors.LoginRefused("x"), ExitCode.UNAVAILABLE),
        (errors.PermissionDenied("x"), ExitCode.PERMISSION),
        (errors.SchemaMissing("x"), ExitCode.NOT_FOUND),
        (errors.FeatureMissing("x"), ExitCode.NOT_FOUND),
        (errors.QueueNotFound("x"), ExitCode.NOT_FOUND),
        (errors.InvalidTimeToBeReceived("x"), ExitCode.USAGE),
        (errors.SchemaTooNew("x"), ExitCode.FAILED),
        (errors.DeployError("x"), ExitCode.FAILED),
        (errors.Deadlock("x"), ExitCode.FAILED),
        (Refused("x", ExitCode.USAGE), ExitCode.USAGE),
    ],
)
def test_every_error_has_its_exit_code(error: errors.RowpostError, code: ExitCode):
    assert exit_code(error) is code


def test_the_console_shows_control_characters_of_a_text_and_obeys_none():
    out = io.StringIO()

    _Console(file=out).print("a\x9b31mb\x1b[2Jc")

    assert out.getvalue() == "a\\x9b31mb\\x1b[2Jc\n"


def test_a_result_is_printed_to_a_stream_of_a_program_that_has_no_encoding():
    with redirect_stdout(io.StringIO()) as printed:
        Session().document({"queue": "Größe"})

    assert printed.getvalue() == '{"queue": "Größe"}\n'
