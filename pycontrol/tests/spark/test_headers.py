"""Parsing headers into columns: invalid headers give null and never fail a job."""

import json
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import functions as F

from rowpost.spark.archive.arrow_headers import archived
from rowpost.spark.archive.headers import message_day, parse_headers
from rowpost.spark.archive.schemas import MESSAGE, PARSED
from rowpost.wire.message import decode_headers
from tests.support.spark.messages import NOON, audit_row, error_row, messages, raw

BROKEN = ["", "{", "null", "[1]", "{}", '"text"', "no JSON at all", '{"NServiceBus.TimeSent": {"a": 1}}', '{"a": null}', "\x01"]
UNUSUAL = [
    '{"NServiceBus.MessageId": 12, "NServiceBus.ConversationId": 1.5, "NServiceBus.RelatedTo": true, "NServiceBus.MessageIntent": null}',
    '{"NServiceBus.MessageId": {"a": [1, "é"]}, "NServiceBus.TimeSent": 5}',
    '{"NServiceBus.MessageId": "\\ud83d\\ude00 é", "NServiceBus.ConversationId": ""}',
    '{"NServiceBus.MessageId": "a", "x": "1", "NServiceBus.MessageId": "b"}',
    ' {"NServiceBus.MessageId" :\n"spaced"} ',
]
TEXTS = ["", " ", ";", "2026-13-45 12:00:00:000000 Z", "2024-02-29 23:59:59:999999 Z", "1969-12-31 23:59:59:999999 Z", "9999-01-01 00:00:00:000000 Z",
         "9999-12-31 00:00:00:000000 Z", "1999-12-31 12:00:00:000000 Z", "2024-05-18 12:00:00:000000 Z", "2024-05-18 12:00:00:000001 Z", "２０24-05-17 12:00:00:000000 Z",
         "A, B;C", "[A]", " A`1[[B, C], [D]], E;F", "Sales@[dbo]@[nsb]", '"my schema"."Billing"', '"a""b"', "@x"]  # fmt: skip


def test_the_columns_are_those_of_the_schema_whatever_the_headers_are(spark, wire_messages):
    rows = [raw(json.dumps(each["headers"]), each["body"].encode()) for each in wire_messages] + [raw(text) for text in BROKEN]

    parsed = parse_headers(messages(spark, *rows))

    assert [(c.name, c.dataType) for c in parsed.schema] == [(c.name, c.dataType) for c in [*MESSAGE, *PARSED]]
    assert len(parsed.collect()) == len(rows)


def test_an_audited_message_of_the_wire_is_read_whole(spark, wire_messages):
    audit = next(each for each in wire_messages if each["queue"] == "audit")

    row = parse_headers(messages(spark, raw(json.dumps(audit["headers"]), audit["body"].encode()))).first()

    assert (row.message_id, row.intent, row.message_type) == ("43e9c0c6-57a8-4513-b15a-b43b0169b465", "Send", "Shop.Messages.PlaceOrder")
    assert (row.sending_endpoint, row.endpoint, row.sending_machine, row.machine) == ("Sales", "Billing", "WEB01", "APP02")
    assert row.processing_ended.replace(tzinfo=UTC) == datetime(2026, 4, 29, 21, 56, 55, 647662, UTC)
    assert row.body_bytes == len(audit["body"]) and row.headers_valid


def test_a_failed_message_says_where_and_why(spark, wire_messages):
    error = next(each for each in wire_messages if each["queue"] == "error")

    row = parse_headers(messages(spark, raw(json.dumps(error["headers"])))).first()

    assert row.failed_queue == "Billing@[dbo]@[nsb]"
    assert row.time_of_failure.replace(tzinfo=UTC) == datetime(2026, 4, 29, 21, 58, 0, 406166, UTC)
    assert row.exception_type and row.endpoint == "Billing"


def test_headers_that_are_no_object_are_marked_and_kept_verbatim(spark):
    broken = ["{", "null", "[1]", '"text"', "no JSON at all", "\x01"]
    rows = parse_headers(messages(spark, *(raw(text, b"\xff\x00", number) for number, text in enumerate(broken, 1)))).collect()

    assert [row.headers for row in rows] == broken
    assert {(row.headers_valid, bytes(row.body), row.message_type, row.time_sent) for row in rows} == {(False, b"\xff\x00", None, None)}
    assert [row.message_id for row in rows] == [row.id for row in rows]


