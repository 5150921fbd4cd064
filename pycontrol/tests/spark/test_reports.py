"""The jobs metrics, conversations and failures, on small histories whose results are computed by hand."""

import csv
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as F

from rowpost.spark.archive.schemas import CONVERSATIONS, EDGES, FAILURE_GROUPS, FLOW_HOURLY
from rowpost.spark.jobs.archive import archive
from rowpost.spark.jobs.metrics import metrics, skipped
from rowpost.spark.jobs.reports import conversations, edges, failures, one_conversation, write_csv
from rowpost.wire.conversation import ConversationStep, depth, mermaid, tree
from tests.support.spark.messages import NOON, audit_row, error_row, messages, raw

ODD = [raw(""), raw("{broken"), audit_row("far", sent=datetime(2999, 1, 1, tzinfo=UTC))]


LATER = NOON + timedelta(minutes=10)


def kept(spark, *rows):
    return archive(messages(spark, *rows), "audit")


def columns(schema):
    return [(column.name, column.dataType) for column in schema]


# ---------------------------------------------------------------------------------------------- metrics
@pytest.mark.spark_promise
def test_metrics_are_by_the_hour_of_the_handling_by_endpoint_and_type(spark):
    rows = [audit_row(f"m{n}", waited=n, took=0.1 * n, body=b"12345") for n in range(1, 101)]
    late = audit_row("late", sent=NOON + timedelta(minutes=59, seconds=59), waited=1.0, ProcessingEndpoint="Billing")

    df = metrics(kept(spark, *rows, late, error_row(at=NOON + timedelta(minutes=3)), *ODD))

    assert columns(df.schema) == columns(FLOW_HOURLY)
    sales, billing = sorted(df.collect(), key=lambda row: row.hour)
    assert (sales.hour, sales.endpoint, sales.message_type) == (NOON.replace(tzinfo=None), "Sales", "Shop.PlaceOrder")
    assert (sales.messages, sales.failed, sales.bytes, sales.clamped) == (100, 1, 502, 0)
    assert (sales.processing_ms_p50, sales.processing_ms_p95, sales.processing_ms_max) == pytest.approx(
        (5000, 9500, 10000)
    )
    assert (sales.critical_ms_p50, sales.critical_ms_max) == pytest.approx((55000, 110000))
    assert (billing.hour.hour, billing.endpoint, billing.messages) == (13, "Billing", 1)


def test_metrics_leave_out_what_has_no_time_and_say_how_many(spark):
    assert skipped(kept(spark, audit_row(), *ODD)) == 3


def test_clocks_that_disagree_are_counted_and_taken_as_no_time(spark):
    (row,) = metrics(
        kept(spark, audit_row(sent=LATER, waited=-5.0, took=1.0), audit_row(sent=LATER, took=-0.2))
    ).collect()

    assert (row.messages, row.clamped) == (2, 2)
    assert row.processing_ms_p50 == 0 and row.critical_ms_p50 == 0


def test_the_critical_time_of_a_delayed_message_begins_when_it_was_due(spark):
    (row,) = metrics(kept(spark, audit_row(waited=60, took=1, DeliverAt="2024-05-17 12:00:59:000000 Z"))).collect()

    assert row.critical_ms_p50 == 2000


# ---------------------------------------------------------------------------------------------- conversations
def order(**changes):
    """Web sends PlaceOrder to Sales, which publishes Placed to Billing and Shipping; Billing replies to Sales."""
    placed = {
        "RelatedTo": "place",
        "EnclosedMessageTypes": "Shop.Placed",
        "MessageIntent": "Publish",
        "OriginatingEndpoint": "Sales",
    }
    return [
        audit_row("place", OriginatingEndpoint="Web"),
        audit_row("placed", sent=NOON + timedelta(seconds=2), ProcessingEndpoint="Billing", **placed),
        audit_row("placed", sent=NOON + timedelta(seconds=2), ProcessingEndpoint="Shipping", **placed),
        audit_row("paid", sent=NOON + timedelta(seconds=4), RelatedTo="placed", EnclosedMessageTypes="Shop.Paid",
                  OriginatingEndpoint="Billing", MessageIntent="Reply", **changes),
    ]  # fmt: skip


