"""Processes killed in the middle of a batch: every message of it is handled once, by somebody, and sends once."""

import random
import signal
import threading
from collections import Counter

import pytest

from rowpost.errors import DatabaseUnavailable
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.recoverability.outcome import Kind
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from rowpost.workers import events
from tests.support.crashing import TYPE, endpoint_of, pipeline_of, spawn_worker
from tests.support.workers import eventually
from tests.support.workers import shop as worked

__all__ = ["worked"]

MODE = "sends_atomic_with_receive"
# a batch of three: received, (in handler, handled) of each, before commit, committed
STEPS = {1: "received", 2: "in the first", 3: "after the first", 4: "in the second", 7: "after the last",
         8: "before commit", 9: "committed"}  # fmt: skip


class Shop:
    """A queue, and what became of its orders."""

    def __init__(self, target, queue, sql):
        self.target, self.queue, self.sql = target, queue, sql

    def order(self, *numbers):
        headers = {"NServiceBus.EnclosedMessageTypes": TYPE}
        self.queue.send_many(OutgoingMessage(b'{"Number":%d}' % number, headers) for number in numbers)

    def spawn(self, die_at, batch):
        return spawn_worker(self.target, self.queue.name, MODE, {}, die_at, batch)

    def written(self):
        return Counter(row[0] for row in self.sql.run("SELECT number FROM business"))

    def sent(self):
        rows = Queue("Billing", self.queue.database).browse(1000)
        return Counter(int(message.body.decode()[10:-1]) for message in rows)


@pytest.fixture
def shop(target, make_queue, sql):
    sql.run("DROP TABLE IF EXISTS business")
    sql.run("CREATE TABLE business (number integer NOT NULL)")
    sql.empty("Billing")
    return Shop(target, make_queue(), sql)


@pytest.mark.parametrize("step", STEPS, ids=STEPS.get)
def test_a_process_killed_at_any_step_of_a_batch_loses_and_repeats_nothing(shop, step):
    shop.order(1, 2, 3, 4, 5)

    killed = shop.spawn(die_at=step, batch=3).wait(60)
    after = shop.written()
    finished = shop.spawn(die_at=None, batch=3).wait(60)

    assert (killed, finished) == (-signal.SIGKILL, 0)
    assert after == (Counter([1, 2, 3]) if STEPS[step] == "committed" else Counter())
    assert shop.written() == shop.sent() == Counter([1, 2, 3, 4, 5])
    assert shop.queue.peek() == 0


@pytest.mark.usefixtures("needs_readpast")
def test_workers_killed_at_random_in_batches_of_several_sizes_lose_and_repeat_nothing(shop):
    numbers = [*range(600)]
    shop.order(*numbers)
    dice = random.Random(6)

    for _ in range(6):
        workers = [shop.spawn(die_at=dice.randrange(20, 120), batch=dice.choice((1, 7, 30))) for _ in range(2)]
        for worker in workers:
            worker.wait(60)
    shop.spawn(die_at=None, batch=30).wait(60)

    assert shop.written() == shop.sent() == Counter(numbers)


def test_a_connection_lost_in_the_middle_of_a_batch_leaves_all_of_it_in_the_queue(shop, open_database, sql, target):
    if target.settings.engine != "postgresql":
        pytest.skip("killing a session needs a right that tests do not ask for on SQL Server")
    shop.order(1, 2, 3)
    database = open_database()
    pid = database.driver_connection.info.backend_pid
    lose = iter([None, lambda: sql.run("SELECT pg_terminate_backend(?, 5000)", pid)])
    endpoint = endpoint_of(shop.queue.name, MODE, {}, then=lambda context: (next(lose, None) or (lambda: None))())

    with pytest.raises(DatabaseUnavailable):
        Batches(pipeline_of(database, endpoint), BatchSize(3, None, now=3)).process()

    assert (shop.written(), shop.sent()) == (Counter(), Counter())
    assert eventually(lambda: shop.queue.peek() == 3, "all three are back")


@pytest.mark.usefixtures("needs_readpast")
def test_two_workers_in_batches_share_a_queue_without_handling_anything_twice(shop, open_database):
    numbers = [*range(400)]
    shop.order(*numbers)

    def work(database):
        batches = Batches(pipeline_of(database, endpoint_of(shop.queue.name, MODE, {})), BatchSize(20, None, now=20))
        while batches.process()[0].kind is not Kind.EMPTY:
            pass

    threads = [threading.Thread(target=work, args=(open_database(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert shop.written() == shop.sent() == Counter(numbers)


# ------------------------------------------------------------------ real workers
@pytest.mark.parametrize("batch", [6, "adaptive"])
def test_a_message_that_kills_its_worker_in_a_batch_takes_no_neighbour_with_it(worked, batch):
    for number in range(12):
        worked.queue.send(b"bad" if number == 4 else b"good")

    with worked.run("die", limit=1, attempts=2, batch=batch) as supervisor:
        supervisor.until(lambda: worked.handled() == 11, "the others are handled")
        supervisor.until(lambda: supervisor.seen(events.MovedToError), "the killer is in the error queue")

    assert [error.body for error in worked.errors()] == [b"bad"]
    assert (worked.handled_twice(), worked.depth()) == (0, 0)


def test_a_time_limit_holds_for_each_message_of_a_batch_and_counts_for_the_one_that_exceeds_it(worked):
    for body in (b"0", b"0.4", b"0.4", b"30", b"0"):  # the batch as a whole takes longer than the limit
        worked.queue.send(body)

    with worked.run("slow", limit=1, attempts=1, batch=5, time_limit=0.7) as supervisor:
        supervisor.until(lambda: worked.handled() == 4, "the others are handled")
        supervisor.until(lambda: len(worked.errors()) == 1, "the slow one is in the error queue")

    (error,) = worked.errors()
    assert error.body == b"30"
    assert error.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "builtins.TimeoutError"
    assert (worked.handled_twice(), worked.depth()) == (0, 0)


def test_a_worker_asked_to_leave_finishes_its_batch(worked, tmp_path):
    gate = tmp_path / "gate"
    for _ in range(6):
        worked.queue.send(str(gate).encode())

    with worked.run("wait_for_file", limit=1, batch=3) as supervisor:
        supervisor.until(lambda: list(tmp_path.glob("gate.*")), "the first handler")
        supervisor.supervisor.stop()
        gate.touch()
        supervisor.until(lambda: not supervisor.alive, "all have left")

    assert (worked.handled(), worked.depth()) == (3, 3)
