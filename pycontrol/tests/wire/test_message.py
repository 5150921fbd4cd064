"""Headers and timestamps on the wire, in the form of NServiceBus."""

import doctest
import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import RFC_4122, UUID

import pytest

import rowpost.wire.message
from rowpost.errors import InvalidMessage, MessageCorrupt
from rowpost.wire.message import (
    Message,
    OutgoingMessage,
    decode_headers,
    encode_headers,
    format_timestamp,
    new_id,
    parse_timestamp,
    timestamp_now,
)
from rowpost.wire.message_types import enclosed_type_names, message_type

ROW_ID = UUID("43e9c0c6-57a8-4513-b15a-b43b0169b465")


def message(headers: str) -> Message:
    return Message(ROW_ID, 1, False, headers, b"")


def test_no_headers_are_the_empty_string_both_ways():
    assert encode_headers({}) == ""
    assert decode_headers("") == {}


def test_headers_are_one_compact_object_with_characters_as_they_are():
    assert encode_headers({"a": "é漢🚀/", "n": None}) == '{"a":"é漢🚀/","n":null}'


@pytest.mark.parametrize(
    "text", ["{", "null", "[]", '"text"', "1", '{"a":1}', '{"a":{}}', '{"a":["b"]}', "nonsense", "[" * 100_000]
)
@pytest.mark.promise("corrupt-headers-move-unchanged")
def test_headers_that_are_not_an_object_of_strings_are_corrupt(text):
    with pytest.raises(MessageCorrupt):
        decode_headers(text)


def test_every_legal_escape_is_read():
    assert decode_headers('{"a":"\\/ \\u00e9 \\uD83D\\uDE80 \\" \\\\ \\n"}') == {"a": '/ é 🚀 " \\ \n'}


def test_the_wires_messages_are_read_and_written_back_the_same(wire_messages):
    for entry in wire_messages:
        assert decode_headers(encode_headers(entry["headers"])) == entry["headers"]
        assert json.loads(encode_headers(entry["headers"])) == entry["headers"]


def test_a_timestamp_has_28_characters_in_utc():
    moment = datetime(2026, 4, 29, 23, 56, 55, 7, timezone(timedelta(hours=2)))

    text = format_timestamp(moment)

    assert text == "2026-04-29 21:56:55:000007 Z"
    assert parse_timestamp(text) == moment
    assert parse_timestamp(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-04-29T21:56:55.590807Z",
        "2026-04-29 21:56:55:590807",
        "2026-04-29 21:56:55:59080 Z",
        "2026-04-29 21:56:55.590807 Z",
        "2026-13-29 21:56:55:590807 Z",
    ],
)
def test_any_other_time_is_refused(text):
    with pytest.raises(ValueError, match=r"\S"):
        parse_timestamp(text)


def test_the_present_time_is_written_as_any_other_time():
    before = datetime.now(UTC)
    now = parse_timestamp(timestamp_now())

    assert before <= now <= datetime.now(UTC)


def test_a_new_id_is_a_random_uuid_of_version_4():
    ids = {new_id() for _ in range(2000)}

    assert len(ids) == 2000
    assert {(UUID(each).version, UUID(each).variant, str(UUID(each)) == each) for each in ids} == {(4, RFC_4122, True)}


def test_the_message_id_is_the_header_or_else_the_rows_id():
    assert message('{"NServiceBus.MessageId":"m1"}').message_id == "m1"
    assert message('{"NServiceBus.MessageId":null}').message_id == str(ROW_ID)
    assert message("").message_id == str(ROW_ID)


def test_a_corrupt_message_still_shows_what_it_holds():
    corrupt = message("not JSON")

    with pytest.raises(MessageCorrupt):
        _ = corrupt.headers
    assert corrupt.raw_headers == "not JSON"


def test_headers_given_as_text_are_sent_verbatim():
    assert OutgoingMessage(b"", "not JSON").raw_headers == "not JSON"


@pytest.mark.parametrize(
    ("time", "milliseconds"),
    [
        (None, None),
        (timedelta(microseconds=1), 1),
        (timedelta(milliseconds=5), 5),
        (timedelta(0), 0),
        (timedelta(seconds=-1), -1000),
    ],
)
def test_times_are_whole_milliseconds_and_never_shorter(time, milliseconds):
    assert OutgoingMessage(b"", time_to_be_received=time).time_to_be_received_ms == milliseconds


def test_a_header_that_is_no_text_is_named():
    with pytest.raises(InvalidMessage, match="'count'"):
        encode_headers({"count": 5})


def test_the_examples_in_the_docstrings_are_true():
    assert doctest.testmod(rowpost.wire.message).failed == 0


def test_a_class_that_is_named_after_its_first_message_has_the_new_name():
    class Late:
        """A message."""

    before = enclosed_type_names(Late)
    message_type("Shop.Late")(Late)

    assert (before, enclosed_type_names(Late)) == ("", "Shop.Late")
