"""A bridge between two databases: what crosses it, how it looks there, and that it crosses once."""

import os
import re
import signal
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from rowpost.database.connection import connect
from rowpost.errors import QueueNotFound, RowpostError
from rowpost.settings.bridge import BridgeEndpoint
from rowpost.transport.directory import Directory
from rowpost.transport.dispatch import dispatch
from rowpost.transport.error_queue import ErrorQueue
from rowpost.transport.queue import Queue
from rowpost.wire.outgoing import AddressedMessage
from rowpost.workers import events
from rowpost.workers.bridge.bridge import Bridge
from rowpost.workers.bridge.installation import check, install, subscribe
from tests.support.bridges import EVENT, STEPS, STOCK, Sides, deploy_sides, spawn_mover, wait_for
from tests.support.logins import logins
from tests.support.probe import probe_for

LABELS = ["embedded", *(["sqlserver"] if os.environ.get("ROWPOST_TEST_SQLSERVER") else [])]
PAIRS = [(one, other) for one in LABELS for other in LABELS if (one, other) != ("sqlserver", "sqlserver")]


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def bridge(request, lasting_database):
    return deploy_sides(*(lasting_database(label) for label in request.param), batch_size=10, poll_interval=0.02)


@pytest.fixture
def sides(bridge):
    """Both databases, with the queues Sales, Stock and error on each side, all empty."""
    with connect(bridge.sides[0].settings) as shop, connect(bridge.sides[1].settings) as warehouse:
        for database in (shop, warehouse):
            for name in ("Sales", "Stock", "error"):
                Queue(name, database).purge()
            while database.call("clean_dispatches", retention_seconds=0, count=4000)[0].removed:
                pass
        yield Sides(bridge, shop, warehouse)


def arrived(database, queue):
    return Queue(queue, database).browse(100)


def remembered(database):
    """How many dispatches a database has records of."""
    return database.call("clean_dispatches", retention_seconds=0, count=4000)[0].removed


def test_a_command_crosses_with_body_and_headers(sides):
    sides.order(
        7, headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Shop.Note": "späť"}
    )

    (moved,) = sides.move()

    (message,) = arrived(sides.warehouse, "Stock")
    assert (moved.sent, message.body) == (1, b"7")
    assert message.headers == {
        "NServiceBus.MessageId": "order 7", "NServiceBus.EnclosedMessageTypes": "Shop.Messages.Reserve",
        "NServiceBus.ReplyToAddress": sides.address(sides.warehouse, "Sales"), "NServiceBus.Bridge.Transfer": "shop->warehouse",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Shop.Note": "späť",
    }  # fmt: skip
    assert arrived(sides.shop, "Stock") == []


@pytest.mark.promise("bridge-replies")
def test_a_reply_comes_back_over_the_bridge(sides):
    sides.order(8)
    sides.move()
    (request,) = Queue("Stock", sides.warehouse).receive()

    reply = AddressedMessage(
        {
            "NServiceBus.CorrelationId": request.message_id,
            "NServiceBus.ReplyToAddress": sides.address(sides.warehouse, "Stock"),
        },
        b"8",
        request.reply_to,
    )
    dispatch(sides.warehouse, [[reply]], Directory(), own_queue=None)
    sides.move(back=True)

    (message,) = arrived(sides.shop, "Sales")
    assert message.headers["NServiceBus.CorrelationId"] == "order 8"
    assert message.reply_to == sides.address(sides.shop, "Stock")
    assert message.headers["NServiceBus.Bridge.Transfer"] == "warehouse->shop"


def test_an_event_crosses_once_for_each_subscriber(sides):
    dispatch(
        sides.shop,
        [[AddressedMessage({"NServiceBus.MessageId": "e"}, b"1", topics=(EVENT,))]],
        Directory(),
        own_queue=None,
    )

    sides.move()

    assert len(arrived(sides.warehouse, "Stock")) == 1


def test_a_message_that_is_sent_twice_crosses_twice(sides):
    sides.order(3, times=2)

    sides.move()

    assert sides.numbers(sides.warehouse, "Stock") == {3: 2}


def test_many_messages_cross_in_batches_in_their_order(sides):
    for number in range(57):
        sides.order(number)

    moved = sides.move()

    assert [each.sent for each in moved] == [10, 10, 10, 10, 10, 7]
    assert [int(each.body) for each in arrived(sides.warehouse, "Stock")] == list(range(57))
    assert remembered(sides.warehouse) == 0


