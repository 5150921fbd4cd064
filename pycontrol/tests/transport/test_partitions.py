"""Partitioned queues: each value's messages in their order, whoever is killed and wherever a partition moves."""

import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.errors import HandlerNotFound, QueueNotFound, SettingsError
from rowpost.settings.environment import QueueSettings, load_settings
from rowpost.transport.partitions import partition_of, split
from rowpost.transport.queue import Queue
from rowpost.workers import events
from rowpost.workers.tasks.partition_splitter import key_of
from tests.support.fork_server import FORK_SERVER
from tests.support.partitioned import CUSTOMER
from tests.support.probe import probe_for
from tests.support.workers import Running, eventually

COUNT = 3
NAMES = [f"Sales.p{n}" for n in range(1, COUNT + 1)]


class Shop:
    """A partitioned queue in a database of its own, and what its handler wrote."""

    def __init__(self, target, url, folder):
        self.url, self.engine, self.folder = url, target.settings.engine, folder
        self.database = connect_url(self.engine, url, "rowpost tests")
        self.probe = probe_for(self.database, babelfish=target.babelfish)
        self.settings = load_settings(self.write_file(CUSTOMER))
        apply(self.database, plan(self.settings))
        self.probe.run(LEDGER[self.engine])

    def write_file(self, by):
        file = self.folder / "shop.yml"
        file.write_text(
            f"engine: {self.engine}\nurl: '{self.url}'\n"
            f"supervisor: {{stop_timeout: 5}}\nqueues:\n  error: {{}}\n"
            f"  Sales:\n    partitions: {{count: {COUNT}, by: '{by}'}}\n"
            "    worker: {handler: 'tests.support.partitioned:note', strategy: peek, peek_delay: 0.1, attempts: 50}\n"
        )
        return file

    @property
    def sales(self):
        return self.settings.queue("Sales")

    def order(self, customer, number, **options):
        headers = {} if customer is None else {CUSTOMER: customer}
        Queue("Sales", self.database).send(b"%d" % number, headers, **options)

    def split(self, by=CUSTOMER, warnings=None):
        moved = 0
        while part := split(self.database, self.sales, key_of(by), (warnings if warnings is not None else []).append):
            moved += part
        return moved

    def waiting(self):
        return {name: Queue(name, self.database).browse(1000) for name in NAMES}

    def handled(self):
        """Numbers by customer, in the order in which they were handled."""
        found = {}
        for customer, number in self.probe.run("SELECT customer, number FROM handled_order ORDER BY place"):
            found.setdefault(customer, []).append(number)
        return found


LEDGER = {
    "postgresql": "CREATE TABLE handled_order (customer text, number integer, place bigint GENERATED ALWAYS AS IDENTITY)",
    "sqlserver": "CREATE TABLE handled_order (customer nvarchar(40), number int, place bigint IDENTITY)",
}


@pytest.fixture
def shop(target, new_database, tmp_path):
    made = Shop(target, new_database("sqlserver" if target.settings.engine == "sqlserver" else target.label), tmp_path)
    yield made
    made.database.close()


# ------------------------------------------------------------------ the environment's file
def test_a_partitioned_queue_stands_for_its_partitions_with_one_worker_each(shop):
    queues = {queue.name: queue for queue in shop.settings.queues}

    assert list(queues) == ["error", "Sales", *NAMES]
    assert queues["Sales"].worker is None
    assert {(queues[name].worker.limit, queues[name].worker.exclusive) for name in NAMES} == {(1, True)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{partitions: {count: 1, by: x}}", "count"),
        ("{partitions: {count: 4}}", "by"),
        ("{partitions: {count: 4, by: x, from: y}}", "from"),
        ("{partitions: {count: 4, by: x}}\n  Sales.p2: {}", r"Sales\.p2"),
    ],
)
def test_partitions_that_are_not_what_they_should_be_are_refused(tmp_path, text, problem):
    file = tmp_path / "shop.yml"
    file.write_text(f"queues:\n  Sales: {text}\n")

    with pytest.raises(SettingsError, match=problem):
        load_settings(file)


