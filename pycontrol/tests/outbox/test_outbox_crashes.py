"""Processes killed at every step of the way through an outbox, with two real databases: nothing is lost, nothing twice.

ROWPOST_TEST_OUTBOX_KILLS    how many kills the long test makes; 12 by default
"""

import json
import os
import random
import signal
from collections import Counter

import pytest

from rowpost.database.connection import connect_url
from rowpost.deploy.entries import describe_queue
from rowpost.outbox.cleanup import send_left_behind
from rowpost.settings.engine import engine_of
from rowpost.settings.environment import QueueSettings
from rowpost.transport.queue import Queue
from tests.support.crashing import TYPE
from tests.support.outboxes import deploy_sagas, endpoint_of, handle_all, pipeline_of, spawn_worker

KILLS = int(os.environ.get("ROWPOST_TEST_OUTBOX_KILLS", "12"))
STEPS = {
    False: ["received", "looked up", "in handler", "handled", "stored", "sent", "settled", "forgotten"],
    True: ["received", "claimed", "in handler", "handled", "stored", "sent", "settled", "forgotten"],
}
HANDLED = {"stored", "sent", "settled", "forgotten"}
KINDS = {False: "optimistic", True: "pessimistic"}


class Shop:
    """A queue, its business database, and what became of the orders in both."""

    def __init__(self, queue, url, business, business_url):
        self.queue, self.url, self.business, self.business_url = queue, url, business, business_url

    def order(self, number, times=1):
        """An order, as often as its sender repeats itself."""
        message_id = f"{self.queue.name}/{number}"
        headers = {"NServiceBus.EnclosedMessageTypes": TYPE, "NServiceBus.MessageId": message_id, "Shop.Group": "all"}
        for _ in range(times):
            self.queue.send(b'{"Number":%d}' % number, headers)

    def spawn(self, step, **options):
        return spawn_worker(self.url, self.queue.name, self.business_url, step, **options)

    def endpoint(self, pessimistic=False, saga=None, lease=None):
        return endpoint_of(self.queue.name, self.business_url, pessimistic=pessimistic, saga=saga, lease=lease)

    def work(self, pessimistic=False, saga=None, lease=None):
        with connect_url(engine_of(self.url), self.url) as database:
            pipeline = pipeline_of(database, self.endpoint(pessimistic, saga, lease))
            handle_all(pipeline)
            pipeline.close()

    def written(self):
        return Counter(
            row[0] for row in self.business.driver_connection.execute("SELECT number FROM business").fetchall()
        )

    def sent(self):
        found, anchor = Counter(), None
        while rows := Queue("Billing", self.queue.database).browse(1000, anchor):
            found.update(int(message.body.decode()[10:-1]) for message in rows)
            anchor = rows[-1].row_version
        return found

    def tallied(self):
        """The numbers in the state of the saga's one instance; None if it was not started."""
        rows = self.business.call("list_sagas", "Tally", count=10)
        assert len(rows) <= 1
        return sorted(json.loads(rows[0].data)["Seen"]) if rows else None

    def remembered(self):
        return self.business.driver_connection.execute("SELECT message_id FROM rowpost.outbox").fetchall()

    def return_leases(self):
        """Let the leases of dead processes expire, and return their messages."""
        entry, database = (
            describe_queue(QueueSettings(self.queue.name), self.queue.database.engine),
            self.queue.database,
        )
        table = entry.placeholders(database.dialect)["leased_table"]
        database.driver_connection.execute(f"UPDATE {table} SET due = '2024-01-01'")
        assert database.call_atomically("return_expired", self.queue.name, count=10)

    def left_behind(self):
        return self.business.driver_connection.execute("SELECT message_id FROM rowpost.outbox_operations").fetchall()


@pytest.fixture
def leasing_shop(target, make_queue, sql, business_url):
    """A fresh queue with a table of leases; ledger, outbox and Billing are empty."""
    yield from _shop(target, make_queue(lease=True), sql, business_url)


@pytest.fixture
def shop(target, make_queue, sql, business_url):
    """A fresh queue; ledger, outbox and Billing are empty."""
    yield from _shop(target, make_queue(), sql, business_url)


def _shop(target, queue, sql, business_url):
    sql.empty("Billing")
    sql.empty("error")
    sql.run("DELETE FROM rowpost.dispatch")
    with connect_url(engine_of(business_url), business_url) as business:
        for table in ("business", "rowpost.outbox", "rowpost.outbox_operations"):
            business.driver_connection.execute(f"DELETE FROM {table}")
        yield Shop(queue, target.url, business, business_url)


