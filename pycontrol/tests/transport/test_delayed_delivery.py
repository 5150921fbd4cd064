"""Delayed and expired messages end to end: the delayed mover and the expired purger, on every available engine."""

import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest

from rowpost.database.connection import connect
from rowpost.deploy.grants import grant
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import QueueNotFound
from rowpost.transport.delayed import DueRound, move_due
from rowpost.transport.directory import canonical_or_as_given
from rowpost.transport.queue import Queue
from rowpost.wire.address import Address, parse_address
from rowpost.wire.message import encode_headers
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.tasks.delayed_mover import make_delayed_mover
from rowpost.workers.tasks.group import TaskGroup
from tests.support.failing import TYPE
from tests.support.logins import logins
from tests.support.workers import Refusing, Running

FORWARD = "NServiceBus.SqlServer.ForwardDestination"
LONG = 60.0  # seconds, twice the time that a test waits
TYPES = {"NServiceBus.EnclosedMessageTypes": TYPE}


def delay(shop, body=b"42", by=timedelta(milliseconds=-1), headers=None, database=None):
    (database or shop.queue.database).call(
        "delay_message",
        queue=shop.name,
        headers=headers if isinstance(headers, str) else encode_headers({**TYPES, **(headers or {})}),
        body=body,
        delay_ms=int(by / timedelta(milliseconds=1)),
    )


def waiting(shop):
    """Rows in the delayed table."""
    return shop.sql.value(f"SELECT COUNT(*) FROM {shop.sql.table(shop.name + '.Delayed')}")


# ------------------------------------------------------------------ one round, without a supervisor
def test_a_round_moves_what_is_due_and_says_when_the_next_is(shop, database):
    delay(shop, b"due")
    delay(shop, b"later", timedelta(hours=1))

    moved = move_due(database, shop.name)

    assert (moved.moved, moved.forwarded, moved.failed, moved.elected) == (1, 0, 0, True)
    assert 3500.0 < moved.next_due <= 3600.0
    assert [message.body for message in shop.queue.receive(5)] == [b"due"]
    assert not database.in_transaction


def test_a_full_batch_wants_the_next_one_at_once(shop, database):
    for number in range(5):
        delay(shop, b"%d" % number)

    first = move_due(database, shop.name, batch=3)
    second = move_due(database, shop.name, batch=3)

    assert (first.moved, first.wait(1.0)) == (3, 0.0)
    assert (second.moved, second.wait(1.0)) == (2, 1.0)


@pytest.mark.parametrize(
    ("moved", "wait"),
    [
        (DueRound(), 1.0),
        (DueRound(next_due=0.3), 0.3),
        (DueRound(next_due=3600.0), 1.0),
        (DueRound(moved=7, next_due=0.0), 0.0),
        (DueRound(next_due=0.0), 0.02),
        (DueRound(next_due=0.0, elected=False), 1.0),
    ],
)
def test_a_mover_waits_until_the_next_message_is_due_but_not_longer_than_the_lateness(moved, wait):
    assert moved.wait(1.0) == wait


def test_more_messages_for_elsewhere_than_a_batch_hold_up_none_of_the_queues_own(shop, database):
    other = shop.make_queue()
    for number in range(7):
        delay(shop, b"%d" % number, headers={FORWARD: other.name})
    delay(shop, b"own")

    rounds = [move_due(database, shop.name, batch=3) for _ in range(4)]

    assert sum(each.forwarded for each in rounds) == 7
    assert sum(each.moved for each in rounds) == 1
    assert (shop.queue.peek(), other.peek(), rounds[-1].next_due) == (1, 7, None)


def test_a_mover_that_is_not_elected_moves_nothing(shop, database, open_database):
    delay(shop)
    other = open_database()
    other.call("move_due_messages", shop.name, begin=True, count=1)

    moved = move_due(database, shop.name)
    other.rollback()

    assert (moved.moved, moved.elected) == (0, False)