def test_what_remains_of_the_time_to_be_received_is_kept(sides):
    sides.order(1, time_to_be_received=timedelta(hours=1))
    sides.order(2)
    (before, _) = arrived(sides.shop, "Stock")

    sides.move()

    expiring, lasting = arrived(sides.warehouse, "Stock")
    assert abs(expiring.expires - before.expires) < timedelta(minutes=1)
    assert lasting.expires is None


def test_an_expired_message_ends_here_with_the_reason(sides):
    sides.order(1, time_to_be_received=timedelta(milliseconds=1))
    wait_for(lambda: arrived(sides.shop, "Stock")[0].expired)

    (moved,) = sides.move()

    assert [reason for _, reason in moved.skipped] == ["its time to be received was over before it crossed"]
    assert arrived(sides.warehouse, "Stock") == []


@pytest.mark.promise("bridge-does-not-block")
def test_a_message_for_an_unknown_reply_address_does_not_stop_the_others(sides):
    for number, reply in ((1, None), (2, "Nobody"), (3, None)):
        sides.order(number, headers={"NServiceBus.ReplyToAddress": reply})

    (moved,) = sides.move()

    assert (moved.sent, len(moved.failed)) == (2, 1)
    assert sides.numbers(sides.warehouse, "Stock") == {1: 1, 3: 1}
    (failed,) = ErrorQueue(sides.shop).list()
    assert "'Nobody' belongs to no endpoint of the bridge" in failed.exception_message
    assert failed.failed_in == "Stock"


def test_a_retried_message_tries_to_cross_again(sides):
    sides.order(2, headers={"NServiceBus.ReplyToAddress": "Nobody"})
    sides.move()
    (failed,) = ErrorQueue(sides.shop).list()
    repaired = {**failed.headers, "NServiceBus.ReplyToAddress": sides.address(sides.shop, "Sales")}

    ErrorQueue(sides.shop).discard(failed.row_version)
    Queue("error", sides.shop).send(b"2", repaired)
    (again,) = ErrorQueue(sides.shop).list()
    assert ErrorQueue(sides.shop).retry(again.row_version) == "Stock"
    sides.move()

    (message,) = arrived(sides.warehouse, "Stock")
    assert not [name for name in message.headers if "Failed" in name or "Exception" in name]


def test_a_failed_message_is_retried_from_the_error_queue_of_the_other_side(sides):
    here, there = sides.bridge.sides
    central = BridgeEndpoint("central", "error", "central")
    there = replace(there, endpoints=(STOCK, central), error_queue="bridge.error")
    both = Sides(replace(sides.bridge, sides=(here, there)), sides.shop, sides.warehouse)
    install(both.bridge, here, there, sides.shop)
    failed = {
        "NServiceBus.MessageId": "1",
        "NServiceBus.FailedQ": sides.address(sides.shop, "Sales"),
        "NServiceBus.ReplyToAddress": "",
    }
    Queue("central", sides.shop).send(b"1", failed)

    with both.mover() as mover:
        assert mover.move(central).sent == 1
    (message,) = ErrorQueue(sides.warehouse).list()
    assert ErrorQueue(sides.warehouse).retry(message.row_version) == "Sales"
    both.move(back=True)

    (message,) = arrived(sides.shop, "Sales")
    assert message.headers == failed


def test_headers_that_cannot_be_read_end_in_the_error_queue_unchanged(sides):
    Queue("Stock", sides.shop).send(b"1", "no JSON")
    sides.order(2)

    (moved,) = sides.move()

    assert (moved.sent, len(moved.failed)) == (1, 1)
    assert [(each.raw_headers, each.body) for each in arrived(sides.shop, "error")] == [("no JSON", b"1")]


def test_headers_that_the_target_cannot_store_end_in_the_error_queue(sides):
    Queue("Stock", sides.shop).send(b"1", '{"Shop.Note": "a\\u0000b"}')

    (moved,) = sides.move()

    assert "NUL" in str(moved.failed[0][1])
    assert len(arrived(sides.shop, "error")) == 1


