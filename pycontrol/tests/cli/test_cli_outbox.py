"""rowpost outbox status: what is unsent, whose it is, and why."""

import pytest

from rowpost.database.connection import connect
from rowpost.outbox.declaration import encode_outgoing
from rowpost.settings.environment import load_settings
from rowpost.wire.outgoing import AddressedMessage
from tests.support.program import QUEUES, Program, environment_file, program

__all__ = ["program"]  # a fixture


@pytest.fixture
def shop(program: Program, tmp_path, monkeypatch) -> Program:
    """The program, whose queues' database has an outbox too, in which three messages have been unsent for an hour."""
    monkeypatch.setenv("SHOP_URL", program.variables["SHOP_URL"])
    path = environment_file(tmp_path, rest=f'{QUEUES}outbox:\n  business: {{url: "${{SHOP_URL}}"}}\n')
    with connect(load_settings(path)) as database:
        for endpoint, destination in (("Sales", "Billing"), ("Sales", "Nowhere"), ("Elsewhere", "Billing")):
            key = {"endpoint": endpoint, "message_id": f"for {destination}"}
            database.call("record_handled", **key)
            database.call(
                "store_operations", **key, operations=encode_outgoing([AddressedMessage({}, b"{}", destination)])
            )
        database.driver_connection.execute("UPDATE rowpost.outbox SET handled_at = handled_at - interval '1 hour'")
        database.commit()
        yield program.with_environment(path)
        database.driver_connection.execute("DELETE FROM rowpost.outbox_operations")
        database.driver_connection.execute("DELETE FROM rowpost.outbox")
        database.commit()


def test_the_status_names_each_unsent_message_with_its_reason_and_counts_those_of_others(shop: Program):
    shown, found = shop("outbox", "status"), shop("outbox", "status", "--json")

    ((outbox),) = found.json
    reasons = {each["message_id"]: each["reason"] for each in outbox["unsent"]}
    assert (shown.code, found.code) == (1, 1)
    assert (outbox["undispatched"], outbox["foreign_undispatched"], reasons["for Billing"]) == (2, 1, None)
    assert "Nowhere" in reasons["for Nowhere"]
    assert "message for Nowhere of Sales, which was handled, cannot be sent: " in shown.err


def test_cleaning_sends_what_can_be_sent_and_leaves_that_of_others(shop: Program):
    cleaned = shop("outbox", "clean", "--json")

    left = shop("outbox", "status", "--json").json[0]
    assert (cleaned.code, cleaned.json["sent"], len(cleaned.json["failed"])) == (1, 1, 1)
    assert (left["undispatched"], left["foreign_undispatched"]) == (1, 1)