@pytest.mark.parametrize(
    ("step", "pessimistic"),
    [pytest.param(step, kind, id=f"{KINDS[kind]} {step}") for kind, steps in STEPS.items() for step in steps],
)
@pytest.mark.promise("outbox-dispatches-stored")
def test_a_worker_killed_at_any_step_leaves_every_order_once_in_both_databases(shop, step, pessimistic):
    for number in (1, 2, 3):
        shop.order(number, times=2)

    assert shop.spawn(step, pessimistic=pessimistic).wait(60) == -signal.SIGKILL
    committed = shop.written()
    shop.work(pessimistic)
    send_left_behind(shop.queue.database, shop.business, {shop.queue.name}, older_than=0)

    assert (committed != Counter()) == (step in HANDLED)
    assert shop.written() == shop.sent() == Counter([1, 2, 3])
    assert (shop.queue.peek(), shop.left_behind()) == (0, [])


@pytest.mark.parametrize(
    ("step", "lease"),
    [
        *((step, "commit") for step in ("received", "in handler", "in commit", "before commit", "stored", "sent")),
        *((step, "return") for step in ("in handler", "before commit", "stored", "sent")),
    ],
)
@pytest.mark.promise("outbox-dispatches-stored")
def test_a_worker_with_leases_killed_at_any_step_leaves_every_order_once_in_both_databases(leasing_shop, step, lease):
    shop = leasing_shop
    for number in (1, 2, 3):
        shop.order(number, times=2)

    assert shop.spawn(step, lease=lease).wait(60) == -signal.SIGKILL
    committed = shop.remembered()
    if step != "sent":
        shop.return_leases()
    shop.work(lease=lease)
    send_left_behind(shop.queue.database, shop.business, {shop.queue.name}, older_than=0)

    assert (committed != []) == (step in HANDLED)
    assert shop.written() == (Counter([1, 2, 3]) if lease == "commit" else Counter())
    assert shop.sent() == Counter([1, 2, 3])
    assert (shop.queue.peek(), shop.left_behind()) == (0, [])


@pytest.mark.parametrize(
    ("step", "pessimistic", "saga"),
    [
        *(pytest.param(step, False, "pessimistic", id=f"pessimistic saga {step}") for step in STEPS[False]),
        *(pytest.param(step, False, "optimistic", id=f"optimistic saga {step}") for step in ("handled", "stored")),
        *(pytest.param(step, True, "pessimistic", id=f"pessimistic outbox {step}") for step in ("claimed", "stored")),
    ],
)
@pytest.mark.promise("outbox-keeps-sagas")
def test_a_worker_killed_at_any_step_leaves_a_saga_that_has_each_order_once(shop, target, step, pessimistic, saga):
    deploy_sagas(target, shop.endpoint(saga=saga))
    for number in (1, 2, 3):
        shop.order(number, times=2)

    assert shop.spawn(step, pessimistic=pessimistic, saga=saga).wait(60) == -signal.SIGKILL
    committed = shop.tallied()
    shop.work(pessimistic, saga)
    send_left_behind(shop.queue.database, shop.business, {shop.queue.name}, older_than=0)

    assert (committed is not None) == (step in HANDLED)
    assert shop.tallied() == [1, 2, 3]
    assert shop.written() == shop.sent() == Counter([1, 2, 3])
    assert (shop.queue.peek(), shop.left_behind()) == (0, [])


@pytest.mark.parametrize("step", ["repeating", "sent"])
@pytest.mark.promise("outbox-dispatches-stored")
def test_a_worker_killed_while_it_completes_the_work_of_a_killed_worker_leaves_every_order_once(shop, step):
    shop.order(1, times=2)
    assert shop.spawn("stored", pessimistic=False).wait(60) == -signal.SIGKILL

    assert shop.spawn(step, pessimistic=False).wait(60) == -signal.SIGKILL
    shop.work()

    assert shop.written() == shop.sent() == Counter([1])
    assert (shop.queue.peek(), shop.left_behind()) == (0, [])


@pytest.mark.timeout(300 + 20 * KILLS)
def test_the_ledger_and_the_messages_sent_agree_after_many_kills(shop, target):
    """Two workers at a time, each killed at a random step of a random message; senders repeat themselves."""
    chance = random.Random(20261120)
    kills = orders = 0
    running = []
    while kills < KILLS:
        for _ in range(8):
            shop.order(orders, times=chance.choice((1, 1, 2, 3)))
            orders += 1
        while len(running) < 2:
            pessimistic = chance.random() < 0.5
            step = chance.choice([*STEPS[pessimistic], "repeating"])
            running.append(shop.spawn(step, pessimistic=pessimistic, time=chance.randint(1, 3)))
        code = running.pop(0).wait(120)
        assert code in (0, -signal.SIGKILL)
        kills += code != 0
    for process in running:
        process.wait(120)

    shop.work()
    send_left_behind(shop.queue.database, shop.business, {shop.queue.name}, older_than=0)

    expected = Counter(range(orders))
    assert shop.written() == expected
    assert shop.sent() == expected
    assert (shop.queue.peek(), shop.left_behind()) == (0, [])
    assert Queue("error", shop.queue.database).peek() == 0
    print(f"{kills} kills, {orders} orders on {target.label}")