@pytest.mark.parametrize(
    "name", ["NServiceBus.ProcessingMachine", "NServiceBus.FailedQ", "NServiceBus.MessagingBridge.FailedQ"]
)
def test_whatever_headers_hold_a_message_that_cannot_cross_leaves_its_queue(sides, name):
    Queue("Stock", sides.shop).send(b"1", f'{{"{name}": "a\\u0000b", "NServiceBus.ReplyToAddress": "Nobody"}}')

    (moved,) = sides.move()

    assert len(moved.failed) == 1
    assert (len(arrived(sides.shop, "error")), arrived(sides.shop, "Stock")) == (1, [])


def test_messages_for_a_queue_that_is_gone_end_in_the_error_queue(sides):
    sides.order(1)
    gone = replace(STOCK, queue="Gone")

    with sides.mover() as mover:
        moved = mover.move(gone)

    assert isinstance(moved.failed[0][1], QueueNotFound)
    (failed,) = ErrorQueue(sides.shop).list()
    assert failed.failed_in == "Stock"
    assert "Gone" in failed.exception_message


def test_a_request_for_a_subscription_ends_with_the_reason(sides):
    sides.order(1, headers={"NServiceBus.MessageIntent": "Subscribe"})

    (moved,) = sides.move()

    assert "subscription" in moved.skipped[0][1]
    assert arrived(sides.warehouse, "Stock") == []


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.promise("bridge-exactly-once")
def test_a_process_that_dies_loses_and_doubles_nothing(sides, step, batch):
    sides.order(99, headers={"NServiceBus.ReplyToAddress": "Nobody"})  # so that the first batch is moved one by one
    for number in range(35):
        sides.order(number, times=1 + number % 2)
    shop_url, warehouse_url = (side.settings.url for side in sides.bridge.sides)

    died = spawn_mover(shop_url, warehouse_url, step, time=batch)
    assert died.wait(120) == -signal.SIGKILL
    moved = sides.move()

    assert sides.numbers(sides.warehouse, "Stock") == {number: 1 + number % 2 for number in range(35)}
    assert sides.numbers(sides.shop, "error") == {99: 1}
    assert sum(each.repeated for each in moved) == ({1: 9, 2: 10}[batch] if step in ("sent", "copied") else 0)
    assert arrived(sides.shop, "Stock") == []


@pytest.mark.promise("bridge-exactly-once")
def test_a_process_that_dies_again_and_again_loses_and_doubles_nothing(sides):
    for number in range(60):
        sides.order(number)
    shop_url, warehouse_url = (side.settings.url for side in sides.bridge.sides)

    for time in (1, 1, 2, 1):
        for step in ("sent", "removed"):
            spawn_mover(shop_url, warehouse_url, step, time=time).wait(120)
    sides.move()

    assert sides.numbers(sides.warehouse, "Stock") == dict.fromkeys(range(60), 1)


def test_a_source_that_is_lost_before_its_commit_sends_nothing_twice(sides):
    sides.order(1)
    lost = []

    def lose(name):
        if name == "sent" and not lost:
            lost.append(name)
            mover._source.close()

    with sides.mover(step=lose) as mover, pytest.raises(RowpostError):
        mover.move(STOCK)
    (moved,) = sides.move()

    assert (lost, moved.repeated) == (["sent"], 1)
    assert sides.numbers(sides.warehouse, "Stock") == {1: 1}


def test_one_mover_is_elected_in_each_direction(sides):
    with sides.mover() as first, sides.mover(back=True) as back:
        here, there = sides.bridge.sides
        with connect(here.settings) as source, connect(there.settings) as target:
            second = type(first)(source, target, sides.bridge, here, there)
            assert (first.elect(), back.elect(), second.elect()) == (True, True, False)


def run_until(bridges, condition):
    threads = [threading.Thread(target=each.run) for each in bridges]
    for thread in threads:
        thread.start()
    try:
        wait_for(condition)
    finally:
        for each in bridges:
            each.stop()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.promise("bridge-exactly-once")
def test_two_bridges_at_once_move_each_message_once_in_both_directions(sides):
    seen = []
    bridges = [Bridge(sides.bridge, seen.append) for _ in range(2)]
    for number in range(50):
        sides.order(number)
        Queue("Sales", sides.warehouse).send(b"%d" % number)

    run_until(bridges, lambda: len(arrived(sides.warehouse, "Stock")) == len(arrived(sides.shop, "Sales")) == 50)

    assert sides.numbers(sides.warehouse, "Stock") == sides.numbers(sides.shop, "Sales") == dict.fromkeys(range(50), 1)
    assert sum(each.count for each in seen if isinstance(each, events.Transferred)) == 100


