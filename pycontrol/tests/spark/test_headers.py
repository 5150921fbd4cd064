"""Parsing headers into columns: invalid headers give null and never fail a job, and times are the same in every time zone."""

import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from rowpost.archive.arrow_headers import archived
from rowpost.spark.archive.headers import parse_headers, read_headers
from rowpost.spark.archive.schemas import MESSAGE, PARSED, arrow_schema
from rowpost.spark.jobs.archive import archive
from rowpost.wire.message import decode_headers
from tests.support.spark.messages import NOON, audit_row, error_row, messages, raw

BROKEN = [
    "{",
    "null",
    "[1]",
    '"text"',
    "no JSON at all",
    "\x01",
    "{'NServiceBus.MessageId': 'a'}",
    '{"a": NaN}',
    '{"a": "\\ud800"}',
]
TWICE = '{"NServiceBus.MessageId": "a", "x": "1", "NServiceBus.MessageId": "b"}'
#: Headers whose values are not all texts, and what becomes of MessageId, ConversationId and TimeSent.
UNUSUAL = {
    '{"NServiceBus.MessageId": 12, "NServiceBus.ConversationId": 1.5}': ("12", "1.5", None),
    '{"NServiceBus.MessageId": true, "NServiceBus.ConversationId": null}': ("true", None, None),
    '{"NServiceBus.MessageId": {"a": [1, "é"]}, "NServiceBus.TimeSent": 5}': ('{"a":[1,"é"]}', None, None),
    '{"NServiceBus.MessageId": "\\ud83d\\ude00 é", "NServiceBus.ConversationId": ""}': ("😀 é", None, None),
    ' {"NServiceBus.MessageId" :\n"spaced"} ': ("spaced", None, None),
    TWICE: ("b", None, None),
}
#: Texts of times and what is read: an hour that New York skips, both that it has twice, the ends of what is read, and texts that are no times.
TIMES = {
    "2026-03-08 02:30:00:000001 Z": datetime(2026, 3, 8, 2, 30, 0, 1, UTC),
    "2026-11-01 05:30:00:000000 Z": datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
    "2026-11-01 06:30:00:000000 Z": datetime(2026, 11, 1, 6, 30, tzinfo=UTC),
    "2024-02-29 23:59:59:999999 Z": datetime(2024, 2, 29, 23, 59, 59, 999999, UTC),
    "1969-12-31 23:59:59:999999 Z": None,
    "1970-01-01 00:00:00:000000 Z": datetime(1970, 1, 1, tzinfo=UTC),
    "9998-12-31 23:59:59:000000 Z": datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC),
    "9999-12-31 00:00:00:000000 Z": None,
    "0001-01-01 00:00:00:000000 Z": None,
    "2026-02-30 12:00:00:000000 Z": None,
    "2026-13-45 12:00:00:000000 Z": None,
    "2026-11-20T12:00:00Z": None,
    "２０24-05-17 12:00:00:000000 Z": None,
    "yesterday": None,
    " ": None,
    "": None,
}


def read(*rows: tuple) -> list[dict]:
    """Parse messages as the archiver's tasks do."""
    columns = zip(*rows, strict=True) if rows else [()] * len(MESSAGE)
    schema = arrow_schema(MESSAGE)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], names=schema.names
    )
    batch = batch.append_column("archived_at", pa.array([NOON] * len(rows), pa.timestamp("us", "UTC")))
    return archived(batch.append_column("queue", pa.array(["audit"] * len(rows), pa.string()))).to_pylist()


def on_the_wire(wire_messages, queue: str) -> dict:
    found = next(each for each in wire_messages if each["queue"] == queue)
    (row,) = read(raw(json.dumps(found["headers"]), found["body"].encode()))
    return row | {"body_of_test": found["body"]}


def test_an_audited_message_of_the_wire_is_read_whole(wire_messages):
    row = on_the_wire(wire_messages, "audit")

    assert (row["message_id"], row["intent"], row["message_type"]) == (
        "43e9c0c6-57a8-4513-b15a-b43b0169b465",
        "Send",
        "Shop.Messages.PlaceOrder",
    )
    assert [row[name] for name in ("sending_endpoint", "endpoint", "sending_machine", "machine")] == [
        "Sales",
        "Billing",
        "WEB01",
        "APP02",
    ]
    assert row["processing_ended"] == datetime(2026, 4, 29, 21, 56, 55, 647662, UTC)
    assert row["body_bytes"] == len(row["body_of_test"]) and row["headers_valid"]


def test_a_failed_message_says_where_and_why(wire_messages):
    row = on_the_wire(wire_messages, "error")

    assert row["failed_queue"] == "Billing@[dbo]@[nsb]"
    assert row["time_of_failure"] == datetime(2026, 4, 29, 21, 58, 0, 406166, UTC)
    assert row["exception_type"] and row["endpoint"] == "Billing"