def test_no_headers_at_all_are_valid_and_empty(spark):
    row = parse_headers(messages(spark, raw("", None))).first()

    assert (row.headers_valid, row.message_id, row.conversation_id, row.body_bytes) == (True, row.id, None, 0)


def test_a_time_of_another_form_is_null_and_its_neighbours_are_read(spark):
    texts = ["yesterday", "2026-11-20T12:00:00Z", "2026-13-45 12:00:00:000000 Z", "", "2026-02-30 12:00:00:000000 Z", "0001-01-01 00:00:00:000000 Z"]
    rows = parse_headers(messages(spark, *(audit_row("m7", TimeSent=text) for text in texts))).collect()

    assert [row.time_sent for row in rows] == [None] * len(texts)
    assert all(row.message_id == "m7" and row.processing_ended is not None for row in rows)


def test_the_message_type_is_the_first_without_its_assembly(spark):
    names = {
        "Shop.Vip, Shop, Version=1.0.0.0;Shop.Placed, Shop": "Shop.Vip",
        " Shop.Placed ": "Shop.Placed",
        "Shop.Box`1[[Shop.A, Shop], [Shop.B, Shop]], Shop;Other": "Shop.Box`1[[Shop.A, Shop], [Shop.B, Shop]]",
        ";": None,
    }
    rows = parse_headers(messages(spark, *(audit_row(EnclosedMessageTypes=header) for header in names))).collect()

    assert [row.message_type for row in rows] == list(names.values())


def test_the_endpoint_of_a_failure_is_the_queue_where_nobody_wrote_it_down(spark):
    endpoints = {"Billing@[dbo]@[nsb]": "Billing", "Billing": "Billing", '"my schema"."Billing"': "Billing", "Shop.Billing@[x]": "Shop.Billing"}
    rows = parse_headers(messages(spark, *(audit_row(ProcessingEndpoint=None, FailedQ=address) for address in endpoints))).collect()

    assert [row.endpoint for row in rows] == list(endpoints.values())


def test_a_name_that_comes_twice_has_its_last_value_as_in_a_handler(spark):
    row = parse_headers(messages(spark, raw('{"NServiceBus.MessageId": "a", "x": "1", "NServiceBus.MessageId": "b"}'))).first()

    assert row.message_id == "b"
    assert decode_headers(row.headers)["NServiceBus.MessageId"] == "b"


def test_the_archiver_parses_in_python_what_spark_parses(spark, wire_messages):
    rows = [raw(json.dumps(each["headers"]), each["body"].encode()) for each in wire_messages]
    rows += [raw(text) for text in [*BROKEN, *UNUSUAL]] + [raw("", None)]
    rows += [audit_row(TimeSent=text, EnclosedMessageTypes=text) for text in TEXTS] + [
        audit_row(ProcessingEndpoint=None, FailedQ=text) for text in TEXTS
    ]
    rows += [error_row(TimeOfFailure=text, TimeSent=text) for text in TEXTS]
    arrived = messages(spark, *rows).withColumn("archived_at", F.lit(NOON)).withColumn("queue", F.lit("audit"))

    parsed = pa.Table.from_batches([archived(batch) for batch in arrived.toArrow().to_batches()])

    expected = parse_headers(arrived).withColumn("day", message_day()).toArrow()
    for name in expected.schema.names:
        assert parsed[name].combine_chunks().cast(expected.schema.field(name).type).to_pylist() == expected[name].to_pylist(), name


def test_a_batch_without_rows_has_all_columns(spark):
    arrived = messages(spark, raw("")).withColumn("archived_at", F.lit(NOON)).withColumn("queue", F.lit("audit"))

    empty = archived(arrived.toArrow().to_batches()[0].slice(0, 0))

    assert len(empty) == 0 and {*PARSED.fieldNames(), "day"} <= set(empty.schema.names)