def test_a_delayed_message_crosses_when_it_is_due(sides):
    sides.shop.call("delay_message", "Stock", headers="", body=b"5", delay_ms=1)

    run_until([Bridge(sides.bridge, lambda event: None)], lambda: arrived(sides.warehouse, "Stock"))

    assert sides.numbers(sides.warehouse, "Stock") == {5: 1}


def test_a_login_with_the_roles_of_endpoints_and_operators_runs_a_bridge(sides):
    if any(side.settings.engine == "sqlserver" for side in sides.bridge.sides):
        pytest.skip("logins are made on one server here; the roles are the same")
    here, there = sides.bridge.sides
    sides.order(1)
    with logins(probe_for(sides.shop), here.settings.url) as made:
        name = made.make("bridge")
        for database in (sides.shop, sides.warehouse):
            database.driver_connection.execute(f"GRANT rowpost_endpoint, rowpost_operator TO {name}")
        own = tuple(
            replace(side, settings=replace(side.settings, url=made.url(name, side.settings.url)))
            for side in (here, there)
        )
        seen = []
        with connect(own[0].settings) as database:
            assert check(sides.bridge, *own, database) == []
            subscribe(*own, database)

        run_until(
            [Bridge(replace(sides.bridge, sides=own), seen.append)],
            lambda: arrived(sides.warehouse, "Stock") or troubles(seen),
        )

    assert troubles(seen) == []
    assert sides.numbers(sides.warehouse, "Stock") == {1: 1}


def troubles(seen):
    return [event.error for event in seen if isinstance(event, events.Trouble)]


def test_a_bridge_ends_when_nothing_waits(sides):
    sides.order(1)
    bridge = Bridge(sides.bridge, lambda event: None)

    bridge.run(lambda snapshot: snapshot.idle)

    assert sides.numbers(sides.warehouse, "Stock") == {1: 1}
    assert [(each[:3], each[3].sent) for each in bridge.snapshot().counts] == [
        (("shop", "warehouse", "Stock"), 1),
        (("warehouse", "shop", "Sales"), 0),
    ]


def test_a_bridge_stops_in_time_although_the_target_holds_it_up(sides):
    here, there = sides.bridge.sides
    if there.settings.engine != "postgresql":
        pytest.skip("the lock that holds the bridge up is PostgreSQL's")
    seen = []
    sides.order(1)
    bridge = Bridge(replace(sides.bridge, stop_timeout=0.1), seen.append)

    with sides.warehouse.transaction():
        sides.warehouse.driver_connection.execute('LOCK TABLE "Stock"')
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '\"Stock\"'::regclass"
        thread = threading.Thread(target=bridge.run)
        thread.start()
        wait_for(lambda: sides.warehouse.driver_connection.execute(waiting).fetchone()[0])
        bridge.stop()
        thread.join(60)
        assert not thread.is_alive()

    assert [type(event) for event in seen if isinstance(event, events.Warned)] == [events.Warned]
    wait_for(lambda: arrived(sides.warehouse, "Stock") and not arrived(sides.shop, "Stock"))
    assert sides.numbers(sides.warehouse, "Stock") == {1: 1}


def test_a_bridge_waits_for_a_side_that_cannot_be_reached(sides):
    seen = []
    here, there = sides.bridge.sides
    url = re.sub(r"(/|Database=)rowpost_test_\w+", r"\1rowpost_absent", there.settings.url)
    broken = replace(there, settings=replace(there.settings, url=url))
    bridge = Bridge(replace(sides.bridge, sides=(here, broken)), seen.append)
    sides.order(1)

    run_until([bridge], lambda: any(isinstance(event, events.Trouble) for event in seen))

    assert sides.numbers(sides.shop, "Stock") == {1: 1}


def test_a_proxy_queue_that_is_missing_is_named_with_the_command(sides):
    here, there = sides.bridge.sides
    there = replace(there, endpoints=(replace(STOCK, proxy="Absent"),))

    with pytest.raises(QueueNotFound, match=r"'Absent'.*rowpost bridge install"):
        check(sides.bridge, here, there, sides.shop)
    assert check(sides.bridge, *sides.bridge.sides, sides.shop) == []