def test_a_queue_without_a_delayed_table_is_named(shop, database):
    queue = shop.make_queue(delayed=False)

    with pytest.raises(QueueNotFound, match=queue.name):
        move_due(database, queue.name)

    assert not database.in_transaction


# ------------------------------------------------------------------ on to other queues
@pytest.mark.parametrize("spelling", ["name", "canonical"])
def test_what_an_nservicebus_endpoint_stored_goes_straight_to_its_destination(shop, database, sql, spelling):
    other = shop.make_queue()
    address = other.name if spelling == "name" else sql.database.canonical(parse_address(other.name))
    delay(shop, b"elsewhere", headers={FORWARD: address, "Shop.Unknown": "é漢"})
    delay(shop, b"own")

    moved = move_due(database, shop.name)

    assert (moved.moved, moved.forwarded) == (1, 1)
    assert [message.body for message in shop.queue.receive(5)] == [b"own"]
    (message,) = other.receive(5)
    assert (message.body, message.headers) == (b"elsewhere", {**TYPES, "Shop.Unknown": "é漢"})


def test_a_forward_destination_that_is_the_own_queue_is_stripped(shop, database):
    delay(shop, b"own", headers={FORWARD: shop.name})

    move_due(database, shop.name)

    (message,) = shop.queue.receive(5)
    assert (message.body, message.headers) == (b"own", TYPES)


def test_a_table_that_nobody_registered_gets_its_message(shop, database, sql):
    other = shop.make_queue()
    other.database.call("unregister_queue", queue_name=other.name)
    delay(shop, b"elsewhere", headers={FORWARD: other.name})

    assert move_due(database, shop.name).forwarded == 1
    assert sql.value(f"SELECT COUNT(*) FROM {sql.table(other.name)}") == 1


@pytest.mark.promise("missing-forward-destination")
def test_a_forward_destination_that_is_missing_ends_in_the_error_queue_under_its_own_name(shop, database):
    good = shop.make_queue()
    delay(shop, b"lost", headers={FORWARD: "Nowhere@[nsb]", "Shop.Unknown": "é", "NServiceBus.FailedQ": "Old"})
    delay(shop, b"found", headers={FORWARD: good.name})
    delay(shop, b"own")

    rounds = [move_due(database, shop.name) for _ in range(2)]

    assert [(r.moved, r.forwarded, r.failed) for r in rounds] == [(1, 1, 1), (0, 0, 0)]
    assert [message.body for message in good.receive(5)] == [b"found"]
    assert [message.body for message in shop.queue.receive(5)] == [b"own"]
    (error,) = shop.errors()
    assert error.body == b"lost"
    assert error.headers["NServiceBus.FailedQ"] == database.canonical(Address("Nowhere", "nsb"))
    assert error.headers["Shop.Unknown"] == "é"
    assert error.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "rowpost.errors.QueueNotFound"
    assert error.headers["NServiceBus.MessageId"]
    assert FORWARD not in error.headers
    assert waiting(shop) == 0


@pytest.mark.parametrize("address", ["a@[b", "error] VALUES (1); DROP TABLE handled; --"])
def test_a_forward_destination_that_is_no_address_of_a_queue_ends_in_the_error_queue(shop, database, address):
    delay(shop, b"lost", headers={FORWARD: address})

    moved = move_due(database, shop.name)

    assert (moved.forwarded, moved.failed) == (0, 1)
    assert shop.errors()[0].headers["NServiceBus.FailedQ"] == canonical_or_as_given(database, address)
    assert shop.handled() == 0


@pytest.mark.promise("corrupt-headers-move-unchanged")
def test_a_forward_whose_headers_cannot_be_read_ends_in_the_error_queue_unchanged(shop, database):
    raw = '{"NServiceBus.SqlServer.ForwardDestination":"Billing'
    delay(shop, b"\xff", headers=raw)

    move_due(database, shop.name)

    assert [(error.raw_headers, error.body) for error in shop.errors()] == [(raw, b"\xff")]
    assert waiting(shop) == 0


