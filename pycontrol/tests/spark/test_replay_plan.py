"""The messages that replay selects, before anything is sent."""

import json
from collections import Counter
from datetime import timedelta

import pytest

from rowpost.errors import InvalidMessage
from rowpost.spark.explain import explained
from rowpost.spark.jobs.archive import archive
from rowpost.spark.jobs.replay import REPLAY_HEADER, Replay, choose, number
from tests.support.spark.messages import NOON, audit_row, error_row, messages, raw


def kept(spark, *rows):
    return archive(messages(spark, *rows), "error")


def test_a_replayed_message_keeps_id_and_body_and_loses_what_described_its_failure(spark):
    row = error_row(
        "m1", body=b"\x00\xff", Retries="3", **{"Retries.Timestamp": "x", "x.Customer": "Ada", "x.null": None}
    )

    (found,) = choose(kept(spark, row), Replay("again", "Sales")).collect()

    assert (found.id, bytes(found.body), found.destination) == (row[0], b"\x00\xff", "Sales")
    headers = json.loads(found.headers)
    assert (
        headers[REPLAY_HEADER] == "again"
        and headers["x.Customer"] == "Ada"
        and headers["NServiceBus.MessageId"] == "m1"
    )
    gone = ("FailedQ", "TimeOfFailure", "ExceptionInfo", "Retries", "Processing")
    assert [name for name in headers if any(word in name for word in gone)] == []


def test_headers_keep_their_nulls_and_no_headers_stay_none(spark):
    rows = [raw('{"a": null, "b": ""}', number=1), raw("", number=2)]

    found = {row.row_version: row.headers for row in choose(kept(spark, *rows), Replay("k", "Sales")).collect()}

    assert json.loads(found[1]) == {"a": None, "b": "", REPLAY_HEADER: "k"}
    assert found[2] == ""


def test_a_message_whose_headers_no_endpoint_can_read_is_refused_before_anything_is_sent(spark):
    archived = kept(spark, raw("{}", number=1), raw("{broken", number=2))

    with pytest.raises(InvalidMessage, match=r"00000002 are not a JSON object.*headers_valid"), explained():
        choose(archived, Replay("k", "Sales")).collect()
    assert len(choose(archived, Replay("k", "Sales", where="headers_valid")).collect()) == 1


def test_a_name_that_comes_twice_keeps_its_last_value(spark):
    row = choose(kept(spark, raw('{"x": "1", "NServiceBus.MessageId": "m", "x": "2"}')), Replay("k", "Sales")).first()

    assert json.loads(row.headers) == {"x": "2", "NServiceBus.MessageId": "m", REPLAY_HEADER: "k"}


def test_a_message_that_failed_twice_is_replayed_once(spark):
    first = error_row("m1")
    again = (*first[:7], first[7] + 1000)

    assert choose(kept(spark, first, again), Replay("k", "Sales")).count() == 1


def test_the_filter_and_the_limit_choose_the_oldest(spark):
    rows = [error_row(f"m{n}", at=NOON + timedelta(days=n % 3)) for n in range(9)]

    found = choose(kept(spark, *rows, audit_row("other", EnclosedMessageTypes="Shop.Other")),
                   Replay("k", "Sales", where="message_type like '%PlaceOrder' and exception_type is not null", limit=4)).collect()  # fmt: skip

    assert Counter(str(row.day) for row in found) == {"2024-05-17": 3, "2024-05-18": 1}


@pytest.mark.parametrize("where", ["no_such_column = 1", "message_type ==== 1", "1; drop table x", "day + 'x' ="])
def test_a_filter_that_cannot_be_read_is_explained_with_the_columns(spark, where):
    with pytest.raises(InvalidMessage, match="message_type"):
        choose(kept(spark, error_row()), Replay("k", "Sales", where=where)).collect()


def test_to_their_own_queues_go_only_those_that_failed_in_one(spark):
    found = choose(kept(spark, error_row(FailedQ="Billing@[public]"), audit_row()), Replay("k")).collect()

    assert [row.destination for row in found] == ["Billing@[public]"]


def test_steps_ramp_up_and_then_hold_the_rate(spark):
    replay = Replay("k", "Sales", rate=2.0, ramp=(1, 5))

    steps = number(choose(kept(spark, *(error_row(f"m{n}") for n in range(30))), replay), replay).collect()

    assert Counter(row.step for row in steps) == {0: 1, 1: 5, 2: 10, 3: 10, 4: 4}
    oldest = [row.row_version for row in sorted(steps, key=lambda row: (row.step, row.row_version))]
    assert oldest == sorted(oldest)


def test_a_ramp_without_a_rate_ends_with_all_the_rest(spark):
    replay = Replay("k", "Sales", ramp=(2,))

    steps = number(choose(kept(spark, *(error_row(f"m{n}") for n in range(7))), replay), replay).collect()

    assert Counter(row.step for row in steps) == {0: 2, 1: 5}


@pytest.mark.parametrize("key", ["", "../../etc", "a b", "x" * 81, "-a"])
def test_a_key_is_a_plain_name(key):
    with pytest.raises(InvalidMessage):
        Replay(key)
