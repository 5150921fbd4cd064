"""Sessions of programs with an outbox: what they send outside of handlers is stored with their own data, and sent once after the commit."""

import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from rowpost.database.connection import connect_url
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import QueueNotFound, SettingsError
from rowpost.outbox.cleanup import send_left_behind
from rowpost.outbox.declaration import Outbox
from rowpost.settings.databases import OutboxSettings
from rowpost.settings.engine import engine_of
from rowpost.transport.queue import Queue
from tests.support.crashing import TYPE, Order, write
from tests.support.probe import probe_for
from tests.support.workers import eventually

HEADERS = {"NServiceBus.EnclosedMessageTypes": TYPE}


class Desk:
    """A program with the endpoint Sales, on both databases."""

    def __init__(self, target, database, business, business_url):
        self.target, self.database, self.business, self.url = target, database, business, business_url
        self.endpoint = Endpoint("Sales", transaction_mode="receive_only", outbox=Outbox("business", url=business_url))

    def open(self, **options):
        return self.endpoint.open(self.business.database, queues=options.pop("queues", self.target.settings), **options)

    def order(self, bus, number, to="Billing"):
        write(bus.connection, number)
        bus.send(Order(number), to=to, headers=HEADERS)

    def written(self):
        return sorted(row[0] for row in self.business.run("SELECT number FROM business"))

    def stored(self):
        return len(self.business.run("SELECT message_id FROM rowpost.outbox_operations"))

    def sent(self, queue="Billing"):
        return sorted(int(message.body.decode()[10:-1]) for message in Queue(queue, self.database).browse(100))

    def send_left_behind(self):
        """What a supervisor does once a minute."""
        return send_left_behind(self.database, self.business.database, {"Sales"}, older_than=0)

    def what_a_supervisor_does(self):
        """The first of its rounds that sends something or fails: a session that has just ended may still hold the row."""
        rounds = []
        eventually(
            lambda: rounds.append(self.send_left_behind()) or rounds[-1].sent or rounds[-1].failed,
            "a round finds the message",
        )
        return rounds[-1]


@pytest.fixture
def desk(target, database, business_url, sql):
    for name in ("Sales", "Billing", "error"):
        sql.empty(name)
    sql.run("DELETE FROM rowpost.dispatch")
    with connect_url(engine_of(business_url), business_url, "rowpost tests") as connection:
        probe = probe_for(connection, babelfish=target.babelfish)
        for table in ("business", "rowpost.outbox", "rowpost.outbox_operations"):
            probe.run(f"DELETE FROM {table}")
        made = Desk(target, database, probe, business_url)
        yield made
        made.endpoint.close()


@pytest.mark.promise("sessions")
def test_without_a_transaction_a_session_commits_its_messages_and_sends_them_at_once(desk):
    with desk.open() as bus:
        desk.order(bus, 1)
        before = (desk.stored(), desk.sent())

    assert before == (0, [])
    assert (desk.written(), desk.sent(), desk.stored()) == ([1], [1], 0)
    assert desk.send_left_behind().sent == 0


@pytest.mark.promise("sessions")
def test_in_a_transaction_messages_are_stored_with_it_and_sent_once_after_the_commit(desk):
    with desk.business.database.transaction():
        with desk.open() as bus:
            desk.order(bus, 1)
            desk.order(bus, 2)
        uncommitted = (bus.dispatch(), desk.sent())

    committed = (desk.stored(), desk.sent())
    first, second = bus.dispatch(), bus.dispatch()

    assert uncommitted == (False, [])
    assert committed == (1, [])
    assert (first, second) == (True, False)
    assert (desk.written(), desk.sent(), desk.stored()) == ([1, 2], [1, 2], 0)
    assert desk.send_left_behind().sent == 0


@pytest.mark.promise("sessions")
def test_what_is_rolled_back_is_never_sent(desk):
    with pytest.raises(KeyError, match="undone"), desk.business.database.transaction():
        with desk.open() as bus:
            desk.order(bus, 1)
        raise KeyError("undone")
    with pytest.raises(KeyError, match="in the block"), desk.open() as other:
        other.send(Order(2), to="Billing", headers=HEADERS)
        raise KeyError("in the block")

    assert (bus.dispatch(), other.dispatch(), desk.send_left_behind().sent) == (False, False, 0)
    assert (desk.written(), desk.sent()) == ([], [])