def test_without_an_error_queue_a_message_that_cannot_be_forwarded_stays(shop, database):
    delay(shop, b"lost", headers={FORWARD: "Nowhere"})

    with pytest.raises(QueueNotFound):
        move_due(database, shop.name, error_queue="NoErrors")

    assert waiting(shop) == 1
    assert not database.in_transaction


# ------------------------------------------------------------------ with a supervisor
@pytest.mark.promise("delay-is-kept", "delay-of-any-process")
def test_a_message_delayed_by_another_process_is_handled_within_a_second_of_its_due_time(shop, open_database):
    other = open_database()

    with shop.run("note", limit=1, peek_delay=5.0) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Peeked), "it has started and is idle")
        late = []
        for by in (0.0, 0.35, 1.2):
            before = shop.handled()
            delay(shop, b"42", timedelta(seconds=by), database=other)
            due = time.monotonic() + by
            supervisor.until(lambda before=before: shop.handled() > before, "it is handled")
            late.append(time.monotonic() - due)

    assert all(-0.01 < each < 1.5 for each in late), late  # a second, and what a busy machine takes to do it
    assert supervisor.seen(events.Trouble) == []


def store_as_nservicebus_does(shop):
    """A plain INSERT, due at once."""
    headers, table = encode_headers(TYPES), shop.sql.table(shop.name + ".Delayed")
    now = "now()" if shop.target.settings.engine == "postgresql" else "GETUTCDATE()"
    body = "'42'::bytea" if shop.target.settings.engine == "postgresql" else "0x3432"
    shop.sql.run(f"INSERT INTO {table} (headers, body, due) VALUES (?, {body}, {now})", headers)


def test_a_peek_of_the_supervisor_informs_the_mover_of_what_another_process_stored(shop):
    with shop.run("note", peek_delay=0.1, delayed_lateness=LONG) as supervisor:
        supervisor.until(lambda: len(supervisor.seen(events.Peeked)) > 3, "looks at nothing")
        for number in range(1, 4):
            store_as_nservicebus_does(shop)
            supervisor.until(lambda number=number: shop.handled() == number, "it is handled long before the lateness")


def test_a_mover_whose_supervisor_peeks_rarely_queries_the_table_itself(shop):
    with shop.run("note", peek_delay=LONG, delayed_lateness=0.3) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Peeked), "it has peeked")
        for number in range(1, 4):
            store_as_nservicebus_does(shop)
            supervisor.until(lambda number=number: shop.handled() == number, "it is handled long before the next look")


def test_a_mover_whose_login_may_not_watch_queries_the_table_itself(shop, sql):
    if shop.target.settings.engine != "postgresql":
        pytest.skip("takes a right away from a PostgreSQL login; the mover's side of it is the same on every engine")
    with logins(sql, shop.target.url) as login:
        name = login.make("old")
        grant(sql.database, name, receive_from=[shop.name], send_to=["error"], tables=sql.babelfish)
        sql.run(f'REVOKE EXECUTE ON FUNCTION rowpost."watch_queue:{shop.name}" FROM {name}')
        sql.run(f"GRANT INSERT ON handled TO {name}")
        with Running(replace(shop.settings(delayed_lateness=0.3), url=login.url(name))) as supervisor:
            supervisor.until(lambda: len(supervisor.seen(events.Peeked)) > 2, "it peeks")
            store_as_nservicebus_does(shop)
            supervisor.until(lambda: shop.handled() == 1, "it is handled")


