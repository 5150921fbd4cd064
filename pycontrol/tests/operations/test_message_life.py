"""What is known of one message and of one conversation, put together from all tables, on every engine that can be reached."""

import json
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.operations.message_life import conversation, message_life
from rowpost.outbox.declaration import Outbox
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.policy import Recoverability
from rowpost.settings.databases import OutboxSettings
from rowpost.transport.queue import Queue
from rowpost.wire.conversation import tree
from tests.support.sagas import Close, Open, make_desk

pytestmark = pytest.mark.engine_schema("names are shown as the registry has them")

__all__ = ["make_desk"]

TYPES = "NServiceBus.EnclosedMessageTypes"


@pytest.fixture
def empty(sql):
    for name in ("Sales", "Sales.Delayed", "Billing", "audit", "error"):
        sql.empty(name)
    for name in ("failure", "supervisor", "supervised_queue"):
        sql.run(f"DELETE FROM rowpost.{name}")


@pytest.fixture
def shop(target, database, empty):
    """Handles a message of the queue Sales by a function, with audit, and returns the id of what it sent."""

    class Shop:
        settings = target.settings

        def send(self, **headers):
            with Endpoint("Web").open(database) as bus:
                bus.send(
                    b"{}",
                    to="Sales",
                    headers={TYPES: "Shop.PlaceOrder, Shop", **headers},
                    message_id=(sent := str(uuid4())),
                )
            return sent

        def handle(self, handler=lambda message, context: None, *, retries=0, **options):
            endpoint = Endpoint("Sales", audit_queue="audit", recoverability=Recoverability(retries, 0), **options)
            endpoint.handles("Shop.PlaceOrder", bytes)(handler)
            pipeline = Pipeline(database, "Sales", endpoint, reconnect=database.open_second)
            while Queue("Sales", database).peek():
                pipeline.process_one()

        def life(self, wanted, **options):
            return message_life(database, options.pop("settings", self.settings), wanted, **options)

    return Shop()


def facts(life):
    return [(fact.kind, fact.place) for fact in life.facts]


def fail(message, context):
    raise ValueError("no such order")


def test_a_leased_message_is_in_flight_with_its_owner_and_progress(shop, database):
    sent = shop.send()
    (row,) = Queue("Sales", database).browse(2)
    leased = database.call_atomically("lease_messages", "Sales", count=1, owner="host/7/1", seconds=60)[0]
    renewed = json.dumps([{"token": str(leased[5]), "percent": 40, "text": "page 4"}])
    database.call("renew_leases", "Sales", leases=renewed, seconds=60)

    by_message, by_row = shop.life(sent), shop.life(str(row.id))
    steps = conversation(database, by_message.conversation_id).steps
    database.call("end_lease", "Sales", token=leased[5])

    assert facts(by_message) == [("sent", "Web"), ("in flight", "Sales")]
    assert "leased by host/7/1 then" in by_message.facts[1].text
    assert by_message.facts[1].text.endswith("; 40 %, page 4")
    assert (by_row.message_id, by_row.facts) == (sent, by_message.facts)
    assert [(each.message_id, each.state) for each in steps] == [(sent, "in flight")]


def test_a_message_that_waits_is_found_by_its_id_and_by_its_rows(shop, database):
    sent = shop.send()
    (row,) = Queue("Sales", database).browse(2)

    by_message, by_row = shop.life(sent), shop.life(str(row.id))

    assert (facts(by_message), by_message.message_type) == ([("sent", "Web"), ("waiting", "Sales")], "Shop.PlaceOrder")
    assert (by_row.message_id, by_row.facts) == (sent, by_message.facts)
    assert by_message.conversation_id
    assert (by_message.unfinished, by_message.unseen) == ((), ())


def test_a_handled_message_is_known_from_its_audit_copy_with_what_its_handler_sent(shop):
    sent = shop.send()
    shop.handle(lambda message, context: context.send(b"{}", to="Billing", headers={TYPES: "Shop.Bill"}))

    life = shop.life(sent)

    assert (facts(life)[0], sorted(facts(life)[1:])) == (("sent", "Web"), [("caused", "Billing"), ("handled", "audit")])
    caused = next(fact for fact in life.facts if fact.kind == "caused")
    assert shop.life(caused.related).facts[0].text == f"Send by Sales, because of the message {sent}"


def test_a_failed_message_says_where_and_why(shop):
    sent = shop.send()
    shop.handle(fail)

    life = shop.life(sent)

    assert facts(life) == [("sent", "Web"), ("failed", "error")]
    assert "failed in Sales" in life.facts[1].text
    assert "builtins.ValueError: no such order" in life.facts[1].text