def test_edges_say_who_sent_what_to_whom_and_what_caused_it(spark):
    df = edges(kept(spark, *order(), *ODD))

    assert columns(df.schema) == columns(EDGES)
    found = {
        (r.from_endpoint, r.to_endpoint, r.from_type, r.to_type, r.intent, r.messages)
        for r in df.where(F.col("day") == NOON.date()).collect()
    }
    assert found == {
        ("Web", "Sales", None, "Shop.PlaceOrder", "Send", 1),
        ("Sales", "Billing", "Shop.PlaceOrder", "Shop.Placed", "Publish", 1),
        ("Sales", "Shipping", "Shop.PlaceOrder", "Shop.Placed", "Publish", 1),
        ("Billing", "Sales", "Shop.Placed", "Shop.Paid", "Reply", 1),
    }


def test_a_conversation_is_summed_up(spark):
    df = conversations(kept(spark, *order(), error_row("other", ConversationId="c2"), raw("")))

    assert columns(df.schema) == columns(CONVERSATIONS)
    one, two = df.orderBy("conversation_id").collect()
    assert (one.messages, one.endpoints, one.depth, one.failed, one.root_type) == (4, 3, 3, 0, "Shop.PlaceOrder")
    assert (two.conversation_id, two.messages, two.depth, two.failed) == ("c2", 1, 1, 1)
    assert (one.ended - one.started).total_seconds() == 5.5


def test_the_tree_of_a_conversation_and_its_diagram(spark):
    steps = one_conversation(
        kept(spark, *order(ProcessingEnded=None, TimeOfFailure="2024-05-17 12:00:09:000000 Z")), "c1"
    )

    assert tree(steps) == [
        "PlaceOrder  Web → Sales  500.0 ms",
        "├─ Placed  Sales → Billing  500.0 ms  (Publish)",
        "│  └─ Paid  Billing → Sales  FAILED  (Reply)",
        "└─ Placed  Sales → Shipping  500.0 ms  (Publish)",
    ]
    assert mermaid(steps).splitlines()[-4:] == [
        "    p0->>p1: PlaceOrder",
        "    p1--)p2: Placed",
        "    p1--)p3: Placed",
        "    p2-xp1: Paid",
    ]


def test_a_circle_of_causes_and_odd_names_are_drawn_once():
    steps = [ConversationStep("a", "b", "x;y\nz", endpoint="E", sending_endpoint="E"), ConversationStep("b", "a", endpoint="E", sending_endpoint="E"),
             ConversationStep("c", "c", endpoint="E", sending_endpoint="E"), ConversationStep(None)]  # fmt: skip

    assert len(tree(steps)) == 4
    assert len(mermaid(steps).splitlines()) == 1 + 2 + 4
    assert depth([("a", "b"), ("b", "a"), ("c", "c"), (None, None)]) == 2
    assert depth([]) == 0
    assert depth([(str(n), str(n - 1)) for n in range(5000)]) == 5000


# ---------------------------------------------------------------------------------------------- failures
def test_failures_are_grouped_with_their_trend(spark, tmp_path):
    now = NOON + timedelta(hours=1)
    stacks = ["line 12, in place_order", "line 13, in place_order", "line 1, in bill"]
    rows = [
        error_row(at=NOON - timedelta(hours=hours), **{"ExceptionInfo.StackTrace": stacks[hours % 2]})
        for hours in range(40)
    ]
    other = error_row(
        at=NOON + timedelta(hours=9), **{"ExceptionInfo.StackTrace": stacks[2], "ExceptionInfo.Message": "=cmd()"}
    )

    df = failures(kept(spark, *rows, other, audit_row(), *ODD), now)

    assert columns(df.schema) == columns(FAILURE_GROUPS)
    first, second = df.collect()
    assert (first.exception_type, first.endpoint, first.message_type) == (
        "builtins.ValueError",
        "Sales",
        "Shop.PlaceOrder",
    )
    assert (first.messages, first.last_24h, first.previous_24h) == (40, 23, 17)
    assert first.trend == pytest.approx(23 / 17)
    assert (second.messages, second.last_24h, second.trend, second.last_seen) == (1, 1, None, now.replace(tzinfo=None))
    assert write_csv(tmp_path / "groups.csv", [first, second]) == 2
    with (tmp_path / "groups.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert read[1]["sample_message"] == "'=cmd()" and read[0]["last_seen"] == "2024-05-17T12:00:00.000000Z"