# ------------------------------------------------------------------ the splitter
def test_messages_of_one_value_go_to_one_partition_in_their_order_as_they_are(shop):
    for number in range(20):
        for customer in ("ann", "bob", "cleo", "dan"):
            shop.order(customer, number)

    assert shop.split() == 80

    for name, messages in shop.waiting().items():
        for customer in ("ann", "bob", "cleo", "dan"):
            numbers = [int(message.body) for message in messages if message.headers[CUSTOMER] == customer]
            assert numbers == (list(range(20)) if name == NAMES[partition_of(customer, COUNT)] else [])


def test_a_message_without_a_value_or_with_unreadable_headers_moves_too(shop):
    shop.order(None, 1)
    Queue("Sales", shop.database).send(b"2", "no JSON")

    assert shop.split() == 2

    assert sorted(message.body for each in shop.waiting().values() for message in each) == [b"1", b"2"]


def test_a_function_may_say_the_value_and_may_fail_for_one_message(shop):
    warnings = []
    for customer in ("ann", "fail"):
        shop.order(customer, 1)

    assert shop.split("tests.support.partitioned:customer_of", warnings) == 2

    assert len(warnings) == 1
    assert "no such customer" in warnings[0]


def test_an_endpoint_cannot_say_the_value():
    with pytest.raises(HandlerNotFound, match="is an Endpoint"):
        key_of("tests.support.endpoints:web")


def test_what_has_expired_is_dropped_and_the_rest_of_the_time_moves_along(shop):
    shop.order("ann", 1, time_to_be_received=timedelta(milliseconds=1))
    shop.order("ann", 2, time_to_be_received=timedelta(hours=1))
    shop.order("ann", 3)
    shop.probe.wait_until_expired("Sales")

    shop.split()

    (messages,) = [each for each in shop.waiting().values() if each]
    now = shop.probe.utc_now().replace(tzinfo=None)
    assert [int(message.body) for message in messages] == [2, 3]
    assert timedelta(minutes=50) < messages[0].expires.replace(tzinfo=None) - now <= timedelta(hours=1)
    assert messages[1].expires is None


def test_a_split_that_fails_leaves_all_where_it_was(shop):
    shop.order("ann", 1)
    shop.probe.drop_queue(NAMES[partition_of("ann", COUNT)])

    with pytest.raises(QueueNotFound):
        shop.split()

    assert Queue("Sales", shop.database).peek() == 1


# ------------------------------------------------------------------ claims
def test_one_session_claims_a_queue_until_it_ends(shop):
    with connect_url(shop.engine, shop.url) as first, connect_url(shop.engine, shop.url) as second:
        claimed = [each.call("acquire_queue", queue_name="Sales")[0][0] for each in (first, second)]
        other = second.call("acquire_queue", queue_name=NAMES[0])[0][0]
        first.close()
        eventually(lambda: second.call("acquire_queue", queue_name="Sales")[0][0], "the second session claims it")

    assert (claimed, other) == ([True, False], True)


# ------------------------------------------------------------------ order
def test_each_customers_orders_are_handled_in_their_order(shop):
    for number in range(30):
        for customer in ("ann", "bob", "cleo", "dan"):
            shop.order(customer, number)

    with Running(shop.settings):
        eventually(lambda: sum(map(len, shop.handled().values())) >= 120, "all are handled", 120)

    assert shop.handled() == {customer: list(range(30)) for customer in ("ann", "bob", "cleo", "dan")}


KILLS = int(os.environ.get("ROWPOST_TEST_PARTITION_KILLS", "4"))