@pytest.mark.parametrize("text", BROKEN)
def test_headers_that_are_no_object_are_marked_and_kept_verbatim(text):
    (row,) = read(raw(text, b"\xff\x00"))

    assert (row["headers"], row["headers_valid"], row["body"], row["message_type"], row["time_sent"]) == (
        text,
        False,
        b"\xff\x00",
        None,
        None,
    )
    assert row["message_id"] == row["id"]


def test_no_headers_at_all_are_valid_and_empty():
    (row,) = read(raw("", None))

    assert (row["headers_valid"], row["message_id"], row["conversation_id"], row["body_bytes"], row["day"]) == (
        True,
        row["id"],
        None,
        0,
        NOON.date(),
    )


@pytest.mark.parametrize(("text", "found"), UNUSUAL.items())
def test_a_value_that_is_no_text_is_the_json_that_it_is(text, found):
    (row,) = read(raw(text))

    assert (row["message_id"], row["conversation_id"], row["time_sent"]) == found


def test_a_name_that_comes_twice_has_its_last_value_as_in_a_handler():
    assert decode_headers(TWICE)["NServiceBus.MessageId"] == read(raw(TWICE))[0]["message_id"] == "b"


@pytest.mark.parametrize("beside", [(), ("2026-02-30 12:00:00:000000 Z",)], ids=["all are times", "one is not"])
def test_a_time_of_another_form_is_null_and_its_neighbours_are_read(beside):
    texts = [*(text for text, time in TIMES.items() if time or beside), *beside]

    rows = read(*(audit_row("m7", TimeSent=text) for text in texts))

    assert [row["time_sent"] for row in rows] == [TIMES[text] for text in texts]
    assert all(row["message_id"] == "m7" and row["processing_ended"] is not None for row in rows)


def test_the_day_is_that_of_the_first_time_that_can_be_right():
    early, late = "1999-12-31 12:00:00:000000 Z", "2024-05-18 12:00:00:000001 Z"
    texts = [early, late, "2024-05-18 12:00:00:000000 Z", "2024-05-01 00:30:00:000000 Z", "x"]

    rows = read(*(error_row(TimeOfFailure=text, TimeSent=text) for text in texts))

    assert [row["day"] for row in rows] == [NOON.date(), NOON.date(), date(2024, 5, 18), date(2024, 5, 1), NOON.date()]


def test_the_message_type_is_the_first_without_its_assembly():
    names = {
        "Shop.Vip, Shop, Version=1.0.0.0;Shop.Placed, Shop": "Shop.Vip",
        " Shop.Placed ": "Shop.Placed",
        "Shop.Box`1[[Shop.A, Shop], [Shop.B, Shop]], Shop;Other": "Shop.Box`1[[Shop.A, Shop], [Shop.B, Shop]]",
        ";": None,
    }

    rows = read(*(audit_row(EnclosedMessageTypes=header) for header in names))

    assert [row["message_type"] for row in rows] == list(names.values())


def test_the_endpoint_of_a_failure_is_the_queue_where_nobody_wrote_it_down():
    endpoints = {
        "Billing@[dbo]@[nsb]": "Billing",
        "Billing": "Billing",
        '"my schema"."Billing"': "Billing",
        "Shop.Billing@[x]": "Shop.Billing",
        "@x": None,
    }

    rows = read(*(audit_row(ProcessingEndpoint=None, FailedQ=address) for address in endpoints))

    assert [row["endpoint"] for row in rows] == list(endpoints.values())


def test_a_batch_without_rows_has_all_columns():
    assert read() == []


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_a_dataframe_has_what_the_archiver_writes_in_every_time_zone(spark, wire_messages, zone):
    rows = [raw(json.dumps(each["headers"]), each["body"].encode()) for each in wire_messages] + [
        raw(text) for text in ["", *BROKEN, *UNUSUAL]
    ]
    rows += [audit_row(TimeSent=text) for text in TIMES] + [
        error_row(TimeOfFailure=text, TimeSent=text) for text in TIMES
    ]
    names = [column.name for column in PARSED]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        parsed = parse_headers(messages(spark, *rows))
        found = parsed.select(names).toArrow().to_pylist()
        days = [row.day for row in archive(messages(spark, *rows), "audit").select("day").collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    assert [(c.name, c.dataType) for c in parsed.schema] == [(c.name, c.dataType) for c in [*MESSAGE, *PARSED]]
    assert found == [{name: row[name] for name in names} for row in read(*rows)]
    assert days[len(rows) - 2 * len(TIMES)] == NOON.date()


def test_all_headers_are_a_map_and_those_that_are_no_object_are_null(spark):
    texts = ['{"a": "1", "b": null, "c": 2, "a": "3"}', "{}", "", *BROKEN]

    rows = messages(spark, *map(raw, texts)).select(read_headers(F.col("headers")).alias("found")).collect()

    assert [row.found for row in rows] == [{"a": "3", "b": None, "c": "2"}, {}] + [None] * (len(texts) - 2)