def test_an_idle_queue_costs_its_peeks_and_no_move(shop):
    trips = []

    def counted(*arguments, **options):
        database = connect(*arguments, **options)
        call_all = database.call_all
        database.call_all = lambda calls, **how: trips.append(calls) or call_all(calls, **how)
        return database

    with shop.run(
        "note", peek_delay=0.1, tasks=partial(TaskGroup, mover=partial(make_delayed_mover, connect=counted))
    ) as supervisor:
        supervisor.until(lambda: len(supervisor.seen(events.Peeked)) > 50, "five seconds of peeks")
        idle, peeks = len(trips), [event.at for event in supervisor.seen(events.Peeked)]
        store_as_nservicebus_does(shop)
        supervisor.until(lambda: shop.handled() == 1, "it is handled")

    late = sum(int(after - before) for before, after in pairwise(peeks))  # by a lateness, on a busy machine
    assert 1 <= idle <= 2 + late, peeks
    assert len(trips) > idle


def test_a_queue_without_its_delayed_table_is_worked_and_its_mover_reports_the_problem(shop):
    with shop.run("note", delayed_lateness=0.3) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Peeked), "it is up")
        shop.sql.run(f"DROP TABLE {shop.sql.table(shop.name + '.Delayed')}")
        supervisor.until(lambda: supervisor.seen(events.Trouble), "the mover reports a failure")
        shop.send(3)
        supervisor.until(lambda: shop.handled() == 3, "messages are handled")

    assert {event.error.partition(":")[0] for event in supervisor.seen(events.Trouble)} == {
        f"Failed to move due messages of {shop.name}"
    }


@pytest.mark.promise("delay-range")
def test_a_delay_of_100_days_waits_and_a_negative_one_does_not(shop):
    delay(shop, b"far", timedelta(days=100))
    delay(shop, b"past", timedelta(days=-100))

    with shop.run("note") as supervisor:
        supervisor.until(lambda: shop.handled() == 1, "the past one is handled")
        supervisor.idle()

    assert waiting(shop) == 1


@pytest.mark.promise("movers-move-once")
def test_the_movers_of_two_processes_move_1000_messages_once(shop):
    for number in range(50):
        delay(shop, b"%d" % number)
    table = shop.sql.table(shop.name + ".Delayed")
    shop.sql.run(
        f"INSERT INTO {table} (headers, body, due) SELECT a.headers, a.body, a.due FROM {table} AS a"
        f" CROSS JOIN (SELECT due FROM {table} ORDER BY due OFFSET 0 ROWS FETCH NEXT 19 ROWS ONLY) AS b"
    )

    with shop.run("note", limit=2) as one, shop.run("note", limit=2) as two:
        one.until(lambda: shop.handled() == 1000, "all are handled")
        one.idle()
        two.idle()

    assert (shop.handled(), shop.handled_twice(), waiting(shop)) == (1000, 0, 0)
    assert [e for each in (one, two) for kind in (events.Trouble, events.Critical) for e in each.seen(kind)] == []


def test_a_running_mover_does_not_delay_the_peeks_of_a_queue(shop, open_database):
    delay(shop)
    other = open_database()
    other.begin()
    table = shop.sql.table(shop.name + ".Delayed")
    other.driver_connection.execute(
        f"SELECT * FROM {table} FOR UPDATE" if other.engine == "postgresql" else f"DELETE FROM {table}"
    )

    with shop.run("note", peek_delay=0.1) as supervisor:
        shop.send(20)
        supervisor.until(lambda: shop.handled() == 20, "messages are handled all the same")
        other.rollback()
        supervisor.until(lambda: shop.handled() == 21, "the delayed one comes when it is free")


def test_an_endpoint_delays_straight_into_the_destinations_table(shop, database):
    other = shop.make_queue()
    sender = Endpoint("Sales")

    with sender.open(database) as bus:
        bus.send(b"42", to=shop.name, delay=timedelta(milliseconds=-5), headers=TYPES)
        bus.send(b"43", to=other.name, delay=timedelta(hours=1), headers=TYPES)

    assert move_due(database, shop.name).moved == 1
    assert FORWARD not in shop.queue.receive()[0].headers
    assert 3500 < move_due(database, other.name).next_due <= 3600