PROGRAM = """
import json, os, signal, sys
from tests.outbox.test_sessions import HEADERS
from tests.support.crashing import Order, write
from rowpost.database.connection import connect_url
from rowpost.endpoint.endpoint import Endpoint
from rowpost.outbox.declaration import Outbox
given = json.loads(sys.argv[1])
sales = Endpoint("Sales", transaction_mode="receive_only", outbox=Outbox("business", url=given["business"]))
business = connect_url(given["engine"], given["business"])
queues = connect_url(given["engine"], given["queues"])
with business.transaction():
    with sales.open(business, queues=queues) as bus:
        write(bus.connection, 1)
        bus.send(Order(1), to="Billing", headers=HEADERS)
    if given["when"] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("when", "numbers"), [("before", []), ("after", [1])])
@pytest.mark.promise("sessions")
def test_a_program_that_dies_after_its_commit_has_its_messages_sent_by_a_supervisor(desk, when, numbers):
    given = {"engine": desk.target.settings.engine, "queues": desk.target.url, "business": desk.url, "when": when}
    path = os.pathsep.join(filter(None, sys.path))
    died = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(given)], env={**os.environ, "PYTHONPATH": path}, check=False
    )
    before = desk.sent()

    cared = desk.what_a_supervisor_does() if numbers else desk.send_left_behind()

    assert (died.returncode, before) == (-signal.SIGKILL, [])
    assert (cared.sent, cared.failed) == (len(numbers), {})
    assert (desk.written(), desk.sent()) == (numbers, numbers)


@pytest.mark.promise("sessions")
def test_what_cannot_be_sent_at_once_stays_stored_and_is_told(desk, caplog):
    with caplog.at_level(logging.WARNING, "rowpost"), desk.open() as bus:
        desk.order(bus, 1, to="Nowhere")

    assert (desk.written(), desk.stored()) == ([1], 1)
    (told,) = [record.getMessage() for record in caplog.records if record.name == "rowpost"]
    assert "Sales" in told and "supervisor" in told and "owhere" in told
    assert len(desk.what_a_supervisor_does().failed) == 1
    with desk.open() as bus:  # the endpoint has not lost its connections for good
        desk.order(bus, 2)
    assert desk.sent() == [2]


def test_without_the_url_of_the_business_database_messages_wait_for_a_supervisor(desk):
    endpoint = Endpoint("Sales", transaction_mode="receive_only", outbox="business")
    with endpoint.open(desk.business.database, queues=desk.target.settings) as bus:
        desk.order(bus, 1)
    waiting = (desk.stored(), desk.sent())
    known = replace(desk.target.settings, outboxes=(OutboxSettings("business", desk.url),))
    with endpoint.open(desk.business.database, queues=known) as bus:
        desk.order(bus, 2)
    endpoint.close()

    assert (waiting, desk.sent()) == ((1, []), [2])
    assert (desk.what_a_supervisor_does().sent, desk.sent()) == (1, [1, 2])


def test_a_session_in_which_nothing_is_sent_stores_nothing(desk):
    with desk.open() as bus:
        write(bus.connection, 1)

    assert (desk.written(), desk.stored(), bus.dispatch()) == ([1], 0, False)


def test_an_event_of_a_session_reaches_its_subscribers(desk):
    desk.database.call("subscribe", endpoint="Billing", topic="Shop.Messages.Placed", queue_address="Billing")

    with desk.open() as bus:
        bus.publish(_Placed(5))

    desk.database.call("unsubscribe", endpoint="Billing", topic="Shop.Messages.Placed")
    assert desk.sent() == [5]


class _Placed(Order):
    __rowpost_type__ = "Shop.Messages.Placed"


def test_an_endpoint_that_no_supervisor_could_care_for_is_refused(desk):
    outbox = Outbox("business", url=desk.url)
    for endpoint, error, words in (
        (Endpoint("Sales"), SettingsError, "has no outbox"),
        (Endpoint("Sales", transaction_mode="receive_only", outbox=outbox, send_only=True), SettingsError, "send_only"),
        (Endpoint("NoQueue", transaction_mode="receive_only", outbox=outbox), QueueNotFound, "NoQueue"),
    ):
        with pytest.raises(error, match=words), endpoint.open(desk.business.database, queues=desk.target.settings):
            pass
        endpoint.close()