@pytest.mark.timeout(300 + 20 * KILLS)
def test_the_order_is_kept_while_workers_and_supervisors_are_killed_and_partitions_move(shop):
    """Two supervisors, each with workers for all partitions; now a worker is killed, now a whole supervisor."""
    customers = [f"customer {n}" for n in range(10)]
    sent = 0
    running = [spawn(shop), spawn(shop)]
    try:
        for kill in range(KILLS):
            for customer in customers:  # neighbours in a partition are of one customer
                for number in range(sent, sent + 20):
                    shop.order(customer, number)
            sent += 20
            wanted = (sent - 15) * len(customers)
            eventually(lambda wanted=wanted: sum(map(len, shop.handled().values())) >= wanted, "work goes on", 120)
            if kill % 2:
                victims = [pid for name in NAMES for pid in workers_of(shop, name)]
                for pid in victims[:1]:
                    end(shop, pid)
            else:
                os.killpg(running[0].pid, signal.SIGKILL)
                running.pop(0).wait()
                running.append(spawn(shop))
        eventually(lambda: sum(map(len, shop.handled().values())) >= sent * len(customers), "all are handled", 120)
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    assert shop.handled() == {customer: list(range(sent)) for customer in customers}
    assert Queue("error", shop.database).peek() == 0


def spawn(shop):
    """A supervisor and its workers, in a process group of their own."""
    code = (
        "import sys; from rowpost.settings.environment import load_settings; from rowpost.workers.supervision.supervisor import Supervisor;"
        "Supervisor(load_settings(sys.argv[1])).run()"
    )
    path = os.pathsep.join(filter(None, sys.path))
    return FORK_SERVER.start(
        ["-c", code, str(shop.folder / "shop.yml")],
        env={**os.environ, "PYTHONPATH": path}, start_new_session=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def workers_of(shop, name):
    """Sessions of a partition's workers at the server."""
    if shop.engine == "postgresql":
        rows = shop.probe.run(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE ?",
            f"rowpost worker {name} %",
        )
        return {row[0] for row in rows}
    rows = shop.probe.run(
        "SELECT session_id FROM sys.dm_exec_sessions WHERE program_name LIKE ?", f"rowpost worker {name} %"
    )
    return {row[0] for row in rows}


def end(shop, session):
    """Ends a worker's session at the server: its transaction rolls back there, and its partition is free."""
    if shop.engine == "postgresql":
        shop.probe.run("SELECT pg_terminate_backend(?)", session)
    else:
        shop.probe.run(f"KILL {int(session)}")


def test_a_worker_waits_while_another_process_has_its_partition_and_takes_it_over(shop):
    with connect_url(shop.engine, shop.url) as other:
        for name in NAMES:
            other.call("acquire_queue", queue_name=name)
        shop.order("ann", 1)
        with Running(shop.settings) as supervisor:
            name = NAMES[partition_of("ann", COUNT)]
            eventually(lambda: Queue(name, shop.database).peek(), "the message is in its partition")
            eventually(lambda: supervisor.seen(events.WorkerStarted, name), "a worker has started")
            eventually(
                lambda: len([each for each in supervisor.seen(events.Peeked, name) if each.count]) > 5,
                "it was sent often",
            )
            before = shop.handled()
            other.close()
            eventually(lambda: shop.handled() == {"ann": [1]}, "the partition is taken over")

    assert before == {}


def test_a_partition_for_which_nothing_waits_is_let_go_and_another_process_may_have_it(shop):
    name = NAMES[partition_of("ann", COUNT)]
    shop.order("ann", 1)
    with Running(shop.settings), connect_url(shop.engine, shop.url) as other:
        eventually(lambda: shop.handled() == {"ann": [1]}, "the first is handled")
        eventually(lambda: other.call("acquire_queue", queue_name=name)[0][0], "another process claims it")
        shop.order("ann", 2)
        eventually(lambda: Queue(name, shop.database).peek(), "the second is in its partition")
        other.close()
        eventually(lambda: shop.handled() == {"ann": [1, 2]}, "it is claimed again")


def test_an_exclusive_queue_has_one_worker_whatever_its_limit(tmp_path):
    file = tmp_path / "shop.yml"
    file.write_text("queues: {Sales: {worker: {handler: 'a:b', limit: 8, exclusive: true}}}")

    worker = load_settings(file).queue("Sales").worker

    assert (worker.limit, worker.exclusive) == (1, True)
    assert QueueSettings("Sales").partitions == ()