@pytest.fixture
def mover_refused(target):
    if target.settings.engine != "postgresql":
        pytest.skip("closes a PostgreSQL database; the mover's side of it is the same on every engine")

    class RefusingMovers(Refusing):
        def __enter__(self):
            super().__enter__()
            self.admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND application_name = 'rowpost delayed mover'",
                (self.name,),
            )

    return RefusingMovers(target.url)


@pytest.mark.promise("outage")
def test_a_mover_survives_an_outage_of_the_database_with_its_own_circuit_breaker(shop, mover_refused):
    waits = CircuitBreaker(armed_wait=0.1, triggered_wait=0.2)

    with shop.run("note", breaker=waits, breaker_seconds=0.5) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Peeked), "it is up")
        with mover_refused:
            supervisor.until(lambda: moving(supervisor.seen(events.Critical)), "the mover reports a failure")
        delay(shop)
        supervisor.until(lambda: shop.handled() == 1, "delayed messages come again")
        supervisor.until(lambda: len(supervisor.seen(events.Recovered)) >= 2, "workers and mover have recovered")

    assert len(moving(supervisor.seen(events.Critical))) == 1


def moving(seen):
    return [event for event in seen if event.error.startswith("Failed to move due messages of")]


def test_a_worked_queue_without_a_delayed_table_needs_no_mover(shop):
    queue = shop.make_queue(delayed=False)
    queue.send(b"42")

    with shop.run("note", others=(shop.worked(queue.name),)) as supervisor:
        supervisor.until(lambda: shop.handled() == 1, "it is handled")

    assert supervisor.seen(events.Trouble) == []


# ------------------------------------------------------------------ expiry
@pytest.mark.promise("purge-of-expired")
def test_a_purge_at_startup_removes_what_has_expired_and_nothing_else(shop):
    shop.sql.insert_expired(shop.name, 2500)

    with shop.run("note", limit=1, purge_expired_on_startup=True) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.ExpiredPurged), "the purge")
        shop.send(10)
        supervisor.until(lambda: shop.handled() == 10, "the living ones are handled")
        supervisor.idle()

    purged = sum(event.count for event in supervisor.seen(events.ExpiredPurged))
    dropped = sum(event.count for event in supervisor.seen(events.Expired))
    assert purged + dropped == 2500
    assert shop.depth() == 0


def test_without_the_setting_nothing_is_purged_at_startup(shop):
    with shop.run("note") as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Peeked), "it is up")

    assert supervisor.seen(events.ExpiredPurged) == []


def test_a_periodic_purge_never_blocks_busy_receivers(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.queue.send(str(gate).encode())

    with shop.run("wait_for_file", limit=1, purge_expired_every=0.1) as supervisor:
        supervisor.until(lambda: list(tmp_path.glob("gate.*")), "the only worker is busy")
        shop.sql.insert_expired(shop.name, 1500)
        supervisor.until(lambda: sum(e.count for e in supervisor.seen(events.ExpiredPurged)) == 1500, "all are purged")
        shop.sql.insert_expired(shop.name, 5)
        supervisor.until(lambda: sum(e.count for e in supervisor.seen(events.ExpiredPurged)) == 1505, "once more")
        gate.touch()
        supervisor.until(lambda: shop.handled() == 1, "the message is handled")

    assert supervisor.seen(events.Expired) == []


@pytest.mark.promise("expired-is-dropped")
def test_an_error_copy_of_a_message_with_a_time_to_be_received_never_expires(shop):
    shop.queue.send(b"42", TYPES, time_to_be_received=timedelta(minutes=5))

    with shop.run("fail", attempts=1) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.MovedToError), "it is in the error queue")

    assert shop.errors()[0].expires is None
    assert Queue("error", shop.queue.database).purge_expired() == 0