def test_failed_attempts_are_counted(shop, database):
    sent = shop.send()
    (row,) = Queue("Sales", database).browse(2)
    database.call("record_failure", queue_key="Sales", id=row.id)

    assert ("attempts", "Sales") in facts(shop.life(sent))


def test_a_delayed_message_says_when_it_is_due(shop, database):
    with Endpoint("Web").open(database) as bus:
        bus.send(
            b"{}",
            to="Sales",
            delay=timedelta(hours=2),
            headers={TYPES: "Shop.PlaceOrder"},
            message_id=(sent := str(uuid4())),
        )

    life = shop.life(sent)

    assert facts(life) == [("sent", "Web"), ("delayed", "Sales")]
    assert timedelta(hours=1) < life.facts[1].at - life.facts[0].at < timedelta(hours=3)


def test_a_message_in_a_workers_hand_is_shown_with_its_process(shop, database):
    sent = shop.send()
    (row,) = Queue("Sales", database).browse(2)
    workers = [
        {
            "queue": "Sales",
            "process_id": 4312,
            "state": "busy",
            "seconds": 1.0,
            "message": str(row.id),
            "message_seconds": 1.0,
        }
    ]
    database.call(
        "report_supervisor", supervisor_id=uuid4(), host_name="host-1", process_id=7, environment="shop", rowpost_version="1",
        queues='["Sales"]', workers=json.dumps(workers),
    )  # fmt: skip

    in_flight = next(fact for fact in shop.life(sent).facts if fact.kind == "in flight")

    assert "in process 4312 on host-1" in in_flight.text


def test_an_outbox_knows_what_was_handled(shop, business_url, target):
    sent = shop.send()
    shop.handle(transaction_mode="receive_only", outbox=Outbox("business", url=business_url))
    with_outbox = replace(target.settings, outboxes=(OutboxSettings("business", business_url),))
    unreachable = replace(
        target.settings, outboxes=(OutboxSettings("business", "postgresql://nobody@127.0.0.1:9/nothing"),)
    )

    life = shop.life(sent, settings=with_outbox)

    (known,) = (fact for fact in life.facts if fact.kind == "outbox")
    assert known.text.startswith("handled by Sales according to the outbox; its messages are ")
    assert shop.life(sent, settings=unreachable).unseen == ("the outbox business",)


def test_a_sagas_instance_is_named_with_its_state(make_desk, target, empty):
    desk = make_desk("pessimistic", audit_queue="audit")
    desk.handle(Open("A"))
    desk.handle(Close("A"))
    desk.handle(Open("B"))
    ids = [
        each.message_id
        for each in Queue("audit", desk.database).browse(10)
        if "Ledger.Noted" not in each.headers[TYPES]
    ]

    open_, close, other = (message_life(desk.database, target.settings, each) for each in ids)

    assert [fact.kind for fact in open_.facts].count("saga") == 1
    assert next(fact for fact in close.facts if fact.kind == "saga").text.endswith("which is complete")
    assert next(fact for fact in other.facts if fact.kind == "saga").text.endswith("B, which goes on")


def test_nothing_is_known_of_an_unknown_message(shop):
    life = shop.life(str(uuid4()))

    assert (life.facts, life.message_type) == ((), "")


def test_queues_with_older_messages_are_named(shop, database):
    sent = shop.send()
    for _ in range(3):
        shop.send()

    assert shop.life(sent, look_through=2).unfinished == ("Sales",)
    assert shop.life(sent, look_through=None).unfinished == ()


def test_a_conversation_is_a_tree_of_handled_waiting_delayed_and_failed_messages(shop, database):
    def place(message, context):
        context.send(b"{}", to="Billing", headers={TYPES: "Shop.Bill"})
        context.send(b"{}", to="Sales", delay=timedelta(hours=1), headers={TYPES: "Shop.Remind"})

    first = shop.send()
    shop.handle(place)
    name = shop.life(first).conversation_id
    with Endpoint("Web").open(database) as bus:
        bus.send(b"{}", to="Sales", headers={TYPES: "Shop.PlaceOrder", "NServiceBus.ConversationId": name})
    shop.handle(fail)

    found = conversation(database, name)

    lines = [line.partition(" ms")[0].rstrip("0123456789.,") for line in tree(found.steps)]
    assert lines == [
        "PlaceOrder  Web → Sales  ",
        "├─ Bill  Sales → Billing  waiting",
        "└─ Remind  Sales → Sales  delayed",
        "PlaceOrder  Web → Sales  FAILED",
    ]
    assert conversation(database, "another one").steps == ()
