"""No message below the receive cursor is missed: late commits and rollbacks, among dead rows that vacuum cannot remove."""

import random
import threading

import psycopg
import pytest

from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from tests.support.workers import concurrent

SENDERS, ROUNDS = 6, 25


def backlog(shop, count=4000):
    """Enough to keep one worker busy for longer than any test takes to look: the queue is never found empty."""
    shop.queue.send_many([OutgoingMessage(b"0.005")] * count)


def handled(shop, row_id):
    return shop.sql.value("SELECT COUNT(*) FROM handled WHERE id = ?", str(row_id)) == 1


@concurrent  # the purge steps over what the worker has locked
def test_a_message_that_commits_behind_later_ones_is_found_while_others_still_wait(shop, open_database):
    late = open_database()
    late.begin()
    row_id = Queue(shop.name, late).send(b"0")
    backlog(shop)

    with shop.run("slow", limit=1, peek_delay=60.0) as supervisor:
        supervisor.until(lambda: shop.handled() > 0, "the worker is past it")
        late.commit()
        supervisor.until(lambda: handled(shop, row_id), "found")
        waiting = shop.depth()
        shop.queue.purge()

    assert waiting > 0, "or it was found only because nothing else was left"


@concurrent
def test_a_message_that_a_receiver_gives_back_is_found_while_others_still_wait(shop, open_database):
    other = open_database()
    row_id = shop.queue.send(b"0")
    backlog(shop)
    other.begin()
    assert Queue(shop.name, other).receive(1)[0].id == row_id

    with shop.run("slow", limit=1, peek_delay=60.0) as supervisor:
        supervisor.until(lambda: shop.handled() > 0, "the worker is past it")
        other.rollback()
        supervisor.until(lambda: handled(shop, row_id), "found")
        waiting = shop.depth()
        shop.queue.purge()

    assert waiting > 0


@pytest.fixture
def old_transaction(target):
    """A transaction that keeps every dead row from going; where there is no such thing, nothing."""
    if target.settings.engine != "postgresql":
        yield
        return
    with psycopg.connect(target.url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM handled")
        yield
        connection.rollback()


@concurrent
def test_senders_that_commit_out_of_order_and_receivers_that_give_back_lose_and_double_nothing(
    shop, open_database, old_transaction
):
    """Transactions overlap, a third of the senders roll back, and so does a receiver beside the workers."""
    sent, lock, done = [], threading.Lock(), threading.Event()

    def send(database, chance):
        here = Queue(shop.name, database)
        for _ in range(ROUNDS):
            database.begin()
            ids = [here.send(b"42") for _ in range(chance.randint(1, 5))]
            done.wait(chance.random() * 0.03)
            if chance.random() < 0.33:
                database.rollback()
                continue
            database.commit()
            with lock:
                sent.extend(ids)

    def give_back(database):
        here = Queue(shop.name, database)
        while not done.wait(0.01):
            database.begin()
            here.receive(3)
            done.wait(0.02)
            database.rollback()

    threads = [threading.Thread(target=send, args=(open_database(), random.Random(n))) for n in range(SENDERS)]
    troublemaker = threading.Thread(target=give_back, args=(open_database(),))
    with shop.run(limit=3, peek_delay=60.0) as supervisor:
        for thread in [*threads, troublemaker]:
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        troublemaker.join()
        supervisor.until(lambda: shop.handled() >= len(sent), "all are handled")

    assert {str(each) for each in sent} == {row[0] for row in shop.sql.run("SELECT id FROM handled")}
    assert (shop.handled_twice(), shop.depth()) == (0, 0)
