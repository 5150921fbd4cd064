"""rowpost delayed: list, move, send-now and cancel, as processes."""

from uuid import uuid4

import pytest

from rowpost.database.connection import connect
from rowpost.settings.environment import load_settings
from rowpost.wire.message import encode_headers
from tests.support.program import Program, rowpost

__all__ = ["rowpost"]


@pytest.fixture
def later(rowpost: Program, monkeypatch) -> Program:
    """The program, with one delayed message for Sales and nothing else."""
    for each in rowpost("delayed", "list", "Sales", "--json").lines:
        assert rowpost("delayed", "cancel", "Sales", each["key"], "--reason", "test", "--yes").code == 0
    monkeypatch.setenv("SHOP_URL", rowpost.variables["SHOP_URL"])
    headers = encode_headers(
        {"NServiceBus.MessageId": str(uuid4()), "NServiceBus.EnclosedMessageTypes": "Shop.PlaceOrder"}
    )
    with connect(load_settings(rowpost.environment)) as database:
        database.call("delay_message", "Sales", headers=headers, body=b'{"OrderId": 42}', delay_ms=3_600_000)
    return rowpost


def only(program: Program, *options: str) -> dict:
    (found,) = program("delayed", "list", "Sales", "--json", *options).lines
    return found


def test_delayed_messages_are_listed(later: Program):
    found, shown, none = (
        only(later),
        later("delayed", "list", "Sales"),
        later("delayed", "list", "Sales", "--from", "2h"),
    )

    assert (found["queue"], found["message_type"], found["body"]) == ("Sales", "Shop.PlaceOrder", '{"OrderId": 42}')
    assert [found["key"] in shown.out, found["message_id"] in shown.out, "Shop.PlaceOrder" in shown.out] == [True] * 3
    assert (none.code, none.out.count("Shop"), none.err) == (0, 0, "Sales has no delayed messages from then on.\n")


@pytest.mark.parametrize("time", ["5h", "2090-01-01T00:00Z"])
def test_a_delayed_message_is_moved_to_another_time(later: Program, time):
    before = only(later)

    moved = later("delayed", "move", "Sales", before["key"], time)

    assert (moved.code, moved.err.startswith(f"The delayed message {before['key']} of Sales is due ")) == (0, True)
    assert only(later, "--from", "4h")["message_id"] == before["message_id"]


def test_a_delayed_message_is_due_now(later: Program):
    key = only(later)["key"]

    sent = later("delayed", "send-now", "Sales", key)

    assert (sent.code, sent.err) == (0, f"The delayed message {key} of Sales is due now.\n")
    assert later("delayed", "list", "Sales", "--from", "0s").out.count("Shop") == 0


def test_a_delayed_message_is_cancelled_with_a_reason(later: Program):
    before = only(later)

    asked = later("delayed", "cancel", "Sales", before["key"], "--reason", "the order was cancelled")
    done = later("delayed", "cancel", "Sales", before["key"], "--reason", "the order was cancelled", "--yes")
    gone = later("delayed", "cancel", "Sales", before["key"], "--reason", "again", "--yes")

    assert (asked.code != 0, "--yes" in asked.err) == (True, True)
    assert (done.code, before["message_id"] in done.err, "the order was cancelled" in done.err) == (0, True, True)
    assert (gone.code != 0, "has no delayed message" in gone.err, "Traceback" in gone.err) == (True, True, False)


@pytest.mark.parametrize("time", ["soon", "2090-01-01T00:00"])
def test_a_time_that_cannot_be_read_is_refused(later: Program, time):
    refused = later("delayed", "move", "Sales", only(later)["key"], time)

    assert refused.code == 2
    assert time in refused.err
